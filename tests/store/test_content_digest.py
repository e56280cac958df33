"""Ruling 17: the digest is made of documents, and of nothing that is not content."""

import dataclasses
import itertools

import numpy as np
import pytest
import xxhash
from crashdisk import mix
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import QUICK, quick_folder
from slowhash import slow_column, slow_digest, slow_hash, slow_record
from toystore import random_shards, toy, write_store

import tokenloom as tl
from tokenloom.store import format as fmt
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.derived.hashes import (
    DocumentHasher,
    hash_columns,
    hash_ids,
    hex_of,
    records,
    with_digest,
)
from tokenloom.testing import write_flat

documents_of_ids = st.lists(st.lists(st.integers(0, (1 << 31) - 1), max_size=12), max_size=12)

COLUMNS = {
    "loss_mask": ("uint8", lambda ids: ids % 2),
    "loss_weights": ("float32", lambda ids: ids / 8),
    "part": ("int8", lambda ids: ids % 7 - 3),
    "heat": ("float64", lambda ids: ids / 3),
}


def flat(documents):
    return np.array([token for one in documents for token in one], np.uint32)


def sizes(documents):
    return np.array([len(one) for one in documents], np.int64)


def cut(shards, *places):
    """The same documents in other shards."""
    documents = list(itertools.chain(*shards))
    edges = [0, *places, len(documents)]
    return [documents[a:b] for a, b in itertools.pairwise(edges)]


# -- hashes --------------------------------------------------------------------------------


def test_a_hash_is_that_of_16_bit_ids_where_all_ids_of_the_document_fit():
    narrow, wide = [1, 2, 65_535], [1, 2, 65_536]
    found = hex_of(hash_ids(flat([narrow, wide]), sizes([narrow, wide])))
    assert found == [
        xxhash.xxh3_128_hexdigest(np.array(narrow, "<u2").tobytes(), seed=3),
        xxhash.xxh3_128_hexdigest(np.array(wide, "<u4").tobytes(), seed=3),
    ]


@given(documents_of_ids)
def test_hashes_of_ids_are_those_of_the_rule(documents):
    expected = [slow_hash(one).hex() for one in documents]
    assert hex_of(hash_ids(flat(documents), sizes(documents))) == expected


@given(st.lists(st.lists(st.integers(0, 65_535), max_size=9), max_size=9))
def test_hashes_do_not_depend_on_the_stored_dtype(documents):
    narrow, wide = flat(documents).astype(np.uint16), flat(documents)
    np.testing.assert_array_equal(
        hash_ids(narrow, sizes(documents)), hash_ids(wide, sizes(documents))
    )


def test_a_hash_knows_the_number_of_tokens():
    """[0] and [0, 0] are zeros, [65536] and [0, 1] the same bytes."""
    documents = [[], [0], [0, 0], [0, 0, 0], [65_536], [0, 1]]
    assert len(set(hex_of(hash_ids(flat(documents), sizes(documents))))) == len(documents)


@given(documents_of_ids, st.sampled_from(list(COLUMNS)))
def test_hashes_of_further_columns_are_those_of_the_rule(documents, name):
    dtype, make = COLUMNS[name]
    values = make(flat(documents).astype(np.int64)).astype(dtype)
    edges = np.cumsum([0, *sizes(documents)])
    found = hash_columns({name: values}, sizes(documents))[:, 0]
    expected = [slow_column(name, values[a:b].tolist()) for a, b in itertools.pairwise(edges)]
    assert hex_of(found) == [one.hex() for one in expected]


def test_a_loss_mask_of_any_dtype_has_one_hash():
    values = np.array([0, 1, 1, 0])
    found = {
        hash_columns({"loss_mask": values.astype(dtype)}, np.array([3, 1])).tobytes()
        for dtype in ("bool", "uint8", "int32", "float32")
    }
    assert len(found) == 1


@given(documents_of_ids, st.lists(st.integers(0, 9), min_size=1, max_size=30), st.booleans())
def test_documents_that_come_in_pieces_have_the_same_hashes(documents, steps, is_column):
    ids, lengths = flat(documents), sizes(documents)
    name = "loss_weights" if is_column else None
    values = ids.astype("float32") if is_column else ids
    whole = hash_columns({name: values}, lengths)[:, 0] if is_column else hash_ids(ids, lengths)
    hasher, found, place = DocumentHasher(lengths, name, values.dtype), [], 0
    for step in itertools.chain(steps, [len(ids), 0]):
        first, some = hasher.update(values[place : place + step])
        assert first == sum(map(len, found))
        found.append(some)
        place += step
    np.testing.assert_array_equal(np.concatenate(found), whole)


def test_a_record_is_the_length_the_hash_and_each_column_by_name():
    ids, mask, part = [5, 6], [1, 0], [3, -3]
    columns = {"part": np.array(part, np.int8), "loss_mask": np.array(mask, np.uint8)}
    found = hash_columns(columns, np.array([2]))
    made = records(
        np.array([2]),
        hash_ids(flat([ids]), np.array([2])),
        {"part": found[:, 1], "loss_mask": found[:, 0]},
    )
    expected = (2).to_bytes(8, "little") + slow_hash(ids)
    expected += b"loss_mask" + slow_column("loss_mask", mask) + b"part" + slow_column("part", part)
    assert made[0].tobytes() == expected
    assert slow_record(ids, {"part": part, "loss_mask": mask}) == expected


# -- the digest of a store -----------------------------------------------------------------


def test_the_digest_is_that_of_the_rule(tmp_path):
    shards = random_shards(1)
    documents = list(itertools.chain(*shards))
    assert toy(tmp_path / "bare", shards).digest == slow_digest(documents)
    store = toy(tmp_path / "columns", shards, columns=COLUMNS)
    values = {
        name: [store.document(i, name).tolist() for i in range(len(documents))] for name in COLUMNS
    }
    assert store.digest == slow_digest(documents, values)


def test_the_digest_of_no_document_is_that_of_the_number_zero(tmp_path):
    assert toy(tmp_path / "s", []).digest == toy(tmp_path / "t", [[]]).digest == slow_digest([])


@pytest.mark.parametrize("group", [1, 2, 5, 11, 12, 13, 35, 36, 37])
@pytest.mark.parametrize("places", [(), (1,), (12, 24), (5, 5, 30)])
def test_neither_shards_nor_dtype_nor_chunks_decide_a_digest(tmp_path, monkeypatch, group, places):
    """For groups of any size: 36 documents are less, just as many, or more than some groups."""
    monkeypatch.setattr(fmt, "GROUP_DOCUMENTS", group)
    shards = random_shards(2)
    expected = slow_digest(list(itertools.chain(*shards)), group=group)
    for number, options in enumerate(
        [{}, {"vocab_size": 100_000}, {"inner": 64}, {"chunk_tokens": 128}]
    ):
        store = toy(tmp_path / str(number), cut(shards, *places), **options)
        assert store.digest == expected, options
        assert store.verify().ok


@pytest.mark.parametrize("count", [65_535, 65_536, 65_537])
def test_groups_are_65_536_documents(tmp_path, count):
    lengths = np.array([mix(i) % 3 for i in range(count)])
    ids = np.array([mix(i, 1) % 900 for i in range(int(lengths.sum()))])
    edges = np.cumsum([0, *lengths])
    documents = [ids[a:b].tolist() for a, b in itertools.pairwise(edges)]
    manifest = write_flat(tmp_path / "s", ids, lengths, vocab_size=1000).reader.manifest
    assert len(manifest.groups) == -(-count // 65_536)
    assert manifest.digest == slow_digest(documents)


def test_what_is_content_decides_the_digest(tmp_path):
    base = [[[1, 2], [3], [], [4, 5, 6]]]
    others = [
        [[[1, 2], [3], [], [4, 5, 7]]],
        [[[1], [2, 3], [], [4, 5, 6]]],
        [[[3], [1, 2], [], [4, 5, 6]]],
        [[[1, 2], [3], [4, 5, 6]]],
        [[[1, 2], [3], [4, 5, 6], []]],
    ]
    columns = [
        {"loss_mask": ("uint8", lambda ids: ids % 2)},
        {"loss_mask": ("uint8", lambda ids: ids % 3 > 0)},
        {"loss_weights": ("float32", lambda ids: ids % 2)},
        {"loss_mask": COLUMNS["loss_mask"], "part": COLUMNS["part"]},
    ]
    digests = [toy(tmp_path / str(i), one).digest for i, one in enumerate([base, *others])]
    digests += [
        toy(tmp_path / f"c{i}", base, columns=some).digest for i, some in enumerate(columns)
    ]
    assert len(set(digests)) == len(digests)


def rows(count, seed=0):
    return [
        {
            "input_ids": [mix(seed, i, j) % 200 for j in range(mix(seed, i) % 30)],
            "loss_mask": [mix(seed, i, j) & 1 for j in range(mix(seed, i) % 30)],
        }
        for i in range(count)
    ]


def digest_of(some):
    return slow_digest(
        [row["input_ids"] for row in some], {"loss_mask": [row["loss_mask"] for row in some]}
    )


def build(some, path, **options):
    settings = {"tokenizer": None, "vocab_size": 200, "inner": 16, "chunk_tokens": 64}
    return tl.build(some, path, files=QUICK, **{**settings, **options})


@pytest.mark.parametrize("group", [4, 7, 65_536])
def test_a_store_that_grew_has_the_digest_of_one_built_at_once(monkeypatch, group):
    monkeypatch.setattr(fmt, "GROUP_DOCUMENTS", group)
    with quick_folder() as folder:
        some = rows(30)
        once = build(some, folder / "once", shard_tokens=100)
        for first, second in ((4, 9), (1, 7), (7, 8), (28, 29)):
            path = folder / f"grown-{first}-{second}"
            build(some[:first], path)
            build(some[first:second], path, append=True, shard_tokens=50)
            grown = build(some[second:], path, append=True)
            assert grown.digest == once.digest
            assert grown.manifest_sha256 != once.manifest_sha256
            assert grown.verify(progress=False).ok
            assert tl.open(path, snapshot=1).num_documents == first
    if group == 65_536:
        assert once.digest == digest_of(some)


def test_workers_do_not_decide_the_digest(tmp_path):
    lines = "\n".join(f'{{"text": "line {i} {"x" * (i % 40)}"}}' for i in range(400))
    (tmp_path / "in.jsonl").write_text(lines)
    digests = {
        tl.build(
            str(tmp_path / "in.jsonl"),
            tmp_path / str(workers),
            tokenizer="bytes",
            workers=workers,
            block_bytes=2000,
            shard_tokens=3000,
            files=QUICK,
        ).digest
        for workers in (1, 2, 3)
    }
    texts = [f"line {i} {'x' * (i % 40)}".encode() for i in range(400)]
    assert digests == {slow_digest([list(text) for text in texts])}


def test_an_append_reads_the_hashes_of_one_old_group_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(fmt, "GROUP_DOCUMENTS", 10)
    documents = [[i] for i in range(34)]
    older = write_store(tmp_path / "s", [documents]).reader.manifest
    asked = []

    class Counting(LocalSource):
        def read(self, ranges):
            asked.extend(ranges)
            return super().read(ranges)

    source = Counting(tmp_path / "s")
    made = with_digest(older, source, tmp_path / "s", known=older)
    assert made == older
    # chunks of two words: a document each, and the last group has four documents
    hashes = [one for one in asked if "doc_hash/c/0" in one[0]]
    assert sum(size for _, _, size in hashes) == 4 * 16
    assert not [one for one in asked if "input_ids/c/0" in one[0]]
    forged = dataclasses.replace(
        older,
        groups=("f" * 64, *older.groups[1:]),
        digest=fmt.content_digest(("f" * 64, *older.groups[1:]), 34),
    )
    again = with_digest(forged, source, tmp_path / "s", known=forged)
    assert again.groups == forged.groups, "whole groups are believed"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(0, 70_000), max_size=20), max_size=10), st.data())
def test_any_documents_in_any_shards_have_the_digest_of_the_rule(documents, data):
    places = data.draw(st.lists(st.integers(0, len(documents)), max_size=3).map(sorted))
    with quick_folder() as folder:
        store = toy(folder / "s", cut([documents], *places), vocab_size=70_001)
        assert store.digest == slow_digest(documents)


# -- verify --------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["doc_hash", "column_hash"])
def test_verify_finds_hashes_that_are_not_those_of_the_documents(tmp_path, monkeypatch, column):
    from tokenloom.store import writer

    def wrong(*arguments):
        found = right(*arguments)
        found[1:2] ^= np.uint64(1)
        return found

    name = {"doc_hash": "hash_ids", "column_hash": "hash_columns"}[column]
    right = getattr(writer, name)
    monkeypatch.setattr(writer, name, wrong)
    store = toy(tmp_path / "s", random_shards(3), columns=COLUMNS)
    with pytest.raises(tl.StoreCorrupt, match=rf"shard-00000/{column}: the hash of document 1 of"):
        store.verify()


def test_verify_finds_groups_that_are_not_those_of_the_hashes(tmp_path):
    manifest = write_store(tmp_path / "s", random_shards(3)).reader.manifest
    groups = ("e" * 64,)
    other = dataclasses.replace(
        manifest, groups=groups, digest=fmt.content_digest(groups, manifest.documents)
    )
    (tmp_path / "s/manifest-000001.json").write_bytes(fmt.seal(other))
    with pytest.raises(tl.StoreCorrupt, match=r"group 0 \(documents 0 on\) has another digest"):
        tl.open(tmp_path / "s").verify()
