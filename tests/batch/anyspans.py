"""Spans of any frames."""

import numpy as np
from hypothesis import strategies as st

from tokenloom.layout.spans import BOS, EOS, Spans

WIDTH = 6


def spans_of(frames, width=WIDTH):
    """Spans from a list of frames, each a list of (document, start, length, at, flags)."""
    flat = [span for frame in frames for span in frame]
    columns = np.array(flat, np.int64).reshape(-1, 5).T
    return Spans(
        width=width,
        frame=np.cumsum([0, *map(len, frames)]),
        document=columns[0],
        start=columns[1],
        length=columns[2],
        at=columns[3],
        address=columns[0] * 100 + columns[1],
        flags=columns[4].astype(np.uint8),
        seen=np.zeros(len(flat), np.int64),
        source=np.arange(len(frames), dtype=np.int32) % 2,
        sources=("a", "b"),
    )


@st.composite
def a_frame(draw):
    """Spans that stand in order, with gaps, in a frame of WIDTH cells."""
    found, at = [], draw(st.integers(0, 2))
    while at < WIDTH:
        flags = draw(st.sampled_from([0, 0, BOS, EOS, BOS | EOS]))
        inserted = bin(flags).count("1")
        length = draw(st.integers(0 if inserted else 1, 4))
        if at + length + inserted > WIDTH:
            break
        found.append((draw(st.integers(0, 9)), draw(st.integers(0, 9)), length, at, flags))
        at += length + inserted + draw(st.integers(0, 2))
    return found


frames = st.lists(a_frame(), max_size=5)
