"""Ruling 17: the digest is made of documents, and of nothing that is not content."""

import itertools

import numpy as np
import pytest
from crashdisk import mix
from hypothesis import given, settings
from hypothesis import strategies as st
from quickfolder import quick_folder
from slowhash import slow_digest, slow_hash
from toystore import random_shards, toy

import tokenloom as tl
from tokenloom.testing import write_flat

COLUMNS = {
    "loss_mask": ("uint8", lambda ids: ids % 2),
    "loss_weights": ("float32", lambda ids: ids / 8),
    "part": ("int8", lambda ids: ids % 7 - 3),
    "heat": ("float64", lambda ids: ids / 3),
}


def cut(shards, *places):
    """The same documents in other shards."""
    documents = list(itertools.chain(*shards))
    edges = [0, *places, len(documents)]
    return [documents[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(st.lists(st.integers(0, (1 << 31) - 1) | st.integers(0, 9), max_size=12)))
def test_hashes_of_documents_are_those_of_the_rule(documents):
    """16-bit ids where all ids of the document fit; [0] and [0, 0], [65536] and [0, 1] differ."""
    documents += [[], [0], [0, 0], [65_536], [0, 1], [65_535]]
    with quick_folder() as folder:
        store = toy(folder / "s", [documents], vocab_size=1 << 31)
        found = store.document_hashes(range(len(documents)))
    assert found == [slow_hash(one).hex() for one in documents]


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


@pytest.mark.parametrize("places", [(1,), (5, 5, 30)])
def test_neither_shards_nor_dtype_nor_chunks_decide_a_digest(tmp_path, places):
    shards = random_shards(2)
    expected = slow_digest(list(itertools.chain(*shards)))
    for number, options in enumerate(
        [{}, {"vocab_size": 100_000}, {"inner": 64}, {"chunk_tokens": 128}]
    ):
        store = toy(tmp_path / str(number), cut(shards, *places), **options)
        assert store.digest == expected, options
        assert store.verify().ok


@pytest.mark.parametrize("count", [65_536, 65_537])
def test_groups_are_65_536_documents(tmp_path, count):
    lengths = np.array([mix(i) % 3 for i in range(count)])
    ids = np.array([mix(i, 1) % 900 for i in range(int(lengths.sum()))])
    edges = np.cumsum([0, *lengths])
    documents = [ids[a:b].tolist() for a, b in itertools.pairwise(edges)]
    store = write_flat(tmp_path / "s", ids, lengths, vocab_size=1000)
    assert store.digest == slow_digest(documents)


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
    return tl.build(some, path, progress=False, **{**settings, **options})


def test_a_store_that_grew_has_the_digest_of_one_built_at_once():
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
        assert once.digest == digest_of(some)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.integers(0, 70_000), max_size=20), max_size=10), st.data())
def test_any_documents_in_any_shards_have_the_digest_of_the_rule(documents, data):
    places = data.draw(st.lists(st.integers(0, len(documents)), max_size=3).map(sorted))
    with quick_folder() as folder:
        store = toy(folder / "s", cut([documents], *places), vocab_size=70_001)
        assert store.digest == slow_digest(documents)
