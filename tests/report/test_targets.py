"""A report on anything: its numbers are those of what it is about, and it stays small."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from pagetoys import EVIL, hostile_run
from virtual import VirtualStore

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.errors import ConfigError, InputError
from tokenloom.evaluate import Periodic, contrast, evaluate, pz, token_page
from tokenloom.inspect import Certificate, audit_run
from tokenloom.page.markup import visible
from tokenloom.report import report_on
from tokenloom.report.evaluations.read_back import read_evaluations
from tokenloom.report.store_report import FRAME

MOST_BYTES = 3_000_000


class Read(HTMLParser):
    """Elements and attributes of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def harmless(page, scripts=1):
    """Whether a page has no code but ours."""
    read = Read(page)
    assert read.tags.count("script") == scripts
    assert not {"iframe", "object", "embed", "img"} & set(read.tags)
    assert not [name for name in read.attributes if name == "style" or name.startswith("on")]


def uniform(tokens, segment_ids, position_ids):
    return np.zeros((*tokens.shape, 256))


def lucky(tokens, segment_ids, position_ids):
    """Knows the next token of every text whose first letter is an a."""
    found = np.zeros((*tokens.shape, 256))
    ahead = np.roll(tokens, -1, axis=1)
    known = (tokens[:, :1] == ord("a"))[..., None] * 9.0
    np.put_along_axis(found, ahead[..., None], known * np.ones((1, tokens.shape[1], 1)), 2)
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    texts = [{"text": letter * 40 + "bcd" * n, "id": n} for n, letter in enumerate("aaaabbbb")]
    folder = tmp_path_factory.mktemp("store")
    return tl.build([*texts, texts[2]], folder / "toy", tokenizer="bytes", id_key="id")


@pytest.fixture(scope="module")
def answers(store):
    """Every kind of answer that an evaluation gives."""
    first, second = (store.select(doc_index=list(some)) for some in (range(4), range(4, 8)))
    ask = {"prefix": 10, "suffix": 4, "stride": 4, "progress": False}
    trained, held = pz(lucky, first, **ask), pz(lucky, second, **ask)
    series = Periodic(
        {"held": lambda model: evaluate(model, first, seq_len=64, by=("document",))}, every=10
    )
    series(uniform, 10)
    series(lucky, 20)
    return {
        "losses": evaluate(lucky, first, seq_len=64, progress=False),
        "windows": trained,
        "control": contrast(trained, held, draws=50),
        "series": series,
        "page": token_page(lucky, store, 0, seq_len=64),
    }


# -- stores ----------------------------------------------------------------------------------------


def test_the_answers_about_a_store_are_what_the_store_says(store):
    found = {one.name: one.numbers for one in report_on(store).answers}
    assert found["contents"]["tokens"] == store.num_tokens
    assert found["contents"]["documents"] == store.num_documents
    lengths = np.asarray(store.lengths)
    assert found["lengths"]["median"] == np.median(lengths)
    assert found["lengths"]["longest"] == lengths.max()
    assert found["duplicates"] == {"groups": 1, "copies": 1}
    assert found["rows"]["windows"] == store.num_tokens // FRAME
    strategy = "best_fit_decreasing"
    choice = tl.plan_packing(store, seq_len=FRAME, strategy=strategy)
    assert found["rows"]["fill"] == choice.fill
    assert found["rows"]["rows"] == choice.rows


def test_an_empty_store_has_a_page(tmp_path):
    with pytest.warns(UserWarning, match="nothing to train on"):
        empty = tl.build([{"text": ""}], tmp_path / "empty", tokenizer="bytes")
    made = report_on(empty)
    assert len(made.cautions) == 1
    harmless(made.html)


# -- audits ----------------------------------------------------------------------------------------


def test_the_verdicts_of_a_page_are_those_of_the_certificate(store):
    found = audit_run(store.windows(8).shuffle())
    made = report_on(found)
    laws, sources, stretches = made.figures[0].numbers
    assert {row[0]: row[1] for row in laws.rows} == {
        n: law.verdict for n, law in found.laws.items()
    }
    assert [row[2] for row in laws.rows] == [law.looked_at for law in found.laws.values()]
    assert sources.rows[0][1] == found.counts["sources"]["main"]["rows"]
    assert [row[2] for row in stretches.rows] == [one[:12] for one in found.digests.plan]
    assert made.cautions == ()


def broken(found):
    """The same certificate with a broken law."""
    plain = found.as_json()
    law = plain["laws"]["tokens"]
    plain["laws"]["tokens"] = {**law, "verdict": "broken", "broken": 2, "examples": [EVIL]}
    return Certificate.read(plain)


def test_a_broken_law_is_the_first_warning_and_its_example_stays_text(store):
    found = audit_run(store.windows(8).shuffle())
    made = report_on(broken(found))
    assert "'tokens'" in made.cautions[0].words
    assert "2 times" in made.cautions[0].words
    harmless(made.html)
    run = store.windows(8).shuffle()
    assert report_on(run, certificate=broken(found), batch_size=2).cautions[0] == made.cautions[0]


@pytest.mark.parametrize("wrong", [{}, {"sources": []}, {"sources": {"a": {"rows": "x"}}}])
def test_a_certificate_with_other_counts_is_refused(store, wrong):
    plain = audit_run(store.windows(8)).as_json()
    plain["counts"] = wrong
    with pytest.raises(ConfigError, match=r"certificate\.counts"):
        Certificate.read(json.dumps(plain))


# -- evaluations -----------------------------------------------------------------------------------


def test_the_figures_of_evaluations_have_the_numbers_of_their_answers(store, answers):
    made = report_on(answers, name="toy")
    found = {one.name: one for one in made.figures}
    assert [*found] == ["pz", "pz-2", "places", "documents", "learned", "tokens"]
    position, *_ = found["places"].numbers
    wanted = answers["losses"].by("position")
    assert {row[1]: row[4] for row in position.rows} == {
        name: one["perplexity"] for name, one in wanted.items()
    }
    hardest, _ = found["documents"].numbers
    losses = {str(n): one["loss"] for n, one in answers["losses"].by("document").items()}
    assert {row[1]: row[3] for row in hardest.rows} == losses
    documents = {row[0]: row[3] for row in found["pz"].numbers[0].rows}
    by_document = answers["windows"].by_document()
    assert documents == {n: pytest.approx(one["mean_pz"]) for n, one in by_document.items()}
    told = {one.name: one for one in made.answers}
    assert told["predicted"].numbers["losses.tokens"] == answers["losses"].all["tokens"]
    assert told["given_back"].numbers["greedy"] == answers["windows"].summary()["greedy"]
    assert told["learned"].numbers == {"learned": 4, "documents": 4}
    made = report_on(store.windows(8), batch_size=2, evaluations=answers)  # after its own figures
    assert [one.name for one in made.figures][-2:] == ["learned", "tokens"]
    assert [one.name for one in made.answers][-3:] == ["predicted", "given_back", "learned"]


def test_files_of_answers_give_the_figures_of_the_answers(tmp_path, answers):
    for name in ("losses", "windows"):
        (tmp_path / f"{name}.npz").write_bytes(answers[name].to_bytes())
    read = {
        **read_evaluations(tmp_path / "losses.npz"),
        **read_evaluations(tmp_path / "windows.npz"),
    }
    kept = {name: answers[name] for name in ("losses", "windows")}
    assert report_on(read).to_dict() == report_on(kept).to_dict()
    assert report_on(read).html == report_on(kept).html


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.npz", b"no zip"),
        ("a.json", b"{}"),
        ("a.json", b"nonsense"),
        ("a.jsonl", b"nonsense\n"),
        ("a.jsonl", b""),
    ],
)
def test_other_files_are_refused_with_what_is_allowed(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=re.escape(name.split(".")[0])):
        read_evaluations(tmp_path / name)
    with pytest.raises(InputError, match=re.escape(f"b{name[1:]}")):
        read_evaluations(tmp_path / f"b{name[1:]}")


def test_an_answer_of_probability_zero_is_a_warning_and_no_crash(store):
    def never(tokens, segment_ids, position_ids):
        found = np.zeros((*tokens.shape, 256))
        found[..., ord("c")] = -np.inf
        return found

    made = report_on({"never": evaluate(never, store, seq_len=64, progress=False)})
    assert len(made.cautions) == 1
    json.dumps(made.to_dict(), allow_nan=False)
    harmless(made.html)


def test_hostile_names_and_texts_of_an_evaluation_stay_text(tmp_path, store):
    run = hostile_run(tmp_path)
    (source, *_) = run.sources.values()
    documents = tl.open(source.path)
    page = token_page(uniform, documents, 0, seq_len=64)
    losses = evaluate(uniform, run.take(8), progress=False)
    made = report_on({EVIL: losses, f"{EVIL}2": page}, name=EVIL)
    harmless(made.html)
    harmless(page.html())
    assert visible(EVIL) in made.to_dict()["title"] or EVIL in made.to_dict()["title"]


# -- all of them -----------------------------------------------------------------------------------


def test_settings_that_do_not_apply_are_refused(store):
    with pytest.raises(ConfigError, match="ranks"):
        report_on(store, ranks=2)
    for wrong in ({"a": 3}, {}):
        with pytest.raises(ConfigError, match="evaluations"):
            report_on(wrong)


def test_pages_of_a_thousand_sources_and_long_documents_are_small(tmp_path):
    rows = [{"text": "x" * 20_000}, *({"text": f"{n} toys"} for n in range(50))]
    one = tl.build(rows, tmp_path / "one", tokenizer="bytes", progress=False)
    assert len(report_on(one).html) < MOST_BYTES
    page = token_page(uniform, one, 0, seq_len=1024)
    assert len(report_on({"long": page}).html) < MOST_BYTES
    plain = audit_run(one.windows(64)).as_json()
    names = [f"source {n}" for n in range(1000)]
    plain["subject"]["sources"] = names
    (counts,) = plain["counts"]["sources"].values()
    plain["counts"]["sources"] = dict.fromkeys(names, counts)
    made = report_on(Certificate.read(plain))
    assert made.figures[0].numbers[1].more == 800
    assert len(made.html) < MOST_BYTES
    losses = {name: evaluate(uniform, one.select(doc_index=[1]), seq_len=8) for name in names[:50]}
    assert len(report_on(losses).html) < MOST_BYTES


def test_saving_replaces_a_report_and_nothing_else(tmp_path, store):
    made = report_on(store)
    path = tmp_path / "report.html"
    size = made.save(path)
    assert path.read_text() == made.html
    assert size == path.stat().st_size
    made.save(path)
    for other in ("<title>mine</title>", "seed: 7\n", ""):
        path.write_text(other)
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            made.save(path)
        assert path.read_text() == other


def test_plain_values_are_json_and_have_every_table(store, answers):
    for target in (store, audit_run(store.windows(8)), answers):
        made = report_on(target)
        plain = json.loads(json.dumps(made.to_dict(), allow_nan=False))
        assert [one["name"] for one in plain["figures"]] == [one.name for one in made.figures]
        for shown, figure in zip(plain["figures"], made.figures, strict=True):
            assert len(shown["numbers"]) == len(figure.numbers)
    assert not math.isnan(plain["answers"][0]["numbers"]["losses.perplexity"])


# -- the command -----------------------------------------------------------------------------------


def said(capsys, *words):
    code = main([*map(str, words)])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture
def filed(tmp_path, monkeypatch):
    """A folder with a run file, and the run."""
    monkeypatch.chdir(tmp_path)
    store = tl.build([{"text": "abcdefgh" * n} for n in range(1, 9)], "toy", tokenizer="bytes")
    tl.save(store.windows(8).shuffle(), "run.yaml")
    return tl.load("run.yaml")


def test_the_command_writes_what_report_on_makes(capsys, filed):
    assert said(capsys, "report", "run.yaml", "--batch-size", 4, "-o", "a.html")[0] == 0
    code, out, _ = said(capsys, "report", "run.yaml", "--batch-size", "0:4,8:2", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["path"] == "report.html"
    wanted = report_on(filed, batch_size=[(0, 4), (8, 2)], name="run.yaml").to_dict()
    assert {name: told[name] for name in wanted} == wanted


def test_an_audit_and_a_state_of_this_run_are_taken_and_those_of_others_told(capsys, filed):
    tl.loader.write_state(filed.state(3), "state.json")
    tl.loader.write_state(filed.seed(9).state(3), "other.json")
    assert said(capsys, "audit", "run.yaml", "-o", "own.json")[0] == 0
    given = ("--audit", "own.json", "--state", "state.json", "--json")
    code, out, _ = said(capsys, "report", "run.yaml", *given)
    assert code == 0
    assert json.loads(out)["figures"][-1]["name"] == "certificate"
    code, _, err = said(capsys, "report", "run.yaml", "--state", "other.json")
    assert code == 2
    assert "seed" in err
    assert said(capsys, "report", "own.json", "-o", "audit.html")[0] == 0


def test_a_url_with_a_credential_is_neither_opened_nor_repeated(capsys, filed):
    code, out, err = said(capsys, "report", "s3://user:geheim@bucket/store", "--json")
    assert code == 2
    assert "geheim" not in out + err


def test_nothing_absolute_is_added_to_a_page(capsys, filed, tmp_path):
    for target in ("run.yaml", "toy"):
        assert said(capsys, "report", target, "-o", f"{target}.html")[0] == 0
        assert str(tmp_path) not in (tmp_path / f"{target}.html").read_text()


def test_the_command_shows_evaluations_alone_and_with_their_run(capsys, filed, store):
    series = Periodic(
        {"held": lambda model: evaluate(model, store, seq_len=64, by=("document",))},
        folder="results",
        every=10,
    )
    series(uniform, 10)
    series(lucky, 20)
    windows = pz(lucky, store, prefix=10, suffix=4, stride=4, progress=False)
    Path("results/windows.npz").write_bytes(windows.to_bytes())
    read = read_evaluations(Path("results"))
    alone = json.loads(said(capsys, "report", "results", "-o", "alone.html", "--json")[1])
    assert [one["name"] for one in alone["figures"]] == ["pz", "learned"]
    wanted = report_on(read, name="results").to_dict()["figures"]
    assert [one["numbers"] for one in alone["figures"]] == [one["numbers"] for one in wanted]
    beside = json.loads(said(capsys, "report", "run.yaml", "--eval", "results", "--json")[1])
    assert [one["numbers"] for one in beside["figures"][-2:]] == [one["numbers"] for one in wanted]


def test_pages_of_runs_of_every_order_and_end_are_small_and_harmless(orders):
    for run in orders.values():
        page = report_on(run, batch_size=8).html
        assert len(page) < MOST_BYTES
        harmless(page)


class CountingStore(VirtualStore):
    """Counts what is read of a store that is not there."""

    reads = 0
    bytes = 0

    def read(self, ranges):
        self.reads += 1
        self.bytes += sum(count for _, _, count in ranges)
        return super().read(ranges)


def test_a_report_on_a_billion_rows_reads_a_few_places(tmp_path):
    files = CountingStore([(2_000_000, (1 << 32) - 16)] * 4)
    store = tl.open(files.write_manifest(tmp_path / "s"), source=files, verify="never")
    run = store.windows(16)
    assert len(run) > 10**9
    before = files.bytes
    made = report_on(run, batch_size=1024)
    assert made.answers[0].numbers["examples"] == len(run) // 1024 * 1024
    assert files.bytes - before < 100 << 20  # all tokens are 32 GiB
    assert len(made.html) < MOST_BYTES
