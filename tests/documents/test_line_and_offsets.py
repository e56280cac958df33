import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import QUICK
from toydata import ToyStore, lengths, numbered

import tokenloom as tl
from tokenloom import native
from tokenloom.arrays import grouped
from tokenloom.documents.line import ChosenLine, WholeLine
from tokenloom.store.writer import ShardWriter, publish_manifest
from tokenloom.testing.stores import first_manifest

EDGES = {
    "empty documents at the beginning": [[0, 0, 0, 3, 2]],
    "empty documents at the end": [[3, 2, 0, 0, 0]],
    "a shard of empty documents": [[2], [0, 0, 0, 0, 0, 0], [3]],
    "a shard without documents": [[2], [], [3]],
    "shards without documents around": [[], [2, 1], [], []],
    "many empty documents at one token": [[4, *[0] * 11, 5, 0, 0, 1]],
    "an empty stretch that fills whole chunks of offsets": [[1, *[0] * 12, 1, *[0] * 12, 1]],
    "one document for each chunk edge": [[1, 1, 1, 1, 1, 1, 1, 1, 1]],
    "exactly one chunk": [[2, 2, 2, 2]],
    "exactly one chunk and an end": [[2, 2, 2]],
}


def slow_bounds(documents):
    edges = list(itertools.accumulate(map(len, documents), initial=0))
    return list(itertools.pairwise(edges))


def slow_document_at(documents, address):
    for number, (start, stop) in enumerate(slow_bounds(documents)):
        if start <= address < stop:
            return number
    raise AssertionError("the address is outside")


def assert_offsets_agree(toy, addresses, documents):
    offsets = toy.store.reader.offsets
    found = offsets.documents_at(np.array(addresses, np.int64))
    assert found.tolist() == [slow_document_at(toy.documents, a) for a in addresses]
    start, stop = offsets.bounds(np.array(documents, np.int64))
    bounds = slow_bounds(toy.documents)
    assert list(zip(start.tolist(), stop.tolist(), strict=True)) == [bounds[d] for d in documents]


@pytest.mark.parametrize("inner", [1, 2, 4, 16])
@pytest.mark.parametrize("name", EDGES)
def test_every_token_finds_its_document_and_every_document_its_tokens(name, inner):
    with ToyStore(numbered(EDGES[name]), inner=inner) as toy:
        addresses, documents = list(range(len(toy.tokens))), list(range(len(toy.documents)))
        assert_offsets_agree(toy, addresses, documents)
        assert_offsets_agree(toy, addresses[::-1] * 2, documents[::-1] * 2)
        assert_offsets_agree(toy, [], [])
        bounds, edges = slow_bounds(toy.documents), toy.store.reader.offsets.edges
        for first, last in itertools.combinations(range(len(documents) + 1), 2):
            wanted = [bounds[first][0], *(stop for _, stop in bounds[first:last])]
            assert edges(first, last).tolist() == wanted
            assert edges(first, first).tolist() == [0]


@given(lengths, st.sampled_from([1, 2, 3, 4, 8]), st.data())
def test_any_request_for_documents_agrees_with_a_linear_search(sizes, inner, data):
    with ToyStore(numbered(sizes), inner=inner) as toy:
        count, tokens = len(toy.documents), len(toy.tokens)
        addresses = st.lists(st.integers(0, max(0, tokens - 1)), max_size=20 if tokens else 0)
        documents = st.lists(st.integers(0, max(0, count - 1)), max_size=20 if count else 0)
        assert_offsets_agree(toy, data.draw(addresses), data.draw(documents))
        assert toy.store.lengths.tolist() == [len(one) for one in toy.documents]


def slow_cut(toy, start, stop):
    """(edges, pieces) of ranges, by looking at every document for each."""
    edges, pieces = [0], []
    for low, high in zip(start, stop, strict=True):
        for document, (a, b) in enumerate(slow_bounds(toy.documents)):
            first, last = max(a, low), min(b, high)
            if first < last:
                pieces.append((document, first - a, last - first, first))
        edges.append(len(pieces))
    return edges, pieces


def assert_cuts_agree(toy, ranges):
    offsets = toy.store.reader.offsets
    start, stop = np.array(ranges, np.int64).reshape(-1, 2).T.copy()
    edges, pieces = slow_cut(toy, start.tolist(), stop.tolist())
    for cut in (offsets.cut, offsets._cut):  # compiled where that is there, and NumPy
        found, *columns = cut(start, stop)
        assert found.tolist() == edges
        assert list(zip(*(one.tolist() for one in columns), strict=True)) == pieces
        assert {one.dtype for one in (found, *columns)} == {np.dtype(np.int64)}


@pytest.mark.parametrize("inner", [1, 2, 4, 16])
@pytest.mark.parametrize("name", EDGES)
def test_every_range_is_cut_into_its_documents(name, inner):
    with ToyStore(numbered(EDGES[name]), inner=inner) as toy:
        places = range(len(toy.tokens) + 1)
        ranges = list(itertools.combinations(places, 2))
        assert_cuts_agree(toy, ranges)
        assert_cuts_agree(toy, ranges[::-1] * 2)


@given(lengths, st.sampled_from([1, 2, 3, 4, 8]), st.data())
def test_any_ranges_are_cut_as_by_looking_at_every_document(sizes, inner, data):
    with ToyStore(numbered(sizes), inner=inner) as toy:
        ranges = list(itertools.combinations(range(len(toy.tokens) + 1), 2))
        some = st.lists(st.sampled_from(ranges), max_size=20) if ranges else st.just([])
        assert_cuts_agree(toy, data.draw(some))


def test_scattered_ranges_look_into_each_chunk_of_offsets_once(monkeypatch):
    """What grows with the number of chunks is one look into the cache, not the work of a search."""
    with ToyStore(numbered([[2] * 64] * 3), inner=4) as toy:
        offsets, asked = toy.store.reader.offsets, []
        real = type(offsets)._chunk
        monkeypatch.setattr(
            type(offsets), "_chunk", lambda self, *place: asked.append(place) or real(self, *place)
        )
        start = np.random.default_rng(0).permutation(len(toy.tokens) - 3)
        offsets.cut(start, start + 3)
        if native.compiled is not None:
            assert sorted(asked) == sorted(set(asked))
            assert len(asked) == 3 * 64 // 4


def test_without_a_cache_the_answers_are_the_same():
    with ToyStore(numbered([[3, 0, 1, 5], [0, 2, 2, 2, 2, 2]]), cache_bytes=0) as toy:
        assert_offsets_agree(toy, list(range(len(toy.tokens))), list(range(len(toy.documents))))


def test_offsets_are_read_once_and_then_kept():
    with ToyStore(numbered([[2] * 40])) as toy:
        offsets = toy.store.reader.offsets
        for _ in range(2):
            before = toy.store.index_reads.read_ops
            offsets.documents_at(np.arange(80))
            again = toy.store.index_reads.read_ops - before
        assert again == 0


@pytest.mark.parametrize("entries", [[1, 3, 6], [0, 3, 5]], ids=["begin late", "end early"])
def test_offsets_that_leave_tokens_to_nobody_are_called_corrupt_when_a_token_is_looked_up(
    tmp_path, entries
):
    writer = ShardWriter(QUICK, tmp_path, 0, dtype="uint16", inner=4)
    writer.append(np.arange(6), np.array([3, 3]))
    column = writer._columns["offsets"]
    column._tail = np.array(entries, column._tail.dtype)
    entry = writer.commit(fingerprint="0" * 64, engine="none", progress={})
    manifest = first_manifest([entry], vocab_size=256, inner=4, chunk_tokens=12)
    publish_manifest(QUICK, tmp_path, manifest)
    dataset = tl.open(tmp_path).windows(6)
    with pytest.raises(tl.StoreCorrupt, match="shard-00000/offsets"):
        dataset.spans([0])
    with pytest.raises(tl.StoreCorrupt, match="shard-00000/offsets"):
        _ = dataset[0].labels


@given(st.lists(st.integers(-5, 5), max_size=30))
def test_grouped_names_every_place_once_under_its_number(numbers):
    found = [(n, where.tolist()) for n, where in grouped(np.array(numbers, np.int64))]
    assert found == [
        (n, [i for i, m in enumerate(numbers) if m == n]) for n in sorted(set(numbers))
    ]


# -- lines ---------------------------------------------------------------------------------


def slow_pieces(cells, start, stop):
    """(document, offset of its first token, tokens, place on the line) in one range."""
    found = []
    for place in range(start, stop):
        document, offset, *_ = cells[place]
        if found and found[-1][0] == document:
            found[-1][2] += 1
        else:
            found.append([document, offset, 1, place])
    return found


def assert_line_agrees(line, cells, ranges):
    assert line.tokens == len(cells)
    start = np.array([a for a, _ in ranges], np.int64)
    stop = np.array([b for _, b in ranges], np.int64)
    views = line.read(start, stop)
    read = np.concatenate([np.empty(0, np.int64), *views]).tolist()
    assert read == [cells[i][2] for a, b in ranges for i in range(a, b)]
    full = stop > start
    pieces = line.pieces(start[full], stop[full])
    columns = (pieces.document, pieces.start, pieces.length, pieces.address)
    rows = np.stack(columns, axis=1).tolist()
    assert [rows[a:b] for a, b in itertools.pairwise(pieces.edges.tolist())] == [
        slow_pieces(cells, a, b) for a, b in ranges if b > a
    ]


def some_ranges(tokens):
    places = st.integers(0, tokens)
    return st.lists(st.tuples(places, places).map(sorted), max_size=8)


@given(lengths, st.data())
def test_a_whole_line_is_the_documents_end_to_end(sizes, data):
    with ToyStore(numbered(sizes)) as toy:
        ranges = data.draw(some_ranges(len(toy.tokens)))
        assert_line_agrees(WholeLine(toy.store.reader), toy.cells(), ranges)


@given(lengths, st.data())
def test_a_chosen_line_is_the_chosen_documents_end_to_end(sizes, data):
    with ToyStore(numbered(sizes)) as toy:
        every = list(range(len(toy.documents)))
        chosen = data.draw(st.lists(st.sampled_from(every), unique=True) if every else st.just([]))
        line = ChosenLine(toy.store.reader, np.array(chosen, np.int64))
        cells = toy.cells(chosen)
        assert_line_agrees(line, cells, data.draw(some_ranges(len(cells))))


def test_stretches_of_two_lines_of_one_store_do_not_meet_in_the_cache():
    with ToyStore(numbered([[4, 4, 4]])) as toy:
        reader, cache = toy.store.reader, toy.store.reader.cache
        lines = [
            WholeLine(reader),
            ChosenLine(reader, np.array([2])),
            ChosenLine(reader, np.array([1])),
        ]
        ends = np.array([0]), np.array([4])
        for _ in range(2):
            found = [
                line.stretches("t", np.array([0]), *ends, "input_ids", cache)[0] for line in lines
            ]
            assert [one.tolist() for one in found] == [[0, 1, 2, 3], [8, 9, 10, 11], [4, 5, 6, 7]]
