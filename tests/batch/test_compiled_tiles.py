"""Tiles from spans: the compiled pass gives what NumPy gives, and refuses spans out of order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom import native
from tokenloom.batch.tiles import _tile, tile
from tokenloom.layout.spans import BOS, EOS, GOES_ON, JOINED, Spans

compiled_only = pytest.mark.skipif(native.compiled is None, reason="needs the compiled loops")

FIELDS = ("length", "segment", "first", "continues", "blank")


@st.composite
def spans_of_frames(draw):
    """Frames with spans, gaps, inserted tokens, joined spans and repeated cells."""
    width = draw(st.integers(1, 12))
    frame, columns = [0], {name: [] for name in ("at", "length", "start", "flags", "seen")}
    for _ in range(draw(st.integers(0, 6))):
        place, first = 0, True
        while place < width and draw(st.booleans()):
            gap = draw(st.integers(0, width - place - 1))
            joined = not first and draw(st.booleans())
            at = place if joined else place + gap
            cells = draw(st.integers(1, width - at))
            flags = draw(st.sampled_from([0, BOS, EOS, BOS | EOS, GOES_ON]))
            inserted = (flags & BOS) + ((flags & EOS) >> 1)
            if inserted > cells:
                flags, inserted = 0, 0
            columns["at"].append(at)
            columns["length"].append(cells - inserted)
            columns["start"].append(draw(st.integers(0, 1)))
            columns["flags"].append(flags | (JOINED if joined else 0))
            columns["seen"].append(draw(st.integers(0, cells)) if draw(st.booleans()) else 0)
            place, first = at + cells, False
        frame.append(len(columns["at"]))
    numbers = {name: np.array(some, np.int64) for name, some in columns.items()}
    numbers["flags"] = numbers["flags"].astype(np.uint8)
    count = len(numbers["at"])
    return Spans(
        width=width,
        frame=np.array(frame),
        document=np.arange(count),
        address=np.zeros(count, np.int64),
        source=np.zeros(len(frame) - 1, np.int32),
        **numbers,
    )


@compiled_only
@given(spans_of_frames())
def test_compiled_tiles_are_those_of_numpy(spans):
    spans.check()
    found, wanted = tile(spans, spans.width), _tile(spans, spans.width)
    for name in FIELDS:
        one, other = getattr(found, name), getattr(wanted, name)
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist(), name
    assert found.length.sum() == len(spans) * spans.width


@compiled_only
@pytest.mark.parametrize(
    ("frame", "at", "length"),
    [
        ([0, 2], [2, 0], [1, 1]),  # not in order
        ([0, 2], [0, 1], [2, 1]),  # one over the other
        ([0, 1], [3], [2]),  # past the end
        ([0, 1], [-1], [1]),
        ([0, 1], [0], [-1]),
        ([0, 1, 0], [0], [1]),  # frames that decrease
        ([0, 1], [0, 1], [1, 1]),  # a span in no frame
        ([0, 2], [0, 1], [1, 2**62]),
    ],
)
def test_spans_out_of_order_are_refused(frame, at, length):
    columns = [np.array(one, np.int64) for one in (frame, at, length, [0] * len(at))]
    room = 2 * len(at) + len(frame) + 1
    outputs = [np.zeros(room, kind) for kind in (np.int64, np.int64, np.int32, np.bool_)]
    with pytest.raises(IndexError, match="out of order"):
        native.compiled.tile(*columns, np.zeros(len(at), np.uint8), *outputs, 4)


@compiled_only
def test_no_more_tiles_are_written_than_there_is_room_for():
    columns = [np.array(one, np.int64) for one in ([0, 2], [1, 3], [1, 1], [0, 0])]
    outputs = [np.full(4, 7, kind) for kind in (np.int64, np.int64, np.int32, np.bool_)]
    with pytest.raises(IndexError):
        native.compiled.tile(*columns, np.zeros(2, np.uint8), *outputs, 6)
    with pytest.raises(ValueError, match="one length"):
        native.compiled.tile(*columns, np.zeros(3, np.uint8), *outputs, 6)
