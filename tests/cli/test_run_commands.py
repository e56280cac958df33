"""Commands that ask a run: plan, state, at, where, find, digest, diff, edit, show."""

import json

import pytest

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.loader import write_state

FILE = """\
seed: 7
sources:
  wiki: {store: stores/wiki, pack: {seq_len: 16}, shuffle: full}
  code: {store: stores/code, windows: {seq_len: 16}, shuffle: block, epochs: 2}
mix: {weights: {wiki: 3, code: 1}}
loader: {batch_size: 4}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two stores and a run file."""
    root = tmp_path_factory.mktemp("runs")
    for name in ("wiki", "code"):
        rows = [
            {"id": f"{name}-{n}", "text": f"{name} {n}: " + "abcdefgh " * (n % 5)}
            for n in range(24)
        ]
        tl.build(rows, root / "stores" / name, tokenizer="bytes", id_key="id", eos=0)
    (root / "run.yaml").write_text(FILE)
    endless = "sources: {wiki: {store: stores/wiki, windows: 16, epochs: endless}}"
    (root / "endless.yaml").write_text(endless)
    return root


@pytest.fixture
def ask(folder, capsys, monkeypatch):
    """A command in that folder → its exit code, output and messages."""
    monkeypatch.chdir(folder)

    def asked(*words, code=0):
        found = main([*words, "--quiet"])
        out, err = capsys.readouterr()
        assert found == code, err
        return err if code else out

    return asked


@pytest.fixture
def run(folder):
    return tl.load(folder / "run.yaml")


# -- at, where, find -----------------------------------------------------------------------


def test_at_prints_what_python_answers(ask, run):
    found = run.at(step=3, row=1, batch_size=4, text=True)
    assert ask("at", "run.yaml", "--step", "3", "--row", "1", "--text") == f"{found!r}\n"
    assert ask("at", "run.yaml", str(found.index), "--text") == f"{found!r}\n"
    plain = json.loads(ask("at", "run.yaml", "--step", "3", "--row", "1", "--json"))
    assert plain["examples"] == [run.at(step=3, row=1, batch_size=4).to_dict()]


def test_steps_are_a_table_of_documents_new_ones_and_repeats_apart(ask, run):
    """Counted one by one: which documents the steps hold, and whether any came before."""
    first, last = 20, 24
    told = json.loads(ask("at", "run.yaml", "--steps", f"{first}:{last}", "--json"))
    held, before = {}, set()
    for index in range(last * 4):
        for span in run.at(index).spans:
            key = span.source, span.document
            if index < first * 4:
                before.add(key)
            else:
                rows, cells = held.get(key, (set(), 0))
                held[key] = rows | {index}, cells + span.tokens
    found = {
        name: {(one["source"], one["document"]): (one["rows"], one["cells"]) for one in told[name]}
        for name in ("new", "repeated")
    }
    counted = {key: (len(rows), cells) for key, (rows, cells) in held.items()}
    assert found["new"] == {k: v for k, v in counted.items() if k not in before}
    assert found["repeated"] == {k: v for k, v in counted.items() if k in before}
    assert found["new"] or found["repeated"]
    assert all(one["id"] == f"{one['source']}-{one['document']}" for one in told["repeated"])


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_share_the_rows_of_steps(ask, world):
    rows = [
        json.loads(
            ask(
                "at", "run.yaml", "--steps", "2:5", "--json",
                "--rank", str(rank), "--world", str(world),
            )
        )["rows"]
        for rank in range(world)
    ]  # fmt: skip
    assert sum(rows) == 12
    assert rows == [3 * ((rank + 1) * 4 // world - rank * 4 // world) for rank in range(world)]


def test_where_lists_the_places_and_says_that_there_are_more(ask, run):
    places = list(run.where("wiki", 3, batch_size=4))
    told = json.loads(ask("where", "run.yaml", "--source", "wiki", "--doc", "3", "--json"))
    assert told["places"] == [one.to_dict() for one in places[:20]]
    shown = ask("where", "run.yaml", "--id", "wiki-3", "--limit", "1")
    assert "there are more" in shown
    assert str(places[0].index) in shown.splitlines()[2]


def test_an_id_is_found_in_a_store_and_in_every_source_of_a_run(ask):
    assert json.loads(ask("find", "stores/wiki", "wiki-7", "--json"))["found"][0]["document"] == 7
    (one,) = json.loads(ask("find", "run.yaml", "code-5", "--json"))["found"]
    assert (one["source"], one["document"], one["metadata"]["id"]) == ("code", 5, "code-5")
    assert ask("find", "run.yaml", "nobody", code=1) == ""


# -- digest, diff, edit ---------------------------------------------------------------------


def test_digests_are_those_of_python(ask, run, folder):
    assert ask("digest", "run.yaml", "--last", "20").strip() == run.digest(0, 20)
    assert ask("digest", "run.yaml", "--plan").strip() == run.plan_digest(0, len(run))
    assert ask("digest", "stores/wiki").strip() == tl.open(folder / "stores/wiki").digest


def test_an_edit_is_written_with_the_proof_that_the_past_is_the_same(ask, run, folder):
    out = folder / "edited.yaml"
    out.unlink(missing_ok=True)
    told = ask("edit", "run.yaml", "--at", "40", "--weights", "code=4", "-o", "edited.yaml")
    assert run.plan_digest(0, 40) in told
    made = tl.load(out)
    assert made.fingerprint == run.edit(at=40, weights={"code": 4}).fingerprint
    difference = json.loads(ask("diff", "run.yaml", "edited.yaml", "--json", code=1) or "{}")
    assert difference == {}  # with an error code, what was read is the messages
    ask("diff", "run.yaml", "run.yaml")


def test_diff_tells_the_first_example_that_differs(ask, run, capsys, folder):
    (folder / "other.yaml").write_text(FILE.replace("seed: 7", "seed: 8"))
    assert main(["diff", "run.yaml", "other.yaml", "--json", "--quiet"]) == 1
    told = json.loads(capsys.readouterr().out)
    other = tl.load(folder / "other.yaml")
    rows = [(run.plan_digest(n, n + 1), other.plan_digest(n, n + 1)) for n in range(20)]
    assert told["first"] == [a == b for a, b in rows].index(False)


# -- plan and state ------------------------------------------------------------------------


def test_a_plan_counts_what_each_source_gives(ask, run):
    told = json.loads(ask("plan", "run.yaml", "--steps", "5", "--json"))
    assert told["planned"] == 20
    assert [one["rows"] for one in told["sources"]] == [one["rows"] for one in run.consumed(20)]
    assert told["forecast"]["reads_per_example"] > 0
    assert f"{len(run):,} examples" in ask("plan", "run.yaml")


def test_a_state_whose_stores_are_gone_is_printed_without_totals(ask, tmp_path):
    store = tl.build([{"text": "abcdefgh"}], tmp_path / "s", tokenizer="bytes")
    path = write_state(tl.Loader(store.windows(2), 2).state_dict(), tmp_path / "states")
    (tmp_path / "s").rename(tmp_path / "moved")
    assert "--run" in ask("state", str(path))
    told = json.loads(ask("state", str(path), "--json"))
    assert (told["examples"], told["of"]) == (0, None)
    assert str(tmp_path / "s") in told["trouble"]


# -- other values of the file ------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("check", "run.yaml"),
        ("plan", "run.yaml"),
        ("at", "run.yaml", "5"),
        ("where", "run.yaml", "--source", "wiki", "--doc", "3"),
        ("digest", "run.yaml", "--plan"),
        ("show", "run.yaml", "--examples", "1"),
        ("dataset", "run.yaml", "--row", "0"),
        ("audit", "run.yaml", "--plan-only"),
        ("simulate", "run.yaml", "--steps", "5"),
    ],
    ids=" ".join,
)
def test_set_changes_what_a_command_answers_as_another_file_would(ask, folder, words):
    (folder / "eight.yaml").write_text(FILE.replace("seed: 7", "seed: 8"))
    told = [
        json.loads(ask(*typed, "--json"))
        for typed in (
            words,
            (*words, "--set", "seed=8"),
            (words[0], "eight.yaml", *words[2:]),
        )
    ]
    for one in told:
        one.pop("file", None)
    assert told[1] == told[2]
    assert told[0] != told[1]
