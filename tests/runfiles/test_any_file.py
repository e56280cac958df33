"""Whatever is in a file, it loads or is refused with a sentence; nothing else ever comes out."""

import contextlib
import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from spoiling import DEEP, JUNK, places, replaced

import tokenloom as tl
from tokenloom.runfiles.make import check_run
from tokenloom.runfiles.text import Written

WHOLE = {
    "seed": 7,
    "seq_len": 16,
    "sources": {
        "a": {
            "store": {"path": "stores/wiki", "snapshot": 1},
            "split": {"shares": {"x": 0.5, "y": 0.5}, "part": "x", "by": "id", "seed": 1},
            "select": {"num_docs": 3, "doc_select_mode": "longest", "min_doc_length": 1},
            "pack": {"strategy": "greedy", "add_eos": True, "max_len": 500, "group_docs": 10},
            "render": {"pad_id": 3, "label_layout": "aligned"},
            "shuffle": {"window_blocks": 2, "perm_type": "feistel"},
            "epochs": 2,
            "seed": 3,
        },
        "b": {"store": "stores/code", "windows": {"tail": "keep"}, "shuffle": 8, "epochs": 3},
        "c": {
            "store": "stores/code",
            "splice": {"content_length": {"0": 4, "64": 8}, "doc_schedule": {"0": 2}, "alpha": 0.5},
        },
    },
    "mix": {
        "rule": "weights",
        "weights": {"a": 1, "b": 2},
        "stages": {"20": {"a": 2}},
        "max_epochs": {"a": 5},
        "initial": {"b": 3},
    },
    "take": 90,
    "edits": [{"at": 30, "weights": {"b": 2}, "quarantine": [["a", 1]]}],
    "loader": {"batch_size": [[0, 4], [20, 8]], "fields": ["tokens"], "prefetch": 2},
    "evaluate": {"held": {"store": "stores/wiki", "windows": 8}},
    "build": {"tokenizer": "bytes", "eos": 0, "stores": {"new": {"inputs": ["corpus.jsonl"]}}},
}
PLACES = [path for path in places(WHOLE) if path]


def changed(place, junk, *, key=None):
    """The whole mapping with junk at a place, or under another key beside it."""
    last = place[-1] if key is None or isinstance(place[-1], int) else key
    return replaced(WHOLE, (*place[:-1], last), junk)


@pytest.mark.filterwarnings("ignore:stores/wiki. add_eos")
def test_the_whole_mapping_is_a_run(place):
    assert tl.from_config(WHOLE).is_finite


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=100)
@given(where=st.sampled_from(PLACES), junk=st.sampled_from(JUNK), key=st.sampled_from([None, "zz"]))
def test_junk_anywhere_is_refused_or_loads(shelf, where, junk, key):
    """In Python, and as text."""
    both = [changed(where, junk, key=key)]
    if junk is not DEEP and junk != 10**5000:
        text = json.dumps(both[0], default=str, skipkeys=True)
        both.append(json.loads(text.replace("stores/", f"{shelf}/stores/")))
    for one in both:
        with contextlib.suppress(tl.TokenloomError):
            assert tl.from_config(one)


@settings(max_examples=60)
@given(
    text=st.text(st.characters(codec="utf-8"), max_size=60),
    kind=st.sampled_from(["yaml", "json", "toml"]),
)
def test_any_text_is_a_file_or_is_refused(tmp_path_factory, text, kind):
    path = tmp_path_factory.mktemp("any") / f"run.{kind}"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(tl.ConfigError):
        tl.load(path)


@settings(max_examples=40)
@given(
    name=st.sampled_from(
        ["sources.a.epochs", "seed", "loader.end", "x.y", 'a."b.c".d', ".", "=", ""]
    ),
    text=st.text(st.characters(codec="utf-8"), max_size=20),
)
def test_any_override_is_taken_or_refused(name, text):
    written = Written(plain={"sources": {}})
    with contextlib.suppress(tl.ConfigError):
        assert check_run(written, (f"{name}={text}",)).problems


def test_a_file_written_by_anyone_runs_nothing(place):
    dangerous = [
        "!!python/object/apply:os.system ['touch hacked']",
        "!!python/object/new:os.system ['touch hacked']",
        "!!python/name:os.system",
    ]
    for tag in dangerous:
        (place / "run.yaml").write_text(f"sources: {tag}\n")
        with pytest.raises(tl.ConfigError, match="line 1, column 10"):
            tl.load("run.yaml")
    assert not (place / "hacked").exists()
    assert yaml.safe_load("a: 1") == {"a": 1}
