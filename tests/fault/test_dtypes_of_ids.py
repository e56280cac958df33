"""Ids are integers: arrays of anything else are refused in every format that has a dtype."""

import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from foreignfiles import write_litdata, write_mds
from levanterfiles import write_cache

import tokenloom as tl
from tokenloom.exchange import export

OTHERS = ["float16", "float32", "float64", "bool", "complex64", "datetime64[s]"]


@pytest.mark.parametrize("dtype", OTHERS)
@pytest.mark.parametrize("column", ["tokens", "input_ids"])
def test_an_mds_column_of_ids_that_are_no_integers_is_refused(tmp_path, column, dtype):
    rows = [[1.5, 2.9, 3.2], [4.0]]
    write_mds(tmp_path, {column: [np.array(row).astype(dtype) for row in rows]})
    with pytest.raises(tl.ConfigError) as refused:
        tl.open(tmp_path)
    assert column in str(refused.value)
    assert dtype in str(refused.value)


@pytest.mark.parametrize("dtype", ["object", "str", "U4", "int32,float32", "int32,(", "no_dtype"])
def test_an_mds_dtype_that_is_no_number_is_refused(tmp_path, dtype):
    write_mds(tmp_path, {"tokens": [np.array([1, 2], np.int32)]})
    index = json.loads((tmp_path / "index.json").read_text())
    index["shards"][0]["column_encodings"] = [f"ndarray:{dtype}"]
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises((tl.ConfigError, tl.StoreCorrupt)) as refused:
        tl.open(tmp_path)
    assert dtype in str(refused.value)


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_an_mds_column_of_any_integer_dtype_is_ids(tmp_path, dtype):
    write_mds(tmp_path, {"tokens": [np.array(one, dtype) for one in ([1, 2, 3], [4])]})
    assert [one.tolist() for one in tl.open(tmp_path).documents(range(2))] == [[1, 2, 3], [4]]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("name", ["input_ids", "labels"])
@pytest.mark.parametrize(
    ("inner", "values"),
    [
        (pa.bool_(), [True, False]),
        (pa.float16(), np.array([1, 0], np.float16)),
        (pa.float32(), [1.0, 0.0]),
        (pa.float64(), [1.0, 0.0]),
        (pa.string(), ["1", "0"]),
        (pa.duration("s"), [1, 0]),
    ],
)
def test_rows_of_ids_or_labels_that_are_no_integers_are_refused(
    tmp_path, form, name, inner, values
):
    columns = {"input_ids": pa.array([[1, 0]]), name: pa.array([values], pa.list_(inner))}
    path = tmp_path / f"a.{form}"
    write_rows(path, pa.table(columns))
    with pytest.raises(tl.ConfigError) as refused:
        tl.open(path)
    assert name in str(refused.value)
    assert str(inner) in str(refused.value)


def write_rows(path, table):
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def test_rows_whose_ids_are_no_lists_are_refused(tmp_path):
    ids = pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))
    for number, column in enumerate(
        (
            pa.array([1, 2]).dictionary_encode(),
            pa.compute.run_end_encode(pa.array([1, 1, 2])),
            pa.array([[{"a": 1}]]),
        )
    ):
        path = tmp_path / f"{number}.arrow"
        write_rows(path, pa.table({"input_ids": column}))
        with pytest.raises(tl.ConfigError) as refused:
            tl.open(path)
        assert str(column.type) in str(refused.value)
    write_rows(tmp_path / "fixed.arrow", pa.table({"input_ids": ids}))
    assert tl.open(tmp_path / "fixed.arrow").num_tokens == 4


def test_every_other_format_refuses_floats(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1.5, 2.9]))
    (tmp_path / "b.bin").write_bytes(np.array([1.5, 2.9], "<f4").tobytes())
    head = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 6, 1, 2)
    (tmp_path / "b.idx").write_bytes(head + struct.pack("<iqqq", 2, 0, 0, 1))
    write_litdata(tmp_path / "c", [[1, 2]], data_format=["no_header_tensor:1"])
    write_cache(tmp_path / "d", {"input_ids": [[1, 2]]}, dtypes={"input_ids": "float32"})
    store = tl.build([{"input_ids": [1, 2]}], tmp_path / "s", tokenizer=None, vocab_size=9)
    export(store, tmp_path / "e", to="npy")
    np.save(tmp_path / "e/input_ids.npy", np.array([1.5, 2.9]))
    for name in ("a.npy", "b.bin", "c", "d", "e"):
        with pytest.raises((tl.ConfigError, tl.StoreCorrupt)):
            tl.open(tmp_path / name)
    for dtype in ("float32", "bool"):
        with pytest.raises(tl.ConfigError, match=dtype):
            tl.open(tmp_path / "a.npy", dtype=dtype)


def test_a_column_of_floats_comes_back_from_every_export_that_holds_it(tmp_path):
    rows = [{"input_ids": [1, 2, 3], "score": [0.5, 1.5, -2.5]}]
    store = tl.build(
        rows, tmp_path / "s", tokenizer=None, vocab_size=9, columns={"score": "float32"}
    )
    for to in ("parquet", "mds", "npy"):
        export(store, tmp_path / to, to=to)
        assert tl.open(tmp_path / to).digest == store.digest
