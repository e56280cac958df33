"""Files of rows and samples that others wrote, opened in place; and damaged ones, refused."""

import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from everyformat import EVERY
from exports import plain_store, same
from foreignfiles import write_litdata
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from toystore import toy

import tokenloom as tl
from tokenloom.exchange import export

ROWS = {
    "input_ids": [[1, 2, 3], [], [4, 5], [6]],
    "labels": [[-100, 2, 3], [], [4, -100], [6]],
    "attention_mask": [[1, 1, 1], [], [1, 1], [1]],
    "url": ["a", "b", None, "d"],
}
MASK = [[0, 1, 1], [], [1, 0], [1]]
OTHERS = {
    name: EVERY[name]
    for name in ("a saved dataset", "arrow as a stream", "mds, compressed", "litdata, coded")
}


def table(rows=ROWS, **types):
    return pa.table({name: pa.array(values, types.get(name)) for name, values in rows.items()})


def write_arrow(path, of, *, stream=False, batch=2):
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(path, of.schema) as writer:
        for one in of.to_batches(max_chunksize=batch):
            writer.write_batch(one)


def check(store, ids=ROWS["input_ids"], mask=MASK):
    assert same(store.documents(range(len(store))), ids)
    assert same(store.documents(range(len(store)), "loss_mask"), mask)
    assert [store.metadata(i).get("url") for i in range(4)] == ROWS["url"]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
@pytest.mark.parametrize("inner", [pa.int64(), pa.int32(), pa.uint16()])
def test_parquet_rows_open_with_labels_as_a_mask_and_the_rest_as_metadata(tmp_path, kind, inner):
    pq.write_table(table(input_ids=kind(inner)), tmp_path / "a.parquet", row_group_size=2)
    check(tl.open(tmp_path / "a.parquet"))
    check(tl.open(tmp_path))  # the folder of it


@pytest.mark.parametrize("stream", [False, True])
def test_arrow_files_open_with_and_without_a_footer(tmp_path, stream):
    write_arrow(tmp_path / "a.arrow", table(), stream=stream)
    check(tl.open(tmp_path / "a.arrow"))


def test_files_of_a_folder_follow_each_other_in_order_of_name(tmp_path):
    for number, part in enumerate((table().slice(0, 1), table().slice(1))):
        pq.write_table(part, tmp_path / f"part-{number}.parquet")
    check(tl.open(tmp_path))
    one = tl.open(tmp_path)
    pq.write_table(table(), tmp_path.with_suffix(".parquet"))
    assert one.digest == tl.open(tmp_path.with_suffix(".parquet")).digest


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "changed", [{"input_ids": None}, {"labels": None}, {"labels": ["a", "b", "c", "d"]}]
)
def test_files_with_other_columns_than_the_first_are_refused(tmp_path, suffix, changed):
    other = {name: values for name, values in {**ROWS, **changed}.items() if values is not None}
    for name, rows in (("a", ROWS), ("b", other)):
        if suffix == "parquet":
            pq.write_table(table(rows), tmp_path / f"{name}.parquet")
        else:
            write_arrow(tmp_path / f"{name}.arrow", table(rows))
    refused(lambda: tl.open(tmp_path), tl.StoreCorrupt, f"b.{suffix}", *changed)


@pytest.mark.parametrize("stream", [False, True])
def test_a_column_name_that_is_no_text_is_damage(tmp_path, stream):
    path = tmp_path / "a.arrow"
    write_arrow(path, table(), stream=stream)
    path.write_bytes(path.read_bytes().replace(b"url", b"u\xffl"))
    refused(lambda: tl.open(path), tl.StoreCorrupt, path)


def test_a_dataset_that_was_saved_opens_without_the_library(tmp_path):
    import datasets

    rows = datasets.Dataset.from_dict(ROWS)
    rows.save_to_disk(tmp_path / "saved", num_shards=2)
    check(tl.open(tmp_path / "saved"))
    datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(tmp_path / "splits")
    check(tl.open(tmp_path / "splits/train"))
    refused(lambda: tl.open(tmp_path / "splits"), tl.ConfigError, "train", "test")
    rows.to_parquet(tmp_path / "rows.parquet")
    assert tl.open(tmp_path / "rows.parquet").digest == tl.open(tmp_path / "saved").digest


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ({"text": ["a"]}, "text"),
        ({"input_ids": [1, 2]}, "int64"),
        ({"input_ids": [["a"]]}, "string"),
        ({"input_ids": [[1], None]}, "row 1"),
        ({"input_ids": [[1, None]]}, "null"),
        ({"input_ids": [[1, -2]]}, -2),
        ({"input_ids": [[1, 2]], "labels": [[2, 3]]}, "labels"),
        ({"input_ids": [[1, 2]], "attention_mask": [[1, 0]]}, "padded"),
        ({"input_ids": [[1, 2]], "loss_mask": [[1]]}, "loss_mask"),
        ({"input_ids": [[1]], "loss_mask": [[1]], "labels": [[1]]}, "loss_mask and labels"),
    ],
)
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_rows_that_cannot_be_documents_are_refused(tmp_path, form, rows, named):
    path = tmp_path / f"a.{form}"
    (pq.write_table if form == "parquet" else lambda t, p: write_arrow(p, t))(table(rows), path)
    refused(lambda: tl.open(path), (tl.ConfigError, tl.StoreCorrupt), path, named)


def test_a_saved_dataset_that_names_other_files_is_refused(tmp_path):
    write_arrow(tmp_path / "a.arrow", table(), stream=True)
    state = tmp_path / "state.json"
    for name in ("../a.arrow", "/etc/passwd", "missing.arrow", None):
        state.write_text(json.dumps({"_data_files": [{"filename": name}]}))
        refused(lambda: tl.open(tmp_path), tl.StoreCorrupt)
    state.write_text('{"_data_files": [], "_indices_files": [{}]}')
    refused(lambda: tl.open(tmp_path), tl.ConfigError)


# -- samples ---------------------------------------------------------------------------------


def mds_of(tmp_path, *, packed=False, **options):
    store = plain_store(tmp_path / "s", empty=False, **options)
    export(store, tmp_path / "mds", to="mds")
    if packed:
        index = json.loads((tmp_path / "mds/index.json").read_text())
        for shard in index["shards"]:
            name = shard["raw_data"]["basename"]
            raw = (tmp_path / "mds" / name).read_bytes()
            (tmp_path / "mds" / name).unlink()
            (tmp_path / "mds" / f"{name}.zstd").write_bytes(zstandard.compress(raw))
            shard["zip_data"] = {"basename": f"{name}.zstd", "bytes": 0, "hashes": {}}
            shard["compression"] = "zstd:3"
        (tmp_path / "mds/index.json").write_text(json.dumps(index))
    return store


def test_compressed_mds_opens_with_the_same_digest(tmp_path):
    store = mds_of(tmp_path, packed=True)
    assert tl.open(tmp_path / "mds").digest == store.digest


def test_mds_of_another_kind_is_refused_with_the_reason(tmp_path):
    mds_of(tmp_path)
    path = tmp_path / "mds/index.json"
    index = json.loads(path.read_text())
    gone, packed = {"basename": "gone.mds", "bytes": 9}, {"basename": "shard.00000.mds", "bytes": 9}
    for changes, named in (
        ({"column_encodings": ["bytes"]}, "dtype"),
        ({"column_encodings": ["pkl"]}, "'pkl'"),
        ({"column_names": ["text"]}, "text"),
        ({"raw_data": {"basename": "../a", "bytes": 1}}, "index.json"),
        ({"samples": "many"}, "index.json"),
        ({"samples": 99}, 99),
        ({"raw_data": {"basename": "shard.00000.mds", "bytes": 7}}, 7),
        ({"raw_data": gone}, "gone.mds"),
        ({"raw_data": gone, "zip_data": packed, "compression": "br:11"}, "'br'"),
        ({"raw_data": gone, "zip_data": packed, "compression": "zstd"}, "shard.00000.mds"),
    ):
        shard = {**index["shards"][0], **changes}
        path.write_text(json.dumps({**index, "shards": [shard]}))
        refused(lambda: tl.open(tmp_path / "mds"), (tl.ConfigError, tl.StoreCorrupt), named)
    path.write_text(json.dumps({**index, "version": 1}))
    refused(lambda: tl.open(tmp_path / "mds"), tl.StoreCorrupt, "version", 1)


def test_a_bomb_is_not_unpacked(tmp_path):
    mds_of(tmp_path, packed=True)
    path = tmp_path / "mds/shard.00000.mds.zstd"
    path.write_bytes(zstandard.compress(bytes(1 << 28)))
    refused(lambda: tl.open(tmp_path / "mds"), tl.StoreCorrupt, path.name)


@pytest.mark.parametrize("bare", [True, False])
def test_litdata_chunks_open(tmp_path, bare):
    documents = [[1, 2, 3], [], [4]]
    write_litdata(tmp_path / "a", documents, bare=bare)
    store = tl.open(tmp_path / "a")
    assert same(store.documents(range(3)), documents)
    assert store.digest == toy(tmp_path / "s", [documents]).digest


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"compression": "zstd"}, "zstd"),
        ({"encryption": {"level": "chunk"}}, "encryption"),
        ({"data_format": ["pickle"]}, "pickle"),
        ({"data_format": ["no_header_tensor:16", "int"]}, "int"),
    ],
)
def test_litdata_of_another_kind_is_refused_with_the_reason(tmp_path, config, named):
    write_litdata(tmp_path / "a", [[1]], **config)
    refused(lambda: tl.open(tmp_path / "a"), tl.ConfigError, named)


# -- damage ----------------------------------------------------------------------------------


def spoiled(folder, seed):
    """One file of a folder with a byte changed, cut off, or put in between."""
    rng = np.random.Generator(np.random.PCG64(seed))
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.name != "export.json")
    path = files[int(rng.integers(len(files)))]
    raw = bytearray(path.read_bytes())
    place = int(rng.integers(max(1, len(raw))))
    how = int(rng.integers(3))
    if how == 0:
        raw[place] ^= 1 << int(rng.integers(8))
    elif how == 1:
        del raw[place:]
    else:
        raw[place:place] = rng.integers(0, 256, 5).astype(np.uint8).tobytes()
    before = path.stat()
    path.write_bytes(raw)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


@settings(max_examples=15)
@given(seed=st.integers(0, 1 << 30))
@pytest.mark.parametrize("to", ["parquet", "mds", "npy", "arrow", "litdata", *OTHERS])
def test_damaged_files_open_or_are_refused_and_nothing_else(tmp_path_factory, to, seed):
    folder = tmp_path_factory.mktemp("d")
    documents = [[1, 2, 3], [4], [5, 6] * 40]
    if to == "arrow":
        (folder / "x").mkdir()
        write_arrow(folder / "x/a.arrow", table({"input_ids": documents}))
    elif to == "litdata":
        write_litdata(folder / "x", documents)
    elif to in OTHERS:
        (folder / "y").mkdir()
        path = OTHERS[to](folder / "y", documents)[0]
        (path if path.is_dir() else path.parent).rename(folder / "x")
    else:
        export(toy(folder / "s", [documents]), folder / "x", to=to)
    spoiled(folder / "x", seed)
    told = str(folder / "x")
    try:
        store = tl.open(folder / "x")
        store.documents(range(len(store)))
    except (tl.StoreError, tl.ConfigError) as error:
        told = str(error)
    assert str(folder / "x") in told


# -- in threads and processes ------------------------------------------------------------------


@pytest.mark.parametrize("to", ["parquet", "mds", "arrow", "litdata"])
def test_a_copy_and_threads_read_the_same(tmp_path, to):
    rng = np.random.Generator(np.random.PCG64(2))
    documents = [rng.integers(0, 900, n).tolist() for n in rng.integers(1, 50, 60)]
    if to == "arrow":
        (tmp_path / "x").mkdir()
        write_arrow(tmp_path / "x/a.arrow", table({"input_ids": documents, "n": documents}))
    elif to == "litdata":
        write_litdata(tmp_path / "x", documents, bare=False)
    else:
        export(toy(tmp_path / "s", [documents]), tmp_path / "x", to=to)
    store = tl.open(tmp_path / "x", cache_bytes=0)  # every read decodes
    again = pickle.loads(pickle.dumps(store))
    assert same(again.documents(range(60)), documents)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(store.document, [*range(60)] * 3))
        rows = list(pool.map(store.metadata, range(60)))
    assert same(found, documents * 3)
    assert len(rows) == 60
