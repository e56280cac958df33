import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toydata import WIDTH, frames, spans_of

from tokenloom.layout.layout import Reads
from tokenloom.layout.spans import BOS, EOS, GOES_ON, Spans


def listed(spans):
    """The inverse."""
    columns = (spans.document, spans.start, spans.length, spans.at, spans.flags)
    flat = [tuple(map(int, one)) for one in zip(*columns, strict=True)]
    edges = spans.frame.tolist()
    return [flat[a:b] for a, b in itertools.pairwise(edges)]


@given(frames)
def test_good_spans_pass_their_check_and_count_their_cells(made):
    spans = spans_of(made)
    spans.check()
    assert len(spans) == len(made)
    assert spans.row.tolist() == [f for f, frame in enumerate(made) for _ in frame]
    assert spans.cells.tolist() == [
        length + bin(flags).count("1") for frame in made for _, _, length, _, flags in frame
    ]


@given(frames, st.data())
def test_frames_take_and_padded_are_list_operations(made, data):
    spans = spans_of(made)
    places = st.integers(0, len(made))
    start, stop = sorted((data.draw(places), data.draw(places)))
    part = spans.frames(start, stop)
    assert listed(part) == made[start:stop]
    assert part.source.tolist() == spans.source.tolist()[start:stop]
    some = st.lists(st.integers(0, len(made) - 1), max_size=7) if made else st.just([])
    wanted = data.draw(some)
    taken = spans.take(np.array(wanted, np.int64))
    assert listed(taken) == [made[i] for i in wanted]
    assert taken.source.tolist() == [i % 2 for i in wanted]
    padded = spans.padded(2)
    assert listed(padded) == [*made, [], []]
    for one in (part, taken, padded, spans.named("x")):
        one.check()
    assert spans.named("x").sources == ("x",)


@given(frames, st.data())
def test_what_is_kept_and_what_is_joined_are_list_operations(made, data):
    spans = spans_of(made)
    keep = data.draw(st.lists(st.booleans(), min_size=len(spans.row), max_size=len(spans.row)))
    kept, left = iter(keep), spans.where(np.array(keep, bool))
    assert listed(left) == [[one for one in frame if next(kept)] for frame in made]
    assert left.source.tolist() == spans.source.tolist()
    cut = data.draw(st.integers(0, len(made)))
    parts = [spans.frames(0, cut), spans.frames(cut, len(made))]
    assert listed(Spans.joined(parts)) == made
    places = data.draw(st.permutations(range(len(made))))
    where = [np.array(places[:cut], np.int64), np.array(places[cut:], np.int64)]
    joined = listed(Spans.joined(parts, where))
    assert [joined[place] for place in places] == made


def test_a_document_continues_from_its_second_token_on_or_where_a_flag_says_so():
    frame = [(0, 0, 2, 0, 0), (1, 1, 2, 2, 0), (2, 2, 2, 4, 0), (3, 0, 2, 6, GOES_ON)]
    assert spans_of([frame]).continues.tolist() == [False, True, True, True]


@given(frames)
def test_runs_are_the_tokens_of_spans_without_what_was_inserted(made):
    spans = spans_of(made)
    runs = Reads.of(spans)
    expected = [
        [(d * 100 + s, n, at + (flags & BOS)) for d, s, n, at, flags in frame if n]
        for frame in made
    ]
    columns = zip(runs.address.tolist(), runs.length.tolist(), runs.at.tolist(), strict=True)
    flat, edges = list(columns), runs.edges.tolist()
    assert [flat[a:b] for a, b in itertools.pairwise(edges)] == expected


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, WIDTH)), max_size=5))
def test_one_stretch_each_is_one_for_every_frame_from_its_first_cell_on(made):
    address, length = np.array(made, np.int64).reshape(-1, 2).T
    runs = Reads.one_each(address, length, WIDTH)
    assert runs.edges.tolist() == list(range(len(made) + 1))
    columns = zip(runs.address.tolist(), runs.length.tolist(), runs.at.tolist(), strict=True)
    assert list(columns) == [(*one, 0) for one in made]


WRONG = {
    "a span that begins before its frame": [[(0, 0, 2, -1, 0)]],
    "a span that leaves its frame": [[(0, 0, 3, 4, 0)]],
    "an inserted token that leaves the frame": [[(0, 0, 2, 4, EOS)]],
    "a span without a cell": [[(0, 0, 0, 1, 0)]],
    "a start before the document": [[(0, -1, 2, 0, 0)]],
    "two spans in one cell": [[(0, 0, 2, 0, 0), (1, 0, 2, 1, 0)]],
    "two spans in the wrong order": [[(0, 0, 2, 3, 0), (1, 0, 2, 0, 0)]],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_broken_law_is_told_with_its_frame(name):
    good = [(7, 0, WIDTH, 0, 0)]
    with pytest.raises(ValueError, match=r"frame 1\b"):
        spans_of([good, *WRONG[name]]).check()


def test_frames_that_do_not_match_the_spans_are_refused():
    spans = spans_of([[(0, 0, 2, 0, 0)], [(1, 0, 2, 0, 0)]])
    for frame in ([0, 1], [1, 1, 2], [0, 1, 3], [0, 3, 2]):
        with pytest.raises(ValueError, match="frame"):
            replace(spans, frame=np.array(frame)).check()


def test_no_frames_are_fine():
    empty = spans_of([])
    empty.check()
    assert (len(empty), len(empty.row), len(Reads.of(empty).address)) == (0, 0, 0)
