"""Documents end to end: every token finds its document, wherever empty ones lie."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toydata import ToyStore, lengths, numbered

from tokenloom.testing import numpy_alone

pytestmark = pytest.mark.filterwarnings("ignore:seq_len")

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


def slow_rows(documents, order, seq_len):
    """The pieces of every row: (document, offset of its first token, tokens, cell of the row)."""
    cells = [(d, offset) for d in order for offset in range(len(documents[d]))]
    rows = []
    for first in range(0, len(cells), seq_len):
        pieces = []
        for at, (document, offset) in enumerate(cells[first : first + seq_len]):
            if pieces and pieces[-1][0] == document and offset:
                pieces[-1][2] += 1
            else:
                pieces.append([document, offset, 1, at])
        rows.append(pieces)
    return rows


def check(toy, documents, order, seq_len):
    run = documents.windows(seq_len, tail="keep")
    expected = slow_rows(toy.documents, order, seq_len)
    assert len(run) == len(expected)
    if not expected:
        return
    backwards = [*range(len(run))][::-1] * 2
    for rows in (range(len(run)), backwards, [len(run) - 1]):
        spans = run.spans(rows)
        columns = (spans.document, spans.start, spans.length, spans.at)
        found = np.stack(columns, axis=1).tolist()
        assert found == [piece for row in rows for piece in expected[row]]
    stream = [token for d in order for token in toy.documents[d]]
    batch = run.batch(range(len(run)))
    assert batch.tokens[batch.attention_mask].tolist() == stream


@pytest.mark.parametrize("inner", [1, 4])
@pytest.mark.parametrize("name", EDGES)
def test_every_token_finds_its_document_and_every_document_its_tokens(name, inner):
    for cache_bytes in (1 << 20, 0):
        with ToyStore(numbered(EDGES[name]), inner=inner, cache_bytes=cache_bytes) as toy:
            every = range(len(toy.documents))
            assert toy.store.lengths.tolist() == [len(one) for one in toy.documents]
            full = [d for d in every if toy.documents[d]][::-1]
            for seq_len in (1, 2, 3, 5):
                check(toy, toy.store, every, seq_len)
                check(toy, toy.store.select(doc_index=full), full, seq_len)


@settings(max_examples=25)
@given(lengths, st.sampled_from([1, 2, 3, 8]), st.integers(1, 9), st.booleans(), st.data())
def test_any_documents_are_cut_as_by_looking_at_every_cell(sizes, inner, seq_len, alone, data):
    with ToyStore(numbered(sizes), inner=inner) as toy:
        full = [number for number, one in enumerate(toy.documents) if one]
        if not full:
            return
        chosen = data.draw(st.permutations(full))[: data.draw(st.integers(1, len(full)))]

        def look():
            check(toy, toy.store, range(len(toy.documents)), seq_len)
            check(toy, toy.store.select(doc_index=chosen), chosen, seq_len)

        if alone:
            with numpy_alone():
                look()
        else:
            look()


def test_offsets_are_read_once_and_then_kept():
    with ToyStore(numbered([[2] * 40])) as toy:
        run = toy.store.windows(2)
        run.spans(range(40))
        before = toy.store.index_reads.read_ops
        assert before > 0
        run.spans(range(40))
        assert toy.store.index_reads.read_ops == before


def test_parts_of_one_store_do_not_meet_in_its_cache():
    with ToyStore(numbered([[4, 4, 4]])) as toy:
        parts = [toy.store, *(toy.store.select(doc_index=number) for number in (2, 1))]
        for _ in range(2):
            found = [one.windows(4)[0].tokens[0].tolist() for one in parts]
            assert found == [toy.documents[0], toy.documents[2], toy.documents[1]]


def test_ranges_of_tokens_cross_documents_and_shards():
    with ToyStore(numbered([[3, 0, 1], [], [2, 5]])) as toy:
        for start, stop in itertools.combinations(range(len(toy.tokens) + 1), 2):
            assert toy.store.tokens(start, stop).tolist() == toy.tokens[start:stop]
