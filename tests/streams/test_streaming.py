"""Streaming packers: each mode equals a slow, obvious one, whenever one adds, pops or restores."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from spoiling import drop, put, spoilt

import tokenloom as tl
from tokenloom.streams import packing_stats, stream_packer

MODES = ["sequential", "bin", "multipack", "one_doc"]
BOS, EOS, PAD = 1, 2, 0


# -- slow, obvious packers ---------------------------------------------------------------------


def with_ends(spec, tokens):
    kept = list(tokens)[: spec.max_doc_tokens]
    bos = [] if spec.bos_id is None else [spec.bos_id]
    ends = spec.eos_id is not None and len(kept) == len(tokens)
    return bos + kept + [spec.eos_id] * ends if kept else []


def slow_pieces(spec, tokens):
    """Pieces of a row; EOS alone in the last takes a token from the piece before."""
    cells, pieces, at = with_ends(spec, tokens), [], 0
    if not cells:
        return []
    while at + spec.width < len(cells):
        pieces.append(cells[at : at + spec.width])
        at += spec.width - spec.shared
    pieces.append(cells[at:])
    if (
        len(pieces) > 1
        and pieces[-1] == [spec.eos_id]
        and len(with_ends(spec, tokens))
        > len(list(tokens)[: spec.max_doc_tokens]) + (spec.bos_id is not None)
    ):
        pieces[-1].insert(0, pieces[-2].pop())
    return pieces


def slow_row(spec, pieces):
    """(tokens, segments, starts, continues, documents) of (document, continues, tokens)."""
    tokens, segments, starts = [], [], []
    for number, (_, _, part) in enumerate(pieces, 1):
        starts.append(len(tokens))
        tokens += part
        segments += [number] * len(part)
    filler = spec.width - len(tokens)
    return (
        tokens + [spec.pad_id] * filler,
        segments + [0] * filler,
        starts,
        [continues for _, continues, _ in pieces],
        [document for document, _, _ in pieces],
    )


def slow_fill(spec, pieces, bins, grow):
    """First fit, longest first, into the bins; gives what found no room."""
    left = []
    for piece in sorted(pieces, key=lambda piece: -len(piece[2])):
        for row in bins:
            few = len(row) < (spec.packing_max_docs_per_bin or 10**9)
            if few and sum(len(p[2]) for p in row) + len(piece[2]) <= spec.width:
                row.append(piece)
                break
        else:
            if grow:
                bins.append([piece])
            else:
                left.append(piece)
    return left


def slow_sequential(spec, documents):
    cells = [
        (token, number, place == 0)
        for number, tokens in enumerate(documents)
        for place, token in enumerate(with_ends(spec, tokens))
    ]
    rows, at, covered = [], 0, 0
    while covered < len(cells):
        stop = min(at + spec.width, len(cells))
        pieces = []
        for place in range(at, stop):
            token, number, first = cells[place]
            if not pieces or first:
                went_before = not first or place < covered
                pieces.append((number, went_before, []))
            pieces[-1][2].append(token)
        rows.append(slow_row(spec, pieces))
        at, covered = stop - spec.shared, stop
    return rows


def slow_by_pieces(spec, documents):
    arriving = [
        (number, place > 0, part)
        for number, tokens in enumerate(documents)
        for place, part in enumerate(slow_pieces(spec, tokens))
    ]
    rows, pending = [], []
    for piece in arriving:
        pending.append(piece)
        if spec.mode == "one_doc":
            rows.append(pending)
            pending = []
        if spec.mode == "multipack" and len(pending) == spec.group_docs:
            slow_fill(spec, pending, bins := [], grow=True)
            rows += bins
            pending = []
        if spec.mode == "bin" and len(pending) == spec.packing_buffer_docs:
            bins = [[seed] for seed in pending[: spec.bins_per_pack]]
            left = slow_fill(spec, pending[spec.bins_per_pack :], bins, grow=False)
            order = {id(piece): place for place, piece in enumerate(pending)}
            pending = sorted(left, key=lambda piece: order[id(piece)])
            rows += [sorted(row, key=lambda p: (-len(p[2]), order[id(p)])) for row in bins]
    slow_fill(spec, pending, bins := [], grow=True)
    return [slow_row(spec, row) for row in rows + bins]


def slow_rows(spec, documents):
    slow = slow_sequential if spec.mode == "sequential" else slow_by_pieces
    return slow(spec, documents)


# -- what packers are tried with -----------------------------------------------------------------


def plain(row):
    """A row as lists, after a look at its types."""
    assert row.tokens.dtype == row.segment_ids.dtype == row.document_starts.dtype == np.int32
    assert row.continues.dtype == np.bool_
    assert row.documents.dtype == np.int64
    return (
        row.tokens.tolist(),
        row.segment_ids.tolist(),
        row.document_starts.tolist(),
        row.continues.tolist(),
        row.documents.tolist(),
    )


def popped(packer):
    found = []
    while packer.can_pop():
        found.append(plain(packer.pop()))
    return found


@st.composite
def options(draw, modes=MODES):
    window = draw(st.sampled_from(["T", "T+1"]))
    buffer = draw(st.integers(1, 6))
    return {
        "mode": draw(st.sampled_from(modes)),
        "seq_len": draw(st.integers(2, 9)),
        "window": window,
        "overlap": draw(st.sampled_from([None, 0, 1] if window == "T+1" else [None, 0])),
        "bos_id": draw(st.sampled_from([None, BOS])),
        "eos_id": draw(st.sampled_from([None, EOS])),
        "pad_id": draw(st.sampled_from([PAD, 7])),
        "max_doc_tokens": draw(st.none() | st.integers(1, 20)),
        "packing_buffer_docs": buffer,
        "bins_per_pack": draw(st.integers(1, buffer)),
        "packing_max_docs_per_bin": draw(st.none() | st.integers(1, 3)),
        "group_docs": draw(st.integers(1, 6)),
    }


def numbered(lengths):
    """Documents in which no token occurs twice."""
    edges = np.concatenate([[0], np.cumsum(lengths)]) + 100
    return [list(range(a, b)) for a, b in pairwise(edges.tolist())]


corpora = st.lists(st.integers(0, 9) | st.integers(0, 30), max_size=14).map(numbered)


def make(given):
    return stream_packer(**given)


# -- laws ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data(), documents=corpora)
def test_a_packer_equals_the_obvious_one(mode, data, documents):
    packer = make(data.draw(options([mode])))
    assert [plain(row) for row in packer.rows(documents)] == slow_rows(packer.spec, documents)


@given(options(), corpora, st.lists(st.integers(0, 3), max_size=20))
def test_rows_do_not_depend_on_when_they_are_popped(given, documents, pops):
    patient, eager, odd = make(given), make(given), make(given)
    soon, sometimes = [], []
    for place, tokens in enumerate(documents):
        patient.add(tokens)
        eager.add(tokens)
        soon += popped(eager)
        odd.add(tokens)
        for _ in range(pops[place] if place < len(pops) else 0):
            sometimes += [plain(odd.pop())] if odd.can_pop() else []
    for packer in (patient, eager, odd):
        packer.finish()
    late = popped(patient)
    assert late == soon + popped(eager) == sometimes + popped(odd)
    assert patient.stats == eager.stats == odd.stats


@given(options(), corpora)
def test_at_every_row_as_many_documents_are_taken_as_are_seen(given, documents):
    """A state of that moment and a stream after `documents_seen` documents belong together."""
    packer, taken = make(given), []

    def stream(rest):
        for tokens in rest:
            taken.append(tokens)
            yield tokens

    rows = packer.rows(stream(documents))
    while next(rows, None) is not None:
        assert len(taken) == packer.stats.documents_seen
        rest = documents[len(taken) :]
        state, packer = packer.state_dict(), make(given)
        packer.load_state_dict(state)
        rows = packer.rows(stream(rest))
    assert taken == documents


@given(options(), corpora)
def test_counters_are_those_of_the_rows(given, documents):
    packer = make(given)
    rows = list(packer.rows(documents))
    stats, cap = packer.stats, packer.spec.max_doc_tokens or 10**9
    assert stats.documents_seen == len(documents)
    assert stats.documents_empty == sum(not tokens for tokens in documents)
    assert stats.documents_truncated == sum(len(tokens) > cap for tokens in documents)
    assert stats.tokens_observed == sum(map(len, documents))
    assert stats.tokens_retained == sum(min(len(tokens), cap) for tokens in documents)
    assert stats.tokens_discarded == stats.tokens_observed - stats.tokens_retained
    measured = packing_stats(
        np.array([row.segment_ids for row in rows], int).reshape(-1, packer.spec.width)
    )
    for name in ("rows", "cells", "tokens", "segments", "transitions"):
        assert getattr(stats, name) == getattr(measured, name)
    assert stats.utilisation == measured.utilisation
    assert stats.segments_per_row == measured.segments_per_row


# -- worked values -----------------------------------------------------------------------------


def test_a_token_that_the_row_before_ended_with_is_no_row_of_its_own():
    packer = stream_packer("sequential", 4, window="T+1")
    assert len(list(packer.rows([range(5)]))) == 1
    packer = stream_packer("sequential", 4, window="T+1")
    rows = [plain(row) for row in packer.rows([[5, 6, 7, 8], [9], [3]])]
    assert rows[1] == ([9, 3, 0, 0, 0], [1, 2, 0, 0, 0], [0, 1], [True, False], [1, 2])


def test_eos_is_never_a_piece_alone():
    def pieces(count, **given):
        packer = stream_packer("one_doc", eos_id=EOS, **given)
        return [len(row.tokens[row.segment_ids > 0]) for row in packer.rows([[9] * count])]

    assert pieces(4, seq_len=4) == [3, 2]
    assert pieces(3, seq_len=4, bos_id=BOS) == [3, 2]
    assert pieces(7, seq_len=4, bos_id=BOS) == [4, 3, 2]
    assert pieces(4, seq_len=2) == [2, 1, 2]
    assert pieces(1, seq_len=2, bos_id=BOS) == [1, 2], "BOS or EOS must be alone"
    assert pieces(4, seq_len=3, window="T+1") == [4, 2], "the shared token is before EOS"


def test_documents_may_have_numbers_of_their_own():
    packer = stream_packer("sequential", 4)
    packer.add([1, 2], document=40)
    packer.add([], document=41)
    packer.add([3], document=np.int64(40))
    packer.add([4])
    assert plain(packer.pop())[4] == [40, 40, 3]


def test_the_callers_array_may_be_used_again():
    packer, tokens = stream_packer("sequential", 4), np.array([1, 2, 3], np.int32)
    packer.add(tokens)
    tokens[:] = 9
    packer.finish()
    assert packer.pop().tokens.tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize("mode", MODES)
def test_nothing_gives_nothing(mode):
    packer = stream_packer(mode, 4, bos_id=BOS, eos_id=EOS)
    assert list(packer.rows([[], (), np.empty(0, np.int64)])) == []
    assert (packer.stats.documents_seen, packer.stats.documents_empty) == (3, 3)
    assert (packer.stats.utilisation, packer.stats.segments_per_row) == (0, 0)


# -- what is refused ---------------------------------------------------------------------------

BAD_TOKENS = {
    "two dimensions": [[1, 2], [3, 4]],
    "ragged": [[1, 2], [3]],
    "a number": 5,
    "floats": [1.0, 2.0],
    "an empty array of floats": np.empty(0),
    "text": "abc",
    "bytes": b"abc",
    "bools": [True, False],
    "an array of bools": np.array([True]),
    "a bool among integers": [1, True],
    "negative": [3, -1],
    "too large": [1 << 31],
    "far too large": [1 << 70],
    "unsigned and too large": np.array([1 << 63], np.uint64),
    "nothing": [1, None],
    "a generator": (x for x in [1]),
}


@pytest.mark.parametrize("wrong", BAD_TOKENS.values(), ids=BAD_TOKENS)
def test_bad_tokens_are_refused_and_nothing_changes(wrong):
    packer = stream_packer("bin", 8, packing_buffer_docs=3)
    packer.add([1, 2, 3])
    before = packer.state_dict()
    refused(lambda: packer.add(wrong), tl.InputError, "document 1: ")
    assert packer.state_dict() == before


@pytest.mark.parametrize("wrong", [-1, 1 << 63, True, 1.0, "a"])
def test_a_bad_number_of_a_document_is_refused(wrong):
    packer = stream_packer("one_doc", 8)
    with pytest.raises(tl.InputError, match="document 0: "):
        packer.add([1], document=wrong)
    assert packer.state_dict() == stream_packer("one_doc", 8).state_dict()


def test_integers_of_any_kind_are_tokens():
    packer = stream_packer("sequential", 16)
    for tokens in ([1], (2,), range(3, 4), np.array([4], np.uint64), np.array([5], ">i2")):
        packer.add(tokens)
    packer.add([(1 << 31) - 1])
    packer.finish()
    assert packer.pop().tokens.tolist()[:6] == [1, 2, 3, 4, 5, (1 << 31) - 1]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"mode": "bni"}, "'bni'"),
        ({"mode": 3}, "mode"),
        ({"seq_len": 1}, "seq_len"),
        ({"window": "T+2"}, "window"),
        ({"overlap": 1}, "overlap"),
        ({"overlap": 2, "window": "T+1"}, "overlap"),
        ({"pad_id": -1}, "pad_id"),
        ({"eos_id": 1 << 31}, "eos_id"),
        ({"max_doc_tokens": 0}, "max_doc_tokens"),
        ({"packing_buffer_docs": 2, "bins_per_pack": 3}, "bins_per_pack"),
    ],
)
def test_bad_options_are_refused(given, named):
    refused(lambda: stream_packer(**{"mode": "bin", "seq_len": 8} | given), tl.ConfigError, named)


# -- states of others, and damaged ones --------------------------------------------------------


def busy(mode="bin", **given):
    """A packer with a popped row, rows that are ready and, mostly, pieces that wait."""
    usual = {"window": "T+1", "eos_id": EOS, "packing_buffer_docs": 3, "group_docs": 3}
    packer = stream_packer(mode, 8, **{**usual, **given})
    for tokens in numbered([3, 20, 0, 7, 2, 5, 4]):
        packer.add(tokens)
    packer.pop()
    return packer


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"eos_id": 3}, ["eos_id", 2, 3]),
        ({"mode": "one_doc", "pad_id": 5}, ["'bin'", "'one_doc'", "pad_id"]),
    ],
)
def test_a_state_of_another_packer_is_refused_with_both_values(given, named):
    packer = busy(**given)
    before = packer.state_dict()
    refused(lambda: packer.load_state_dict(busy().state_dict()), tl.StateError, *named)
    assert packer.state_dict() == before


def test_options_that_a_mode_does_not_use_do_not_matter():
    packer = busy("sequential", packing_buffer_docs=50)
    assert packer.load_state_dict(busy("sequential").state_dict()) == 0


HOSTILE = [
    (put("format", "tokenloom.packer/1"), "format"),
    (put("token", []), "sha256"),
    (put("options", "group_docs", 3), "sha256"),
    (put("finished", 10**5000), "sha256"),  # too long to be written
    (drop("counters", "documents_seen"), "sha256"),
    (put("tokens", 0, -5), "sha256"),
    (drop("documents", 0), "sha256"),
    (put("sha256", None), "sha256"),
]


@pytest.mark.parametrize(("change", "named"), HOSTILE)
def test_a_damaged_state_is_refused_and_nothing_changes(change, named):
    state = busy(bins_per_pack=2).state_dict()
    change(state)
    packer = busy(bins_per_pack=2)
    before = packer.state_dict()
    refused(lambda: packer.load_state_dict(state), tl.StateError, named)
    assert packer.state_dict() == before


@pytest.mark.parametrize("wrong", [None, [], "state", 3, {}])
def test_what_is_no_state_is_refused(wrong):
    with pytest.raises(tl.StateError, match="state"):
        busy().load_state_dict(wrong)


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
def test_junk_in_a_state_is_refused_or_harmless(mode, data):
    """It is a StateError, or the packer runs to its end."""
    packer = busy(mode)
    try:
        packer.load_state_dict(data.draw(spoilt(busy(mode).state_dict())))
    except tl.StateError:
        return
    packer.add([1, 2, 3])
    packer.finish()
    for tokens, segments, *_ in popped(packer):
        assert len(tokens) == len(segments) == packer.spec.width
