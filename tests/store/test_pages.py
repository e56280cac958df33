"""The crc32c of every page: a few tokens are checked without the chunk around them."""

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pageread import read_pages
from toystore import random_shards, toy, write_store

import tokenloom as tl
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.derived.pages import PAGE_BYTES, PageSums, join_sums
from tokenloom.testing import FaultSource, write_flat

TOKENS = 70_000  # two chunks of the usual size and a piece: 48 pages of ids


@pytest.fixture
def store(tmp_path):
    ids = np.arange(TOKENS) % 60_000
    write_flat(tmp_path / "s", ids, np.array([30_000, 39_000, 1000]), vocab_size=60_000)
    return tl.open(tmp_path / "s", cache_bytes=1 << 20)


def payload(store, column="input_ids"):
    return store.path / "shard-00000" / column / "c/0"


def flip(path, place):
    raw = bytearray(path.read_bytes())
    raw[place] ^= 4
    path.write_bytes(raw)


@given(st.binary(max_size=3 * PAGE_BYTES), st.lists(st.integers(0, 2 * PAGE_BYTES), max_size=5))
def test_bytes_in_any_pieces_have_the_checksums_of_their_pages(raw, steps):
    sums, place = PageSums(), 0
    for step in [*steps, len(raw)]:
        sums.append(np.frombuffer(raw[place : place + step], np.uint8))
        place += step
    pages = [raw[i : i + PAGE_BYTES] for i in range(0, len(raw), PAGE_BYTES)]
    assert sums.close() == [google_crc32c.value(page) for page in pages]


@pytest.mark.parametrize("pages", [1, 2, 3, 16, 32])
def test_the_checksum_of_a_chunk_follows_from_those_of_its_pages(pages):
    raw = np.random.default_rng(pages).integers(0, 256, (7, pages, PAGE_BYTES)).astype(np.uint8)
    sums = np.array([[google_crc32c.value(page) for page in chunk] for chunk in raw], np.uint32)
    expected = [google_crc32c.value(chunk.tobytes()) for chunk in raw]
    assert join_sums(sums).tolist() == expected


@pytest.mark.parametrize("inner", [16, 100, 2048, 32_768])
@pytest.mark.parametrize("vocab", [1000, 100_000])
def test_every_page_and_chunk_of_every_plain_column_has_its_checksum(tmp_path, inner, vocab):
    columns = {"loss_mask": ("uint8", lambda ids: ids % 2)}
    shards = random_shards(4, shards=1, documents=300, longest=40)
    write_store(tmp_path / "s", shards, inner=inner, vocab_size=vocab, columns=columns)
    shard = tl.open(tmp_path / "s").reader.shard(0)
    read = tl.open(tmp_path / "s").reader.elements
    pages = read(0, "page_crc32c", 0, shard.record.columns["page_crc32c"].length)
    for name in ("input_ids", "offsets", "doc_hash", "column_hash"):
        column = shard.columns[name]
        raw = (tmp_path / "s/shard-00000" / name / "c/0").read_bytes()[: column.payload_bytes]
        parts = [raw[i : i + PAGE_BYTES] for i in range(0, len(raw), PAGE_BYTES)]
        first = column.page_first
        assert pages[first : first + len(parts)].tolist() == list(map(google_crc32c.value, parts))
        step = column.chunk_bytes
        parts = [raw[i : i + step] for i in range(0, len(raw), step)]
        assert column.crcs.tolist() == list(map(google_crc32c.value, parts))


def test_a_few_tokens_are_read_by_the_pages_they_touch(store):
    source = FaultSource(LocalSource(store.path))
    reader = tl.open(store.path, cache_bytes=1 << 20, source=source).reader
    assert read_pages(reader, 0, "input_ids", 5000, 5010).tolist() == list(range(5000, 5010))
    sums = [one for request in source.requests for one in request if "page_crc32c" in one[0]]
    assert len(sums) == 1, "the checksums of a shard are read at once"
    for low, high, pages in (
        (0, 1, 1),
        (2047, 2048, 1),
        (2047, 2049, 2),
        (2048, 4096, 1),
        (69_990, 70_000, 1),
        (10, 10, 0),
    ):
        source.requests.clear()
        found = read_pages(reader, 0, "input_ids", low, high)
        assert found.tolist() == [i % 60_000 for i in range(low, high)]
        asked = [one for request in source.requests for one in request]
        assert [size for _, _, size in asked] == ([pages * PAGE_BYTES] if pages else [])


def test_a_flipped_bit_is_found_in_its_page_and_in_no_other(store):
    flip(payload(store), 3 * PAGE_BYTES + 17)
    reader = tl.open(store.path, cache_bytes=1 << 20).reader
    with pytest.raises(tl.StoreCorrupt, match=r"input_ids/c/0: page 3 \(bytes 12,288 on\)"):
        read_pages(reader, 0, "input_ids", 3 * 2048 + 1000, 3 * 2048 + 1001)
    for page in (2, 4):
        assert len(read_pages(reader, 0, "input_ids", page * 2048, page * 2048 + 2048)) == 2048


def test_a_flipped_bit_in_the_padding_is_found_in_the_last_page(store):
    column = store.reader.shard(0).columns["offsets"]
    flip(payload(store, "offsets"), column.payload_bytes - 1)
    last = column.payload_bytes // PAGE_BYTES - 1
    with pytest.raises(tl.StoreCorrupt, match=rf"page_crc32c: page {last} of offsets|offsets/c/0"):
        tl.open(store.path).verify()


def test_a_flipped_bit_in_the_checksums_themselves_is_found(store):
    flip(payload(store, "page_crc32c"), 7)
    reader = tl.open(store.path, cache_bytes=1 << 20).reader
    with pytest.raises(tl.StoreCorrupt, match="page_crc32c/c/0: chunk 0"):
        read_pages(reader, 0, "input_ids", 0, 1)


def test_checksums_are_kept_only_as_long_as_the_cache_has_room(store):
    source = FaultSource(LocalSource(store.path))
    reader = tl.open(store.path, cache_bytes=0, source=source).reader
    for _ in range(3):
        assert read_pages(reader, 0, "input_ids", 0, 1).tolist() == [0]
    sums = [one for request in source.requests for one in request if "page_crc32c" in one[0]]
    assert len(sums) == 3


def test_verify_finds_a_page_whose_checksum_was_written_wrong(tmp_path, monkeypatch):
    right = PageSums.close

    def wrong(self):
        found = right(self)
        return [found[0] ^ 1, *found[1:]] if found else found

    monkeypatch.setattr(PageSums, "close", wrong)
    write_store(tmp_path / "s", [[[1, 2, 3]]])  # small chunks: their checksums are made apart
    monkeypatch.setattr(PageSums, "close", right)
    store = toy(tmp_path / "t", [[[1, 2, 3]]])
    assert store.verify().ok
    with pytest.raises(tl.StoreCorrupt, match=r"page_crc32c: page 0 of input_ids \(bytes 0 on\)"):
        tl.open(tmp_path / "s").verify()


def test_a_shard_without_the_checksums_of_a_column_is_refused(tmp_path):
    import hashlib
    import json

    write_store(tmp_path / "s", [[[1, 2, 3]]])
    folder = tmp_path / "s"
    record = json.loads((folder / "shard-00000/shard.json").read_bytes())
    del record["sha256"]
    record["columns"]["input_ids"]["page_first"] = 1 << 20
    sealed = fmt.seal(record)
    (folder / "shard-00000/shard.json").write_bytes(sealed)
    manifest = json.loads((folder / "manifest-000001.json").read_bytes())
    del manifest["sha256"]
    manifest["shards"][0]["sha256"] = hashlib.sha256(sealed).hexdigest()
    manifest["shards"][0]["files"]["shard.json"] = len(sealed)
    (folder / "manifest-000001.json").write_bytes(fmt.seal(manifest))
    store = tl.open(folder)
    assert store.document(0).tolist() == [1, 2, 3]
    with pytest.raises(tl.StoreCorrupt, match="page_crc32c: it has no pages of input_ids"):
        store.verify()
