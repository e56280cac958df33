"""`export.json`, in which an export says what its files leave open."""

import json

import numpy as np
import pytest
from foreignfiles import write_mds

import tokenloom as tl
from tokenloom.exchange import export

DOCUMENTS = [[5, 6, 7], [8, 9], [1, 2, 3, 4]]


def exported(folder, to, **columns):
    rows = [{"input_ids": one, **{name: [1] * len(one) for name in columns}} for one in DOCUMENTS]
    store = tl.build(rows, folder / "own", tokenizer=None, vocab_size=10, columns=columns)
    export(store, folder / "out", to=to)
    return store, folder / "out"


def changed(out, **notes):
    path = out / "export.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | notes))


@pytest.mark.parametrize("to", ["mds", "npy"])
@pytest.mark.parametrize(
    "notes",
    [
        {"columns": {"score": "float33"}},
        {"columns": {"score": "int64"}},
        {"columns": {"score": "O"}},
        {"columns": {"score": ["float32"]}},
        {"columns": {"score": None}},
        {"columns": ["score"]},
        {"vocab_size": "ten"},
        {"vocab_size": 0},
        {"vocab_size": 1 << 40},
        {"vocab_size": True},
    ],
)
def test_notes_of_an_export_that_cannot_be_right_are_refused(tmp_path, to, notes):
    _, out = exported(tmp_path, to, score="float32")
    changed(out, **notes)
    with pytest.raises(tl.StoreCorrupt) as refused:
        tl.open(out)
    assert str(out) in str(refused.value)


@pytest.mark.parametrize("to", ["mds", "npy"])
def test_notes_that_were_cut_short_are_refused(tmp_path, to):
    _, out = exported(tmp_path, to)
    raw = (out / "export.json").read_bytes()
    (out / "export.json").write_bytes(raw[:-20])
    with pytest.raises(tl.StoreCorrupt, match=r"export\.json"):
        tl.open(out)


def test_an_export_json_of_another_program_says_nothing(tmp_path):
    tokens = {"tokens": [np.array(one, np.int32) for one in DOCUMENTS]}
    for number, text in enumerate(('{"columns": 7}', "[]", '{"a": 1}\n{"a": 2}', "")):
        folder = write_mds(tmp_path / str(number), tokens)
        (folder / "export.json").write_text(text)
        assert tl.open(folder).num_tokens == 9


def test_a_column_that_the_notes_name_and_the_samples_lack_is_refused(tmp_path):
    _, out = exported(tmp_path, "mds", score="float32")
    changed(out, columns={"scores": "float32"})
    with pytest.raises(tl.StoreCorrupt, match="scores"):
        tl.open(out)
