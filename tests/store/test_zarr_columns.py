"""The payload opens unchanged in zarr-python and TensorStore, and is the raw array."""

import json

import numpy as np
import pytest
import tensorstore as ts
import zarr as zarr_python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slowhash import slow_column, slow_hash
from toystore import random_shards, write_store

import tokenloom as tl

MASK = {
    "loss_mask": ("uint8", lambda ids: ids % 2),
    "loss_weights": ("float32", lambda ids: ids / 8),
    "flag": ("bool", lambda ids: ids % 3 == 0),
}


def open_both(folder):
    by_zarr = zarr_python.open_array(str(folder), mode="r")[:]
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(folder)}}
    by_tensorstore = ts.open(spec, open=True, read=True).result().read().result()
    return np.asarray(by_zarr), np.asarray(by_tensorstore)


def words(digests):
    """Canonical digests as they are stored: two uint64 each, the low word first."""
    pairs = [(int.from_bytes(one[8:]), int.from_bytes(one[:8])) for one in digests]
    return np.array(pairs, np.uint64).reshape(-1)


@pytest.mark.parametrize("vocab", [1000, 100_000])
@pytest.mark.parametrize("inner", [16, 32_768])
def test_every_column_opens_in_zarr_python_and_tensorstore(tmp_path, vocab, inner):
    shards = random_shards(1, vocab=vocab)
    write_store(tmp_path / "s", shards, vocab_size=vocab, inner=inner, columns=MASK)
    for number, documents in enumerate(shards):
        flat = np.array([t for d in documents for t in d])
        ends = np.cumsum([0, *[len(d) for d in documents]])
        expected = {"input_ids": flat, "offsets": ends}
        expected |= {name: make(flat).astype(dtype) for name, (dtype, make) in MASK.items()}
        lengths = np.diff(ends)
        expected["doc_hash"] = words(map(slow_hash, documents))
        pieces = {name: np.split(expected[name], ends[1:-1]) for name in sorted(MASK)}
        expected["column_hash"] = words(
            slow_column(name, pieces[name][i].tolist())
            for i in range(len(lengths))
            for name in pieces
        )
        for name in ("loss_mask", "loss_weights"):
            counted = np.cumsum([0, *(expected[name] != 0)])
            edges = [*range(0, len(flat), 1024), len(flat)]
            expected[f"{name}_counts"] = counted[edges]
        for name, values in expected.items():
            for got in open_both(tmp_path / "s" / f"shard-{number:05d}" / name):
                assert np.array_equal(got, values), name


def test_every_column_of_a_build_opens_whatever_it_is_for(tmp_path):
    rows = [{"input_ids": [i, 7], "loss_mask": [0, 1], "id": i} for i in range(500)]
    store = tl.build(rows, tmp_path / "s", tokenizer=None, vocab_size=500)
    columns = json.loads((store.path / "shard-00000/shard.json").read_bytes())["columns"]
    assert {"id_index", "page_crc32c", "loss_mask_counts", "column_hash"} <= columns.keys()
    for name, column in columns.items():
        by_zarr, by_tensorstore = open_both(tmp_path / "s/shard-00000" / name)
        assert by_zarr.dtype == by_tensorstore.dtype == column["dtype"]
        assert len(by_zarr) == column["length"]
        np.testing.assert_array_equal(by_zarr, by_tensorstore)


def test_the_token_payload_is_the_raw_little_endian_array_in_front_of_the_index(tmp_path):
    shards = random_shards(2, shards=1)
    write_store(tmp_path / "s", shards)
    flat = np.array([t for d in shards[0] for t in d])
    raw = np.fromfile(tmp_path / "s/shard-00000/input_ids/c/0", "<u2")
    assert np.array_equal(raw[: len(flat)], flat)
    assert not raw[len(flat) : -(-len(flat) // 16) * 16].any()


def test_a_shard_of_empty_documents_opens_too(tmp_path):
    write_store(tmp_path / "s", [[[], []]])
    for got in open_both(tmp_path / "s/shard-00000/input_ids"):
        assert len(got) == 0
    for got in open_both(tmp_path / "s/shard-00000/offsets"):
        assert got.tolist() == [0, 0, 0]


def test_the_crc_column_holds_one_checksum_for_each_inner_chunk(tmp_path):
    import google_crc32c

    store = write_store(tmp_path / "s", random_shards(3, shards=1))
    folder = tmp_path / "s/shard-00000"
    ids = (folder / "input_ids/c/0").read_bytes()
    chunks = -(-store.num_tokens // 16)
    expected = [google_crc32c.value(ids[i * 32 : (i + 1) * 32]) for i in range(chunks)]
    for got in open_both(folder / "crc32c"):
        assert got[:chunks].tolist() == expected


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.integers(0, 999), max_size=50), min_size=1, max_size=8))
def test_any_documents_read_back_equal_through_zarr_python(tmp_path_factory, documents):
    root = tmp_path_factory.mktemp("any")
    write_store(root, [documents])
    got = zarr_python.open_array(str(root / "shard-00000/input_ids"), mode="r")[:]
    assert got.tolist() == [t for d in documents for t in d]
