"""Loss columns of other formats: values that mean nothing are refused when the files are opened."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreignfiles import write_datatrove, write_mds
from levanterfiles import write_cache

import tokenloom as tl
from tokenloom.exchange import export

DOCUMENTS = [[5, 6, 7], [8, 9]]


def in_arrays(folder, name, values):
    export(plain(folder), folder / "files", to="npy")
    np.save(folder / f"files/{name}.npy", np.concatenate(values))
    return folder / "files"


def in_mds(folder, name, values):
    tokens = [np.array(one, np.int32) for one in DOCUMENTS]
    return write_mds(folder / "files", {"tokens": tokens, name: values})


def rows(name, values):
    kind = pa.list_(pa.from_numpy_dtype(values[0].dtype))
    return pa.table({"input_ids": DOCUMENTS, name: pa.array([*values], kind)})


def in_parquet(folder, name, values):
    pq.write_table(rows(name, values), folder / "a.parquet", row_group_size=1)
    return folder / "a.parquet"


def in_arrow(folder, name, values):
    table = rows(name, values)
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    return folder / "a.arrow"


def in_levanter(folder, name, values):
    """There a weight is that of the prediction after its token."""
    name = {"loss_mask": "assistant_masks"}.get(name, name)
    dtype = {name: values[0].dtype.name}
    if name == "loss_weights":
        flat = np.roll(np.concatenate(values), -1)
        values = np.split(flat, [len(values[0])])
    return write_cache(folder / "files", {"input_ids": DOCUMENTS, name: values}, dtypes=dtype)


FORMATS = {
    "arrays": in_arrays,
    "mds": in_mds,
    "parquet": in_parquet,
    "arrow": in_arrow,
    "levanter": in_levanter,
}


def plain(folder):
    rows = [{"input_ids": one} for one in DOCUMENTS]
    return tl.build(rows, folder / "own", tokenizer=None, vocab_size=10)


def split(flat):
    return np.split(np.asarray(flat), [3])


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("identity", ["full", "sample"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, -1.0, -1e-30, np.inf, -np.inf])
def test_weights_that_are_negative_or_not_finite_are_refused(tmp_path, to, identity, dtype, value):
    values = np.array([0.5, 1, 0, value, 1], dtype)
    path = FORMATS[to](tmp_path, "loss_weights", split(values))
    with pytest.raises(tl.StoreCorrupt) as refused:
        tl.open(path, identity=identity)
    assert "loss_weights" in str(refused.value)
    assert str(values[3]) in str(refused.value)
    assert "document 1" in str(refused.value)


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("value", [1e39, 1e-60])
def test_weights_that_no_float32_can_be_are_refused(tmp_path, to, value):
    """A batch has float32: the first would be infinite there, the second not be trained on."""
    path = FORMATS[to](tmp_path, "loss_weights", split([0.5, 1.0, 0.0, value, 1.0]))
    with pytest.raises(tl.StoreCorrupt) as refused:
        tl.open(path)
    assert str(value) in str(refused.value)


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8"])
@pytest.mark.parametrize("value", [-1, 2])
def test_masks_that_are_neither_0_nor_1_are_refused(tmp_path, to, dtype, value):
    values = np.array([0, 1, 0, value, 1]).astype(dtype)
    path = FORMATS[to](tmp_path, "loss_mask", split(values))
    with pytest.raises(tl.StoreCorrupt) as refused:
        tl.open(path)
    assert f" is {values[3]}," in str(refused.value)


@pytest.mark.parametrize("to", ["arrays", "mds"])
@pytest.mark.parametrize("value", [0.5, np.nan, -0.25])
def test_a_mask_of_fractions_is_no_mask(tmp_path, to, value):
    """As a byte a fraction would be 0."""
    path = FORMATS[to](tmp_path, "loss_mask", split([0.0, 1.0, 0.0, value, 1.0]))
    with pytest.raises(tl.StoreCorrupt) as refused:
        tl.open(path)
    assert f" is {value}," in str(refused.value)


def test_a_loss_file_of_datatrove_has_zeros_and_ones(tmp_path):
    path = write_datatrove(tmp_path / "a.ds", DOCUMENTS, loss=[[0, 1, 3], [1, 1]])
    with pytest.raises(tl.StoreCorrupt) as refused:
        tl.open(path)
    assert " is 3," in str(refused.value)


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_counted_as_trained_is_what_a_batch_trains(tmp_path, to, dtype):
    values = np.array([0.5, 1, 0, 2.5, 1e-40], dtype)
    store = tl.open(FORMATS[to](tmp_path, "loss_weights", split(values)))
    run = store.pack(6)
    batch = run.batch([0])
    assert batch.loss_tokens == int((batch.loss_weights > 0).sum()) == 2
    assert next(iter(tl.Loader(run, 1))).step_loss_tokens == 2
    costs = tl.mix({"a": run}, rule="weights", weights={"a": 1.0}, cost="loss_tokens")
    assert costs.batch([0]).loss_tokens == 2
    check = run.audit()
    assert check.ok, check


@pytest.mark.parametrize("wanted", ["uint8", "int32", "bool"])
@pytest.mark.parametrize("value", [0.5, 300.0, np.nan, -1.5])
def test_a_column_that_its_dtype_cannot_hold_is_refused(tmp_path, wanted, value):
    """`export.json` says how the column was stored; these files were changed since."""
    rows = [{"input_ids": one, "part": [1] * len(one)} for one in DOCUMENTS]
    store = tl.build(
        rows, tmp_path / "own", tokenizer=None, vocab_size=10, columns={"part": wanted}
    )
    export(store, tmp_path / "files", to="npy")
    good = np.array([0, 1, 0, 1, 1], np.float64)
    np.save(tmp_path / "files/part.npy", good)
    assert tl.open(tmp_path / "files").document(1, "part").tolist() == [1, 1]
    good[3] = value if wanted != "int32" or value != 300.0 else 2.0**40
    np.save(tmp_path / "files/part.npy", good)
    with pytest.raises(tl.StoreCorrupt) as refused:
        tl.open(tmp_path / "files")
    assert "part" in str(refused.value)
    assert str(good[3]) in str(refused.value)
