"""Files of samples (MDS, LitData) and rows (Parquet, Arrow): what they hold beside ids, and what
cannot be right in them."""

import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
import zstandard
from foreignfiles import write_litdata, write_mds
from refusals import refused

import tokenloom as tl

DOCUMENTS = [[1, 2, 3], [4], [5, 6]]


def array(values, dtype="<i4", width=8):
    """An array of one axis that says its own length, in as many bytes."""
    raw = np.array(values, dtype)
    code = {1: 0, 2: 1, 4: 2, 8: 3}[width]
    return bytes([4 | code]) + len(raw).to_bytes(width, "little") + raw.tobytes()


def write(folder, columns, **shard):
    """An MDS folder of one file; `columns` has (encoding, size of all samples or None, samples)."""
    folder.mkdir()
    items = []
    for number in range(len(next(iter(columns.values()))[2])):
        cells = [(size, samples[number]) for _, size, samples in columns.values()]
        head = b"".join(struct.pack("<I", len(cell)) for size, cell in cells if size is None)
        items.append(head + b"".join(cell for _, cell in cells))
    starts = np.cumsum([4 * (len(items) + 2), *map(len, items)]).astype("<u4")
    raw = struct.pack("<I", len(items)) + starts.tobytes() + b"".join(items)
    (folder / "a.mds").write_bytes(raw)
    told = {
        "format": "mds",
        "compression": None,
        "column_names": list(columns),
        "column_encodings": [encoding for encoding, _, _ in columns.values()],
        "column_sizes": [size for _, size, _ in columns.values()],
        "raw_data": {"basename": "a.mds", "bytes": len(raw), "hashes": {}},
        "samples": len(items),
        "zip_data": None,
    } | shard
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [told]}))
    return folder


def ids(**options):
    return ("ndarray:int32", None, [array(one, **options) for one in DOCUMENTS])


def documents_of(store):
    return [one.tolist() for one in store.documents(range(len(store)))]


# -- what is there -----------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_arrays_say_their_length_in_any_width(tmp_path, width):
    store = tl.open(write(tmp_path / "s", {"input_ids": ids(width=width)}), vocab_size=9)
    assert documents_of(store) == DOCUMENTS


def test_columns_of_one_size_have_no_length(tmp_path):
    columns = {
        "tokens": ("ndarray:uint16:2", 4, [struct.pack("<2H", n, n + 1) for n in range(3)]),
        "number": ("int64", 8, [struct.pack("<q", -n) for n in range(3)]),
    }
    store = tl.open(write(tmp_path / "s", columns), vocab_size=9)
    assert documents_of(store) == [[0, 1], [1, 2], [2, 3]]
    assert [store.metadata(n)["number"] for n in range(3)] == [0, -1, -2]


def test_bytes_need_a_dtype_that_was_said(tmp_path):
    cells = [np.array(one, "<i8").tobytes() for one in DOCUMENTS]
    path = write(tmp_path / "s", {"tokens": ("bytes", None, cells)})
    refused(lambda: tl.open(path), tl.ConfigError, path, "tokens", "dtype")
    assert documents_of(tl.open(path, dtype="int64", vocab_size=9)) == DOCUMENTS
    path = write(tmp_path / "odd", {"tokens": ("bytes", None, [b"123", b"", b"12"])})
    refused(lambda: tl.open(path, dtype="uint16"), tl.StoreCorrupt, "a.mds", "tokens")


def test_what_is_beside_the_arrays_is_metadata(tmp_path):
    columns = {
        "input_ids": ids(),
        "id": ("str", None, [b"a", "é".encode(), b""]),
        "share": ("float32", 4, [struct.pack("<f", n / 2) for n in range(3)]),
        "more": ("json", None, [b'{"x": 1}', b"[]", b"null"]),
        "metadata": ("json", None, [b'{"url": "u", "_record": 9}', b"{}", b"7"]),
        "picture": ("jpeg", None, [b"?"] * 3),
        "whole": ("int", 8, [struct.pack("<q", 2**40 + n) for n in range(3)]),
    }
    store = tl.open(write(tmp_path / "s", columns), vocab_size=9)
    rows = [store.metadata(number) for number in (0, 1, 2)]
    assert [row["id"] for row in rows] == ["a", "é", ""]
    assert [row["share"] for row in rows] == [0.0, 0.5, 1.0]
    assert [row["more"] for row in rows] == [{"x": 1}, [], None]
    assert [row["whole"] for row in rows] == [2**40, 2**40 + 1, 2**40 + 2]
    assert (rows[0]["url"], rows[2]["metadata"]) == ("u", 7)
    assert not any("picture" in row for row in rows)
    assert rows[0].get("_record") != 9


def test_metadata_is_read_across_files_in_any_order(tmp_path):
    first = write(tmp_path / "a", {"input_ids": ids(), "id": ("str", None, [b"x", b"y", b"z"])})
    other = write(tmp_path / "b", {"input_ids": ids(), "id": ("str", None, [b"p", b"q", b"r"])})
    (first / "b.mds").write_bytes((other / "a.mds").read_bytes())
    index = json.loads((first / "index.json").read_text())
    more = json.loads((other / "index.json").read_text())["shards"][0]
    more["raw_data"]["basename"] = "b.mds"
    (first / "index.json").write_text(json.dumps({**index, "shards": [*index["shards"], more]}))
    store = tl.open(first, vocab_size=9)
    assert [store.metadata(n)["id"] for n in (5, 0, 3, 2)] == ["r", "x", "p", "z"]


@pytest.mark.parametrize(
    ("encoding", "size", "cell"),
    [("json", None, b"{"), ("str", None, b"\xff"), ("float64", None, b"123")],
)
def test_metadata_that_cannot_be_read_is_damage(tmp_path, encoding, size, cell):
    columns = {"input_ids": ids(), "odd": (encoding, size, [cell] * 3)}
    store = tl.open(write(tmp_path / "s", columns), vocab_size=9)
    refused(lambda: store.metadata(1), tl.StoreCorrupt, "index.json", "odd", encoding)


# -- what cannot be right ------------------------------------------------------------------------


def changed(folder, **changes):
    """An index whose only file is described otherwise."""
    index = json.loads((folder / "index.json").read_text())
    for name, value in changes.items():
        index["shards"][0][name] = value
    (folder / "index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(
    "change",
    [
        {"format": "csv"},
        {"samples": -1},
        {"samples": "x"},
        {"column_names": ["input_ids", "more"]},
        {"column_encodings": [7]},
        {"raw_data": {"basename": "../a.mds", "bytes": 1}},
        {"raw_data": {"basename": "a.mds", "bytes": -1}},
        {"raw_data": None},
    ],
    ids=str,
)
def test_a_file_that_is_not_described_as_mds_does_is_refused(tmp_path, change):
    path = changed(write(tmp_path / "s", {"input_ids": ids()}), **change)
    refused(lambda: tl.open(path), tl.StoreCorrupt, "index.json")


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"text": ("str", None, [b"a"])}, "text"),
        ({"input_ids": ("ndarray:int32:2,2", 16, [bytes(16)])}, "ndarray:int32:2,2"),
        ({"input_ids": ("pkl", None, [b"x"])}, "pkl"),
    ],
)
def test_samples_without_arrays_of_ids_are_refused(tmp_path, columns, named):
    path = write(tmp_path / "s", columns)
    refused(lambda: tl.open(path), tl.ConfigError, path, named)


@pytest.mark.parametrize(
    "cell",
    [
        bytes([8 | 3]) + bytes(16),  # two axes
        b"\x07",  # shorter than its head
        bytes([4]) + b"\x02" + bytes(4),  # one value of two
        bytes([7]) + b"\xff" * 8 + bytes(4),  # a negative length
    ],
    ids=["axes", "short", "fewer", "negative"],
)
def test_an_array_that_is_not_what_it_says_is_damage(tmp_path, cell):
    columns = {"input_ids": ("ndarray:int32", None, [array([1, 2]), cell])}
    refused(lambda: tl.open(write(tmp_path / "s", columns)), tl.StoreCorrupt, "a.mds", "input_ids")


def test_columns_that_differ_in_length_or_between_files_are_damage(tmp_path):
    two = {
        "input_ids": [np.array([1, 2], "<i4"), np.array([3], "<i4")],
        "loss_mask": [np.array([1, 0], "u1"), np.array([1, 1], "u1")],
    }
    refused(lambda: tl.open(write_mds(tmp_path / "a", two)), tl.StoreCorrupt, "loss_mask")
    path = write_mds(tmp_path / "b", {"input_ids": two["input_ids"]}, files=2)
    changed(path, column_encodings=["ndarray:uint16"])
    refused(lambda: tl.open(path), tl.StoreCorrupt, "index.json", "columns")
    path = write_mds(tmp_path / "c", {"input_ids": two["input_ids"]})
    index = json.loads((path / "index.json").read_text())
    for change, named in (({"version": 1}, 1), ({"shards": {}}, "shards")):
        (path / "index.json").write_text(json.dumps(index | change))
        refused(lambda path=path: tl.open(path), tl.StoreCorrupt, "index.json", named)
    twice = [*index["shards"], *index["shards"]]
    (path / "index.json").write_text(json.dumps(index | {"shards": twice}))
    refused(lambda: tl.open(path), tl.StoreCorrupt, "index.json", "shard.00000.mds", "twice")
    for text in ("{", "[" * 100_000):
        (path / "index.json").write_text(text)
        refused(lambda path=path: tl.open(path), tl.TokenloomError, path)


@pytest.mark.parametrize("size", [0, 1])
def test_samples_whose_columns_do_not_fill_them_are_damage(tmp_path, size):
    columns = {"input_ids": ids(), "flag": ("uint8", 1, [b"1"] * 3)}
    path = write(tmp_path / "s", columns)
    sizes = [None, 2] if size else [None, None]
    changed(path, column_sizes=sizes)
    refused(lambda: tl.open(path), tl.StoreCorrupt, "a.mds", "sample")


def packed(folder, change=lambda raw: raw, name="a.mds.zstd", compression="zstd:3"):
    raw = (folder / "a.mds").read_bytes()
    (folder / "a.mds").unlink()
    (folder / name).write_bytes(change(zstandard.compress(raw)))
    return changed(folder, compression=compression, zip_data={"basename": "a.mds.zstd", "bytes": 1})


def test_compressed_files_are_opened_and_never_believed(tmp_path):
    def made(name):
        return write(tmp_path / name, {"input_ids": ids()})

    assert documents_of(tl.open(packed(made("a")), vocab_size=9)) == DOCUMENTS
    path = packed(made("b"), lambda raw: raw[:-9])
    refused(lambda: tl.open(path), tl.StoreCorrupt, "a.mds.zstd")
    path = packed(made("c"), lambda raw: b"no zstd")
    refused(lambda: tl.open(path), tl.StoreCorrupt, "a.mds.zstd")
    path = packed(made("d"), lambda raw: zstandard.compress(bytes(1 << 16)))
    refused(lambda: tl.open(path), tl.StoreCorrupt, "a.mds.zstd")
    path = packed(made("e"), compression="br:1")
    refused(lambda: tl.open(path), tl.ConfigError, "index.json", "'br'")
    path = packed(made("f"), name="elsewhere")
    refused(lambda: tl.open(path), tl.StoreCorrupt, "index.json", "a.mds")
    path = made("g")
    (path / "a.mds").unlink()
    refused(lambda: tl.open(path), tl.StoreCorrupt, "a.mds")
    path = made("h")
    with (path / "a.mds").open("ab") as file:
        file.write(b"more")
    refused(lambda: tl.open(path), tl.StoreCorrupt, "a.mds")


def test_a_table_of_samples_that_leads_out_of_the_file_is_damage(tmp_path):
    path = write(tmp_path / "s", {"input_ids": ids()})
    right = (path / "a.mds").read_bytes()
    for place, value in ((0, 4), (0, 2), (4, 1), (8, 1 << 30), (16, 17)):
        raw = bytearray(right)
        raw[place : place + 4] = struct.pack("<I", value)
        (path / "a.mds").write_bytes(raw)
        refused(lambda: tl.open(path), tl.StoreCorrupt, "a.mds")
    changed(path, samples=1 << 30)
    refused(lambda: tl.open(path), tl.StoreCorrupt, "a.mds")


# -- LitData -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"compression": "zstd"}, "compression"),
        ({"encryption": "rsa"}, "encryption"),
        ({"data_format": ["pickle"]}, "pickle"),
        ({"data_format": ["no_header_tensor:1"]}, "no_header_tensor:1"),
        ({"data_format": ["no_header_tensor:16", "int"]}, "int"),
    ],
)
def test_litdata_of_other_samples_is_refused(tmp_path, config, named):
    write_litdata(tmp_path / "s", DOCUMENTS, **config)
    refused(lambda: tl.open(tmp_path / "s"), tl.ConfigError, tmp_path / "s", named)


def litdata_index(folder, change):
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.update(config=None),
        lambda index: index["chunks"][0].update(filename="../x"),
        lambda index: index["chunks"][0].update(chunk_size=-1),
        lambda index: index["chunks"][0].update(chunk_bytes=9),
        lambda index: index["chunks"][0].update(filename="none.bin"),
        lambda index: index.update(chunks=[*index["chunks"]] * 2),
    ],
)
def test_a_litdata_index_that_cannot_be_right_is_damage(tmp_path, change):
    write_litdata(tmp_path / "s", DOCUMENTS)
    litdata_index(tmp_path / "s", change)
    refused(lambda: tl.open(tmp_path / "s"), tl.StoreCorrupt, tmp_path / "s")


@pytest.mark.parametrize("bare", [True, False])
def test_litdata_samples_that_are_no_arrays_are_damage(tmp_path, bare):
    write_litdata(tmp_path / "s", DOCUMENTS, bare=bare)
    path = next((tmp_path / "s").glob("chunk-*"))
    raw = bytearray(path.read_bytes())
    if bare:
        raw[8:12] = struct.pack("<I", struct.unpack("<I", raw[8:12])[0] + 1)
    else:
        raw[20:24] = struct.pack("<I", 99)  # the head of the first sample
    path.write_bytes(raw)
    refused(lambda: documents_of(tl.open(tmp_path / "s")), tl.StoreCorrupt, path.name)


# -- rows ----------------------------------------------------------------------------------------

ROWS = {"input_ids": DOCUMENTS}
ONES = [[1] * len(one) for one in DOCUMENTS]


def rows(tmp_path, columns, *, name="rows.parquet"):
    pq.write_table(pa.table(columns), tmp_path / name)
    return tmp_path / name


@pytest.mark.parametrize(
    ("columns", "kind", "named"),
    [
        ({"text": ["a"]}, tl.ConfigError, "text"),
        ({"input_ids": [1, 2]}, tl.ConfigError, "input_ids"),
        (
            ROWS | {"loss_mask": [["a"] * len(one) for one in DOCUMENTS]},
            tl.ConfigError,
            "loss_mask",
        ),
        (
            ROWS | {"loss_mask": ONES, "labels": DOCUMENTS},
            tl.ConfigError,
            "labels",
        ),
        (ROWS | {"attention_mask": [[1, 1, 0], [1], [1, 1]]}, tl.ConfigError, "attention_mask"),
        (ROWS | {"labels": [[2, 3, -100], [-100], [6, -100]]}, tl.ConfigError, "labels"),
        (ROWS | {"loss_mask": [[1], [1], [1, 1]]}, tl.StoreCorrupt, "loss_mask"),
        ({"input_ids": [[1], None]}, tl.StoreCorrupt, "row 1"),
        ({"input_ids": [[1], [2, None]]}, tl.StoreCorrupt, "input_ids"),
    ],
)
def test_rows_that_are_no_documents_are_refused(tmp_path, columns, kind, named):
    path = rows(tmp_path, columns)
    refused(lambda: documents_of(tl.open(path, vocab_size=9)), kind, path, named)


@pytest.mark.parametrize("kind", [pa.bool_(), pa.uint8(), pa.float32()])
def test_masks_of_rows_have_any_kind_of_numbers(tmp_path, kind):
    name = "loss_weights" if kind == pa.float32() else "loss_mask"
    values = [[n % 2 == 0 for n in range(len(one))] for one in DOCUMENTS]
    column = pa.array([[float(v) if kind == pa.float32() else v for v in one] for one in values])
    path = rows(tmp_path, ROWS | {name: column.cast(pa.list_(kind))})
    store = tl.open(path, vocab_size=9)
    assert [store.document(n, name).tolist() for n in range(3)] == values


@pytest.mark.parametrize(
    "other", [{"tokens": DOCUMENTS}, {"input_ids": [1, 2, 3]}], ids=["missing", "no list"]
)
def test_files_of_rows_that_differ_in_their_columns_are_damage(tmp_path, other):
    rows(tmp_path, ROWS, name="a.parquet")
    rows(tmp_path, other, name="b.parquet")
    refused(lambda: tl.open(tmp_path, vocab_size=9), tl.StoreCorrupt, "b.parquet", "input_ids")


def saved(folder, **state):
    """A dataset saved to a folder, as `datasets` does."""
    folder.mkdir()
    table = pa.table(ROWS)
    with pa.ipc.new_stream(folder / "data.arrow", table.schema) as file:
        file.write_table(table)
    told = {"_data_files": [{"filename": "data.arrow"}]} | state
    (folder / "state.json").write_text(json.dumps(told))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_a_saved_dataset_is_its_list_of_files(tmp_path):
    assert documents_of(tl.open(saved(tmp_path / "s"), vocab_size=9)) == DOCUMENTS


@pytest.mark.parametrize(
    ("state", "kind", "named"),
    [
        ({"_indices_files": [{"filename": "i.arrow"}]}, tl.ConfigError, "_indices_files"),
        ({"_data_files": [{"filename": "../data.arrow"}]}, tl.StoreCorrupt, "state.json"),
        ({"_data_files": [{}]}, tl.StoreCorrupt, "state.json"),
        ({"_data_files": [{"filename": "data.arrow"}] * 2}, tl.StoreCorrupt, "data.arrow"),
        ({"_data_files": [{"filename": "lost.arrow"}]}, tl.StoreCorrupt, "lost.arrow"),
    ],
)
def test_a_saved_dataset_that_cannot_be_read_in_place_is_refused(tmp_path, state, kind, named):
    path = saved(tmp_path / "s", **state)
    refused(lambda: tl.open(path), kind, path, named)


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000])
def test_a_list_of_files_that_is_no_json_object_is_damage(tmp_path, text):
    path = saved(tmp_path / "s")
    (path / "state.json").write_text(text)
    refused(lambda: tl.open(path), tl.StoreCorrupt, "state.json")


def test_several_splits_are_not_guessed(tmp_path):
    path = saved(tmp_path / "s")
    (path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    refused(lambda: tl.open(path), tl.ConfigError, path, "train")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_a_file_that_arrow_cannot_read_is_damage(tmp_path, name):
    path = saved(tmp_path / "s") / "data.arrow" if name == "rows.arrow" else rows(tmp_path, ROWS)
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 :] = bytes(len(raw) - len(raw) // 2)
    path.write_bytes(raw)
    refused(lambda: documents_of(tl.open(path, vocab_size=9)), tl.StoreCorrupt, path)
