"""Documents by id, by hash, and those that are equal."""

import collections
import itertools

import numpy as np
import pytest
from crashdisk import mix
from hypothesis import given
from hypothesis import strategies as st
from kit import QUICK, quick_folder
from slowhash import slow_hash
from toystore import random_shards, toy

import tokenloom as tl
from tokenloom.store import metadata
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.derived import duplicates
from tokenloom.store.derived.id_index import CAPACITY, build_index
from tokenloom.store.metadata import id_text, id_texts, json_line
from tokenloom.testing import FaultSource, tiny

ids = st.one_of(
    st.text(max_size=4),
    st.integers(-9, 9),
    st.floats(-4, 4).map(lambda x: round(x * 2) / 2),
    st.booleans(),
    st.sampled_from([2**70, -(2**70), "7", 7, 7.0, "7.0", "", '"', "\\", "é", "true"]),
)


def build(rows, path, **options):
    settings = {"tokenizer": "bytes", "inner": 64, "shard_tokens": 200, "chunk_tokens": 128}
    return tl.build(rows, path, files=QUICK, **{**settings, **options})


def same(a, b):
    """Whether two ids are one: text is text, a number is a number, true is neither."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return isinstance(a, str) == isinstance(b, str) and a == b


# -- ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("parquet", [True, False])
@given(st.lists(st.none() | ids, max_size=30), st.lists(ids, max_size=5))
def test_find_gives_all_documents_of_an_id_and_no_other(parquet, stored, others):
    rows = [
        {"text": "x" * (i % 30)} | ({} if v is None else {"id": v}) for i, v in enumerate(stored)
    ]
    with pytest.MonkeyPatch.context() as patch, quick_folder() as folder:
        if not parquet:
            patch.setattr(metadata, "have_pyarrow", lambda: False)
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
        with pytest.raises(TypeError, match=r"found 'x', allowed: its number\. store\.find\('x'\)"):
            asked("x")


def test_a_store_without_ids_finds_none_and_keeps_no_index(tmp_path):
    store = build([{"text": "a"}], tmp_path / "s")
    assert store.find("a").tolist() == []
    assert "id_index" not in store.reader.shard(0).columns
    assert toy(tmp_path / "t", random_shards(1)).find(7).tolist() == []


def test_ids_are_found_across_shards_and_appends(tmp_path):
    rows = [{"text": "x" * 40, "id": f"d{i % 7}"} for i in range(40)]
    build(rows[:25], tmp_path / "s")
    store = build(rows[25:], tmp_path / "s", append=True)
    assert len(store.reader.manifest.shards) > 3
    for name in range(7):
        assert store.find(f"d{name}").tolist() == list(range(name, 40, 7))


@pytest.mark.parametrize(
    "wanted", [None, ["a"], {"a": 1}, b"a", 1j, float("nan"), float("inf")], ids=repr
)
def test_what_is_no_id_is_refused(tmp_path, wanted):
    store = build([{"text": "a", "id": "a"}], tmp_path / "s")
    with pytest.raises(tl.ConfigError, match=r"^(id|find): found"):
        store.find(wanted)
    with pytest.raises(tl.ConfigError, match="find: found both"):
        store.find("a", hash="0" * 8)


@given(st.dictionaries(st.sampled_from(["id", "n", "x"]), st.none() | ids, max_size=3))
def test_the_id_of_a_line_is_that_of_its_record(record):
    expected = None if record.get("id") is None else id_text(record["id"])
    assert id_texts([json_line(record)]) == [expected]


@pytest.mark.parametrize("count", [1, 160, 161, 5000, 60_000])
def test_a_look_up_reads_one_page_or_two_of_a_shard(tmp_path, count):
    rows = [{"input_ids": [1], "id": f"document number {i}"} for i in range(count)]
    store = build(rows, tmp_path / "s", tokenizer=None, vocab_size=2, shard_tokens=1 << 20)
    assert len(store.reader.manifest.shards) == 1
    source = FaultSource(LocalSource(store.path))
    opened = tl.open(store.path, source=source, cache_bytes=0)
    opened.reader.shard(0)
    reads = collections.Counter()
    wanted = range(count) if count < 1000 else [mix(i) % count for i in range(500)]
    for number in wanted:
        source.requests.clear()
        assert opened.find(f"document number {number}").tolist() == [number]
        asked = [one for request in source.requests for one in request]
        assert all("id_index/c/0" in name and size == 4096 for name, _, size in asked)
        reads[len(asked)] += 1
    assert set(reads) <= {1, 2}
    assert reads[1] > 0.9 * sum(reads.values())
    source.requests.clear()
    assert opened.find("nowhere").tolist() == []
    assert len(source.requests) <= 2


def test_thousands_of_documents_of_one_id_are_all_found(tmp_path):
    many = 5 * CAPACITY + 3
    rows = [{"input_ids": [1], "id": "same" if i % 3 else i} for i in range(3 * many // 2)]
    store = build(rows, tmp_path / "s", tokenizer=None, vocab_size=2, shard_tokens=1 << 20)
    assert len(store.reader.manifest.shards) == 1
    assert store.find("same").tolist() == [i for i in range(len(rows)) if i % 3]
    for i in range(0, len(rows), 33):
        assert store.find(i).tolist() == ([] if i % 3 else [i])
    assert store.verify(progress=False).ok


def test_the_index_is_a_table_of_pages_of_4_kib():
    texts = [b'"a"', None, b"7", b'"a"']
    pages = build_index(texts).reshape(-1, 512)
    assert pages.shape == (1, 512)
    half = pages.view("<u4")[0]
    assert half[:2].tolist() == [3, 0]
    assert sorted(half[818:821].tolist()) == [0, 2, 3]
    assert not half[821:].any()
    assert build_index([None, None]) is None


def test_pages_that_overflow_lead_to_one_another_and_then_to_none():
    texts = [b'"a"'] * 500 + [b'"b"'] * 300 + [b"%d" % i for i in range(200)]
    half = build_index(texts).view("<u4").reshape(-1, 1024)
    buckets, seen, visited = -(-len(texts) // 160), [], []
    for page in range(buckets):
        while True:
            visited.append(page)
            seen += half[page, 818 : 818 + half[page, 0]].tolist()
            if half[page, 1] == 0:
                break
            assert half[page, 0] == CAPACITY, "only a full page leads on"
            page = int(half[page, 1])
    assert sorted(seen) == list(range(len(texts)))
    assert sorted(visited) == list(range(len(half)))


@pytest.mark.parametrize("damage", ["count", "next back", "next out", "document"])
def test_an_index_that_leads_astray_is_refused(tmp_path, monkeypatch, damage):
    from tokenloom.store import writer

    def wrong(texts):
        found = build_index(texts)
        half = found.view("<u4")
        place, value = {
            "count": (0, CAPACITY + 1),
            "next back": (1, 1),
            "next out": (1, 1 << 30),
            "document": (slice(818, 818 + CAPACITY), 1 << 20),
        }[damage]
        half.reshape(-1, 1024)[:, place] = value
        return found

    monkeypatch.setattr(writer, "build_index", wrong)
    rows = [{"input_ids": [1], "id": i} for i in range(400)]
    store = build(rows, tmp_path / "s", tokenizer=None, vocab_size=2, shard_tokens=1000)
    with pytest.raises(tl.StoreCorrupt, match=r"id_index: page \d+ leads out of the shard"):
        [store.find(i) for i in range(400)]
    with pytest.raises(tl.StoreCorrupt, match="id_index: it is not the index of the ids"):
        store.verify(progress=False)


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
        with pytest.raises(tl.ConfigError, match=r"hash: found .* allowed: 8 to 32 hex digits"):
            store.find(hash=digits)


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


def test_hashes_on_the_borders_of_ranges_are_in_one_of_them(tmp_path, monkeypatch):
    high = [0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1] * 2
    words = np.array([(5, one) for one in high], np.uint64)
    monkeypatch.setattr(duplicates, "hash_blocks", lambda reader: [(0, words)])
    store = toy(tmp_path / "s", [[[1]] * 8])
    for ranges in (1, 2, 4, 8):
        found = store.duplicates(budget_bytes=8 * duplicates.DOCUMENT_BYTES // ranges)
        assert [group.tolist() for group in found] == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_less_memory_is_more_passes_over_the_hashes(tmp_path):
    documents = [[mix(i) % 900] for i in range(2000)]
    store = toy(tmp_path / "s", [documents], inner=1024)
    expected = slow_duplicates(documents)
    assert len(expected) > 300
    store.duplicates()  # from here on every chunk is checked, and only what is wanted is read
    spent = []
    for ranges in (1, 2, 10):
        before = store.index_reads.bytes
        budget = 2000 * duplicates.DOCUMENT_BYTES // ranges
        assert [g.tolist() for g in store.duplicates(budget_bytes=budget)] == expected
        spent.append(store.index_reads.bytes - before)
    assert spent == [spent[0], 2 * spent[0], 10 * spent[0]]
    with pytest.raises(tl.ConfigError, match="budget_bytes: found 63, allowed: 64 or more"):
        store.duplicates(budget_bytes=63)
