"""`tokenloom.load`: what it returns, overrides, variables, paths, JSON and TOML, builds."""

import json
import logging
import os
import pickle

import numpy as np
import pytest

import tokenloom as tl

TWO = """\
seed: 7
seq_len: 32
build:
  tokenizer: bytes
  eos: 0
  stores: {made/wiki: corpus.jsonl}
sources:
  wiki: {store: made/wiki, pack: {}, shuffle: block}
  code: {store: stores/code, windows: 32, shuffle: full, epochs: endless}
mix: {rule: weights, weights: {wiki: 3, code: 1}, stages: {20: {code: 4}}}
edits: [{at: 30, weights: {code: 2}}]
loader: {batch_size: 4, end: pad}
evaluate:
  held:
    store: made/wiki
    split: {shares: {train: 0.9, held: 0.1}, part: held, by: content}
    windows: {}
"""
ONE = "sources: {wiki: {store: stores/wiki, windows: 32}}\n"


def test_a_file_is_the_call_that_a_person_would_write(load, place):
    run = load(TWO)
    wiki, code = tl.open("made/wiki"), tl.open("stores/code")
    sources = {
        "wiki": wiki.pack(32).block_shuffle(),
        "code": code.windows(32).shuffle().epochs(None),
    }
    weights = {"wiki": 3, "code": 1}
    same = tl.mix(sources, rule="weights", weights=weights, stages={20: {"code": 4}})
    same = same.seed(7).edit(at=30, weights={"code": 2})
    assert run == same
    held = wiki.split({"train": 0.9, "held": 0.1}, by="content")["held"].windows(32).seed(7)
    assert run.file.evaluate == {"held": held}
    assert run.file.dialect == "run file"
    both = load(TWO.replace("  held:", "  wiki:"))  # a set may have the name of a source
    assert both == run
    assert both.file.evaluate["wiki"] == held
    assert run.file.path == "run.yaml"


def test_one_source_without_a_mix_is_that_dataset_alone(load):
    assert load(ONE) == tl.open("stores/wiki").windows(32)
    assert load(ONE + "mix: {}") == tl.mix({"wiki": tl.open("stores/wiki").windows(32)})
    with pytest.warns(UserWarning, match="1 row of source 'main' will be entirely blank"):
        edited = load(ONE + "edits: [{at: 3, quarantine: [[wiki, 2]]}]")
    assert edited.edits[0].quarantine == (("main", 2),)


def test_a_loader_takes_its_settings_from_the_file_and_arguments_win(load):
    run = load(TWO)
    with tl.Loader(run) as loader, tl.Loader(run, batch_size=2, end="drop") as other:
        assert next(loader).tokens.shape == (4, 32)
        assert next(other).tokens.shape == (2, 32)
        assert loader._settings["end"] == "pad"
        assert other._settings["end"] == "drop"
    with tl.Loader(run, 8, 1, 2) as loader:
        assert next(loader).tokens.shape == (4, 32)
    with pytest.raises(tl.ConfigError, match="batch_size: found None"):
        tl.Loader(tl.open("stores/wiki").windows(8))


def test_the_settings_travel_with_the_run_and_are_no_part_of_its_identity(load):
    run = load(TWO)
    for other in (run.take(9), pickle.loads(pickle.dumps(run))):
        assert other.file.loader == {"batch_size": 4, "end": "pad"}
        assert list(other.file.evaluate) == ["held"]
    bare = tl.from_config(run.describe())
    assert bare.file is None
    assert (bare.fingerprint, bare.render_fingerprint) == (run.fingerprint, run.render_fingerprint)


def test_from_config_takes_the_same_mapping_with_paths_from_the_working_directory(load, place):
    plain = {"sources": {"wiki": {"store": "stores/wiki", "windows": {"seq_len": 32}}}}
    assert tl.from_config(plain) == load(ONE)
    with pytest.raises(tl.ConfigError, match=r"^sources\.wiki\.windows: found 'x'"):
        tl.from_config({"sources": {"wiki": {"store": "stores/wiki", "windows": "x"}}})
    with pytest.raises(tl.ConfigError, match=r"^cache_bytes: found 9"):
        tl.from_config(plain, cache_bytes=9)


# -- variables and paths -------------------------------------------------------------------------


def test_variables_are_read_in_paths_and_stay_as_written_everywhere_else(load, place, monkeypatch):
    monkeypatch.setenv("SECRET_PLACE", str(place / "stores"))
    text = ONE.replace("stores/wiki", "'${SECRET_PLACE}/wiki'")
    run = load(text)
    shown = [json.dumps(run.describe()), str(run), json.dumps(run.state(3)), repr(run.file)]
    tl.save(run, "again.yaml")
    shown.append((place / "again.yaml").read_text())
    for one in shown[:3] + shown[4:]:
        assert "${SECRET_PLACE}/wiki" in one
    assert not any(str(place) in one for one in shown)
    assert tl.from_config(run.describe()) == run == tl.load("again.yaml")
    with pytest.raises(tl.ConfigError) as refused:
        load(text.replace("/wiki'", "/wikki'"))
    assert "found '${SECRET_PLACE}/wikki'" in str(refused.value)
    assert str(place) not in str(refused.value)
    monkeypatch.delenv("SECRET_PLACE")
    with pytest.raises(tl.ConfigError, match="SECRET_PLACE"):
        load(text)
    with pytest.raises(tl.ConfigError, match="SECRET_PLACE"):
        tl.from_config(run.describe())


def test_what_a_variable_holds_is_not_expanded_again(load, monkeypatch):
    monkeypatch.setenv("A", "${B}")
    monkeypatch.setenv("B", "stores")
    with pytest.raises(tl.ConfigError, match=r"found '\$\{A\}/wiki'"):
        load(ONE.replace("stores/wiki", "'${A}/wiki'"))


def test_paths_are_relative_to_the_file(place, monkeypatch):
    (place / "runs").mkdir()
    (place / "runs/run.yaml").write_text(ONE.replace("stores/wiki", "../stores/wiki"))
    expected = tl.open("stores/wiki").windows(32)
    run = tl.load("runs/run.yaml")
    assert run == expected
    assert run.sources["main"].path == "stores/wiki"
    monkeypatch.chdir(place / "runs")
    assert tl.load("run.yaml") == expected
    monkeypatch.chdir("/")
    assert tl.load(place / "runs/run.yaml") == expected


# -- JSON and TOML -------------------------------------------------------------------------------

TOML = """\
seed = 7
[sources.wiki]
store = "stores/wiki"
windows = 32
[mix]
stages = { 20 = { wiki = 4 } }
[loader]
batch_size = 4
"""


def test_json_and_toml_are_read_too(load):
    plain = {
        "seed": 7,
        "sources": {"wiki": {"store": "stores/wiki", "windows": 32}},
        "mix": {"stages": {"20": {"wiki": 4}}},
        "loader": {"batch_size": 4},
    }
    runs = [
        load(json.dumps(plain), name="run.json"),
        load(TOML, name="run.toml"),
        load(json.dumps(plain)),  # JSON is YAML, too
    ]
    assert all(run == runs[0] for run in runs)
    assert [run.file.loader for run in runs] == [{"batch_size": 4}] * 3
    assert runs[0].edits[0].at == 20


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("run.json", '{"a": [{"b": 1, "b": 2}]}', r"a\[0\].b: "),
        ("run.json", '{"a": 1,\n}', "line 2, column 1"),
        ("run.json", "[1]", "found list"),
        ("run.json", '{"a": NaN, "sources": {}}', "a: found nan"),
        ("run.json", '{"a":' * 100_000, "nested"),
        ("run.toml", "a = 1\na = 2\n", "line 2"),
        ("run.toml", "[a]\nb = 1\n[a]\nc = 2", "line 3"),
        ("run.toml", TOML.replace("seed = 7", "seed = 2026-01-01"), "seed: found"),
        ("run.toml", TOML.replace("batch_size", "batch_sise"), "loader.batch_sise: "),
    ],
)
def test_wrong_json_and_toml_are_refused_with_their_places(load, name, text, words):
    with pytest.raises(tl.ConfigError, match=words):
        load(text, name=name)


def test_merge_keys_and_anchors_have_the_lines_where_they_are_written(load):
    text = (
        "sources:\n"
        "  a: &usual {store: stores/wiki, windows: 32, shuffle: blok}\n"
        "  b: {<<: *usual, store: stores/code}\n"
    )
    with pytest.raises(tl.ConfigError) as refused:
        load(text)
    lines = str(refused.value).splitlines()[1:]
    assert [line.split(": ")[:2] for line in lines] == [
        ["  line 2, column 56", "sources.a.shuffle"],
        ["  line 2, column 56", "sources.b.shuffle"],
    ]


# -- builds --------------------------------------------------------------------------------------


def test_one_file_goes_from_text_to_batches_and_builds_once(load, place, caplog):
    caplog.set_level(logging.INFO)
    run = load(TWO)
    assert "made/wiki: not there yet, so it is built from corpus.jsonl" in caplog.text
    before = sorted(os.stat(one).st_mtime_ns for one in place.glob("made/wiki/*"))
    caplog.clear()
    again = load(TWO)
    assert again == run
    assert "built" not in caplog.text
    assert sorted(os.stat(one).st_mtime_ns for one in place.glob("made/wiki/*")) == before
    with tl.Loader(run) as loader:
        assert next(loader).tokens.dtype == np.int32


def test_nothing_is_built_while_something_is_wrong_or_if_it_must_not(load, place):
    with pytest.raises(tl.ConfigError, match=r"loader\.end: found 'x'"):
        load(TWO, "loader.end=x")
    assert not (place / "made").exists()
    with pytest.raises(tl.ConfigError, match=r"sources\.code\.store: found 'stores/none'"):
        load(TWO, "sources.code.store=stores/none")
    assert not (place / "made").exists()
    with pytest.raises(tl.StoreNotFound, match=r"run.yaml: not built yet: made/wiki\. Load it"):
        load(TWO, build=False)
    assert not (place / "made").exists()


def test_a_store_that_is_built_for_nobody_is_said_to_be_unused(load, place, caplog):
    caplog.set_level(logging.INFO)
    run = load(TWO, "build.stores.made/other=corpus.jsonl")
    (unused,) = run.file.unused
    assert unused.startswith("build.stores.made/other: ")
    assert f"run.yaml: {unused}" in caplog.text
    assert not (place / "made/other").exists()


def test_a_store_that_was_built_with_other_settings_is_refused(load, place):
    load(TWO)
    with pytest.raises(tl.ConfigError, match=r"wiki\.id_key: found 'id', but the store was built"):
        load(TWO, "build.id_key=id")
    with pytest.raises(tl.ConfigError, match="found 128, but the store was built with 262144"):
        load(TWO, "build.chunk_tokens=128")


def test_ready_made_ids_are_built_with_the_tokenizer_none(load, place):
    rows = [{"input_ids": list(range(n))} for n in range(1, 9)]
    (place / "ids.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = (
        "build: {tokenizer: none, vocab_size: 300, stores: {made/ids: ids.jsonl}}\n"
        "sources: {ids: {store: made/ids, pack: 8}}\n"
    )
    run = load(text)
    assert load(text) == run
    assert run.sources["main"].reader.manifest.tokenizer is None
    assert run.sources["main"].reader.manifest.vocab_size == 300
