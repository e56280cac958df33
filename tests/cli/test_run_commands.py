"""Commands that ask a run: plan, state, at, where, next, find, digest, diff, edit, show."""

import json

import pytest

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.cli.completion import bash, fish, known_words
from tokenloom.cli.grammar import parser
from tokenloom.cli.tables import table
from tokenloom.loader import write_state

FILE = """\
seed: 7
sources:
  wiki: {store: stores/wiki, pack: {seq_len: 16}, shuffle: full}
  code: {store: stores/code, windows: {seq_len: 16}, shuffle: block, epochs: 2}
mix: {weights: {wiki: 3, code: 1}}
loader: {batch_size: 4}
"""


HEADER = str({"descr": "<i8", "fortran_order": False, "shape": (3,)}).encode().ljust(117) + b"\n"


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


# -- at, where, next, find -----------------------------------------------------------------


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


def test_a_table_of_one_source_has_no_other(ask):
    told = json.loads(ask("at", "run.yaml", "--steps", "0:6", "--source", "code", "--json"))
    assert {one["source"] for one in told["new"] + told["repeated"]} == {"code"}


def test_where_lists_the_places_and_says_that_there_are_more(ask, run):
    places = list(run.where("wiki", 3, batch_size=4))
    told = json.loads(ask("where", "run.yaml", "--source", "wiki", "--doc", "3", "--json"))
    assert told["places"] == [one.to_dict() for one in places[:20]]
    shown = ask("where", "run.yaml", "--id", "wiki-3", "--limit", "1")
    assert "there are more" in shown
    assert str(places[0].index) in shown.splitlines()[2]


def test_next_is_the_first_place_after_an_example(ask, run):
    places = [one.index for one in run.where("wiki", 3)]
    words = ("next", "run.yaml", "--source", "wiki", "--after", str(places[0]))
    assert json.loads(ask(*words, "--doc", "3", "--json"))["place"]["index"] == places[1]
    assert json.loads(ask(*words, "--id", "wiki-3", "--json"))["place"]["index"] == places[1]
    never = json.loads(ask(*words[:4], "--doc", "3", "--after", str(len(run) - 1), "--json"))
    assert never["place"] is None
    assert never["reason"]


def test_an_id_is_found_in_a_store_and_in_every_source_of_a_run(ask):
    assert json.loads(ask("find", "stores/wiki", "wiki-7", "--json"))["found"][0]["document"] == 7
    (one,) = json.loads(ask("find", "run.yaml", "code-5", "--json"))["found"]
    assert (one["source"], one["document"], one["metadata"]["id"]) == ("code", 5, "code-5")
    assert ask("find", "run.yaml", "nobody", code=1) == ""


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["at", "run.yaml"], "--step"),
        (["at", "run.yaml", "--steps", "5"], "--steps: found '5'"),
        (["at", "run.yaml", "--steps", "5:6", "--rank", "1"], "--rank"),
        (["at", "run.yaml", "3", "--rank", "1"], "--rank"),
        (["where", "run.yaml", "--doc", "1"], "--source"),
        (["digest", "stores/wiki", "--first", "1"], "--first"),
        (["plan", "stores/wiki"], "stores/wiki"),
        (["edit", "run.yaml", "--at", "8", "--weights", "x", "-o", "y.yaml"], "--weights"),
        (["edit", "run.yaml", "--at", "8", "--quarantine", "x", "-o", "y.yaml"], "--quarantine"),
        (["show", "stores/wiki"], "--doc"),
        (["digest", "endless.yaml"], "--last"),
        (["at", "endless.yaml", "--step", "1"], "--batch-size"),
        (["state", "run.yaml", "--tokens-per-second", "0"], "found 0"),
        (["audit", "run.yaml", "--check", "none.json"], "none.json"),
        (["gc", "stores/wiki", "--pin-for", "none.json"], "none.json"),
        (["gc", "stores/wiki", "--pin-for", "run.yaml"], "run.yaml"),
    ],
)
def test_a_wrong_question_names_the_option_or_the_file(ask, words, named):
    assert named in ask(*words, code=2)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"\x93NUMPY\x09\x00", "(9, 0)"),
        (b"\x93NUMPY\x01\x00\x76\x00" + HEADER, "int64"),
    ],
)
def test_a_damaged_file_of_indices_is_refused(ask, folder, raw, value):
    (folder / "bad.npy").write_bytes(raw)
    message = ask("audit", "--indices", "bad.npy", "--rows", "4", code=3)
    assert "bad.npy" in message
    assert value in message


def test_a_damaged_file_of_rows_is_refused(ask, folder):
    (folder / "bad.jsonl").write_text("{")
    assert "line 1" in ask("dataset", "bad.jsonl", code=3)
    (folder / "bad.jsonl").write_text("[1]")
    assert "input_ids" in ask("dataset", "bad.jsonl", code=3)


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


# -- tables and completion -----------------------------------------------------------------


def test_a_table_that_is_too_wide_cuts_words_and_never_a_number():
    rows = [["a" * 50, 1234567, "b" * 30], ["c", 8, "d"]]
    lines = list(table(("name", "count", "other"), rows, width=60))
    assert max(map(len, lines)) <= 60
    assert "1,234,567" in lines[2]
    assert "…" in lines[2]
    assert max(map(len, table(("name", "count", "other"), rows))) > 60


@pytest.mark.parametrize("make", [bash, fish])
def test_every_command_and_option_is_completed(make):
    script = make()
    for path, follows, values in known_words(parser()):
        for word in (*path, *follows, *(one for some in values.values() for one in some)):
            assert word.lstrip("-") in script, (path, word)


def test_bash_completes_what_was_started(tmp_path):
    import shutil
    import subprocess

    shell = shutil.which("bash")
    assert shell, "the test machine has bash"
    script = tmp_path / "complete"
    script.write_text(bash())

    def completed(*words):
        code = (
            f"source {script}; COMP_WORDS=({' '.join(map(repr, words))}); "
            f"COMP_CWORD={len(words) - 1}; _tokenloom; echo ${{COMPREPLY[@]}}"
        )
        done = subprocess.run([shell, "-c", code], capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert completed("tokenloom", "pack") == ["pack-plan"]
    assert completed("tokenloom", "splice", "cov") == ["coverage"]
    assert completed("tokenloom", "build", "--engine", "ti") == ["tiktoken"]
    assert "--steps" in completed("tokenloom", "at", "--st")


# -- other values of the file ------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("check", "run.yaml"),
        ("plan", "run.yaml"),
        ("at", "run.yaml", "5"),
        ("where", "run.yaml", "--source", "wiki", "--doc", "3"),
        ("next", "run.yaml", "--source", "wiki", "--doc", "3"),
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


def test_diff_tells_what_another_value_would_change(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["diff", "run.yaml", "run.yaml", "--set", "seed=8", "--json"]) == 1
    keys = json.loads(capsys.readouterr().out)["keys"]
    assert keys
    assert all((one["a"], one["b"]) == (7, 8) for one in keys)
