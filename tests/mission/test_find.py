"""Documents by id, by hash, and those that are equal."""

import collections
import itertools

import numpy as np
import pytest
from crashdisk import mix
from hypothesis import given, settings
from hypothesis import strategies as st
from plainsource import counted, ranges_of
from quickfolder import quick_folder
from refusals import refused
from slowhash import slow_hash
from toystore import random_shards, toy

import tokenloom as tl
from tokenloom.testing import tiny

ids = st.one_of(
    st.text(max_size=4),
    st.integers(-9, 9),
    st.floats(-4, 4).map(lambda x: round(x * 2) / 2),
    st.booleans(),
    st.sampled_from([2**70, -(2**70), "7", 7, 7.0, "7.0", "", '"', "\\", "é", "true"]),
)


def build(rows, path, **options):
    settings = {"tokenizer": "bytes", "inner": 64, "shard_tokens": 200, "chunk_tokens": 128}
    return tl.build(rows, path, progress=False, **{**settings, **options})


def same(a, b):
    """Whether two ids are one: text is text, a number is a number, true is neither."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return isinstance(a, str) == isinstance(b, str) and a == b


# -- ids -----------------------------------------------------------------------------------


@settings(max_examples=12)
@given(st.lists(st.none() | ids, max_size=30), st.lists(ids, max_size=5))
def test_find_gives_all_documents_of_an_id_and_no_other(stored, others):
    rows = [
        {"text": "x" * (i % 30)} | ({} if v is None else {"id": v}) for i, v in enumerate(stored)
    ]
    with quick_folder() as folder:
        store = build([*rows, {"text": "last"}], folder / "s")
        for wanted in [*(v for v in stored if v is not None), *others]:
            expected = [i for i, v in enumerate(stored) if v is not None and same(v, wanted)]
            found = store.find(wanted)
            assert found.dtype == np.int64
            assert found.tolist() == expected, wanted
        assert store.verify(progress=False).ok


def test_an_id_is_found_wherever_its_key_stands_and_whatever_it_is_called(tmp_path):
    rows = [{"text": "a", "url": "u", "id": "x"}, {"id": "y", "text": "b"}, {"text": "c"}]
    assert build(rows, tmp_path / "own").find("x").tolist() == [0]
    named = [{"text": "a", "name": "x", "id": "other"}, {"text": "b", "name": "y", "id": "x"}]
    store = build(named, tmp_path / "named", id_key="name")
    assert [store.metadata(i)["id"] for i in range(2)] == ["x", "y"]
    assert [store.find(name).tolist() for name in ("x", "y", "other")] == [[0], [1], []]
    nested = [{"text": "a", "more": {"id": "x"}, "say": '"id":"x"'}]
    assert build(nested, tmp_path / "nested").find("x").tolist() == []


def test_an_id_in_place_of_a_number_names_find(tmp_path):
    store = build([{"text": "a", "id": "x"}], tmp_path / "s")
    for asked in (store.document, store.metadata):
        refused(lambda asked=asked: asked("x"), TypeError, "'x'", "store.find('x')")


def test_a_store_without_ids_finds_none(tmp_path):
    store = build([{"text": "a"}], tmp_path / "s")
    assert store.find("a").tolist() == []
    assert toy(tmp_path / "t", random_shards(1)).find(7).tolist() == []


def test_ids_are_found_across_shards_and_appends(tmp_path):
    rows = [{"text": "x" * 40, "id": f"d{i % 7}"} for i in range(40)]
    build(rows[:25], tmp_path / "s")
    store = build(rows[25:], tmp_path / "s", append=True)
    assert len(list((tmp_path / "s").glob("shard-*"))) > 3
    for name in range(7):
        assert store.find(f"d{name}").tolist() == list(range(name, 40, 7))


@pytest.mark.parametrize(
    "wanted", [None, ["a"], {"a": 1}, b"a", 1j, float("nan"), float("inf")], ids=repr
)
def test_what_is_no_id_is_refused(tmp_path, wanted):
    store = build([{"text": "a", "id": "a"}], tmp_path / "s")
    refused(lambda: store.find(wanted), tl.ConfigError, "found")
    refused(lambda: store.find("a", hash="0" * 8), tl.ConfigError, "find")


@pytest.mark.parametrize("count", [1, 160, 161, 5000])
def test_a_look_up_reads_one_page_or_two_of_a_shard(tmp_path, count):
    rows = [{"input_ids": [1], "id": f"document number {i}"} for i in range(count)]
    path = tmp_path / "s"
    build(rows, path, tokenizer=None, vocab_size=2, shard_tokens=1 << 20)
    source = counted(path)
    opened = tl.open(path, source=source, cache_bytes=0)
    opened.find("nowhere")  # the shard is open
    reads = collections.Counter()
    wanted = range(count) if count < 1000 else [mix(i) % count for i in range(200)]
    for number in wanted:
        source.requests.clear()
        assert opened.find(f"document number {number}").tolist() == [number]
        asked = ranges_of(source, "")
        assert all("id_index/c/0" in name and size == 4096 for name, _, size in asked)
        reads[len(asked)] += 1
    assert set(reads) <= {1, 2}
    assert reads[1] > 0.9 * sum(reads.values())


def test_thousands_of_documents_of_one_id_are_all_found(tmp_path):
    many = 1033
    rows = [{"input_ids": [1], "id": "same" if i % 3 else i} for i in range(3 * many // 2)]
    store = build(rows, tmp_path / "s", tokenizer=None, vocab_size=2, shard_tokens=1 << 20)
    assert store.find("same").tolist() == [i for i in range(len(rows)) if i % 3]
    for i in range(0, len(rows), 33):
        assert store.find(i).tolist() == ([] if i % 3 else [i])
    assert store.verify(progress=False).ok


# -- hashes --------------------------------------------------------------------------------


def test_find_by_hash_gives_the_documents_with_these_tokens(tmp_path):
    shards = [[[1, 2], [3], [], [1, 2]], [[3], [70_000, 1], [1, 2]]]
    store = toy(tmp_path / "s", shards, vocab_size=70_001)
    documents = list(itertools.chain(*shards))
    for tokens in documents:
        text = slow_hash(tokens).hex()
        expected = [i for i, one in enumerate(documents) if one == tokens]
        for digits in (text, text.upper(), text[:8], text[:16], text[:17]):
            assert store.find(hash=digits).tolist() == expected
    assert store.find(hash="0" * 32).tolist() == []
    assert store.reads.bytes == 0
    assert store.document_hashes([6, 5]) == [slow_hash(documents[i]).hex() for i in (6, 5)]
    assert store.document_hashes([]) == []


@pytest.mark.parametrize("digits", ["", "0" * 7, "0" * 33, "g" * 8, "0x000000"])
def test_digits_that_are_no_hash_are_refused(tmp_path, digits):
    for shards in ([], [[[1]]]):
        store = toy(tmp_path / str(len(shards)), shards)
        refused(lambda store=store: store.find(hash=digits), tl.ConfigError, "hash", repr(digits))


# -- duplicates ----------------------------------------------------------------------------


def slow_duplicates(documents):
    places = collections.defaultdict(list)
    for i, one in enumerate(documents):
        places[tuple(one)].append(i)
    return sorted(group for group in places.values() if len(group) > 1)


@given(
    st.lists(st.lists(st.integers(0, 2), max_size=3), max_size=40),
    st.integers(0, 40),
    st.sampled_from([64, 100, 640, 1 << 20]),
    st.integers(1, 9),
)
def test_duplicates_are_all_groups_of_equal_documents(documents, place, budget, block):
    with quick_folder() as folder, tiny(hash_chunk_documents=block):
        store = toy(folder / "s", [documents[:place], documents[place:]])
        found = store.duplicates(budget_bytes=budget)
        assert [group.tolist() for group in found] == slow_duplicates(documents)
        assert store.reads.bytes == 0


def test_less_memory_is_more_passes_over_the_hashes(tmp_path):
    documents = [[mix(i) % 900] for i in range(2000)]
    store = toy(tmp_path / "s", [documents], inner=1024)
    expected = slow_duplicates(documents)
    assert len(expected) > 300
    store.duplicates()  # from here on every chunk is checked, and only what is wanted is read
    spent = []
    for ranges in (1, 2, 10):
        before = store.index_reads.bytes
        budget = 2000 * 64 // ranges
        assert [g.tolist() for g in store.duplicates(budget_bytes=budget)] == expected
        spent.append(store.index_reads.bytes - before)
    assert spent == [spent[0], 2 * spent[0], 10 * spent[0]]
    refused(lambda: store.duplicates(budget_bytes=63), tl.ConfigError, "budget_bytes", 63)
