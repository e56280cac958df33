"""`tokenloom init` writes a file that loads; `tokenloom check` prints all problems, or the run."""

import json

import pytest

import tokenloom as tl
from tokenloom.cli import main
from tokenloom.runfiles import json_schema

RUN = """\
seed: 7
sources:
  wiki: {store: stores/wiki, pack: 32, shuffle: block, epochs: 2}
  code: {store: stores/code, windows: 32}
mix: {weights: {wiki: 3, code: 1}}
loader: {batch_size: 4, end: pad}
evaluate: {held: {store: stores/code, windows: 32}}
"""


def run(capsys, *words):
    code = main([str(w) for w in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def place(tmp_path, monkeypatch):
    rows = [{"text": f"hello {i} " * (i + 1)} for i in range(30)]
    tl.build(rows, tmp_path / "stores/wiki", tokenizer="bytes")
    tl.build(rows[:9], tmp_path / "stores/code", tokenizer="bytes")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(RUN)
    return tmp_path


def test_check_prints_the_tree_of_the_run_and_what_it_will_train(place, capsys):
    code, out, _ = run(capsys, "check", "run.yaml")
    assert code == 0
    found = tl.load("run.yaml")
    assert str(found) in out
    with tl.Loader(found) as loader:
        assert f"{len(loader)} steps" in out


CHANGED = ("check", "run.yaml", "--set", "loader.batch_size=0", "--set", "sources.wiki.pack=x")


def test_check_prints_every_problem_and_exits_with_2(place, capsys):
    code, out, _ = run(capsys, *CHANGED)
    assert code == 2
    first, *problems = out.splitlines()
    assert "2" in first
    assert "sources.wiki.pack: found 'x'" in problems[0]
    assert "loader.batch_size: found 0" in problems[1]


def test_check_as_json_has_problems_or_the_facts_of_the_run(place, capsys):
    code, out, _ = run(capsys, "check", "run.yaml", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["problems"] == []
    assert facts["fingerprint"] == tl.load("run.yaml").fingerprint
    assert facts["loader"] == {"batch_size": 4, "end": "pad"}
    assert facts["evaluate"] == {"held": len(tl.load("run.yaml").file.evaluate["held"])}
    code, out, _ = run(capsys, "check", "run.yaml", "--set", "sead=3", "--json")
    assert code == 2
    assert "sead" in json.loads(out)["problems"][0]


def test_check_reads_no_token_and_builds_nothing(place, capsys):
    from tokenloom.config import check

    found = check("run.yaml").run
    assert found.counters().bytes == 0
    (place / "corpus.jsonl").write_text('{"text": "abc"}\n')
    text = "build: {tokenizer: bytes, stores: {new: corpus.jsonl}}\n"
    (place / "new.yaml").write_text(text + "sources: {a: {store: new, windows: 2}}\n")
    code, out, _ = run(capsys, "check", "new.yaml")
    assert code == 0
    assert out.splitlines()[1:] == ["  new"]
    assert not (place / "new").exists()


def test_check_of_another_dialect_says_which_and_what_is_not_used(place, capsys):
    data = {"configs": {"a": {"cache_dir": "stores/wiki"}}, "shuffle": True}
    config = {"data": data, "train_seq_len": 32, "trainer": {"seed": 3}}
    (place / "lm.json").write_text(json.dumps(config))
    code, out, _ = run(capsys, "check", "lm.json")
    assert code == 0
    assert "trainer: not used" in out
    code, out, _ = run(capsys, "check", "lm.json", "--set", "data.shufle=true")
    assert code == 2
    assert "shufle" in out


def test_check_prints_the_schema_for_editors(capsys):
    code, out, _ = run(capsys, "check", "--schema")
    assert code == 0
    assert json.loads(out) == json_schema()
    code, _, err = run(capsys, "check", "run.yaml", "--schema")
    assert code == 2
    assert "--schema: found with a file" in err


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: None,
        lambda folder: folder.mkdir(),
        lambda folder: tl.build([{"text": "a"}], folder, tokenizer="bytes"),
    ],
    ids=["nothing", "an empty folder", "a store"],
)
def test_init_without_data_is_refused(tmp_path, capsys, make):
    make(tmp_path / "data")
    code, _, err = run(capsys, "init", tmp_path / "data")
    assert code == 3
    assert str(tmp_path / "data") in err
    assert not (tmp_path / "data/run.yaml").exists()
