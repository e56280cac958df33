"""Strips: marks are where their cells are, and never too many."""

import re

import numpy as np
import pytest

from tokenloom.page.strips import MOST_SEGMENTS, Strip, StripSegment, strips_html


def rects(drawn, class_):
    """(first, width) in per cent of the rectangles of a class."""
    found = re.findall(
        r'<rect x="([\d.e-]+)%" width="([\d.e-]+)%" height="22" class="([^"]*)"', drawn
    )
    return [(float(x), float(w)) for x, w, name in found if name.split()[-1] == class_]


def strip(segments, cells=100, trained=None):
    return Strip(name="row 0", cells=cells, segments=tuple(segments), trained=trained)


def segment(first, cells, **more):
    return StripSegment(first=first, cells=cells, words=f"cells from {first}", **more)


def test_segments_are_where_their_cells_are():
    drawn = strips_html([strip([segment(10, 30), segment(40, 20)])])
    assert rects(drawn, "s1") == [(10, 30)]
    assert rects(drawn, "s2") == [(40, 20)]
    assert rects(drawn, "filler") == [(0, 100)]
    told = strips_html([strip([segment(10, 30), segment(40, 20)], trained=np.ones(100, np.bool_))])
    assert rects(told, "pale") == rects(told, "on") == [(10, 30), (40, 20)]


def test_cells_without_loss_stay_pale():
    trained = np.zeros(100, np.bool_)
    trained[15:20], trained[30:40] = True, True
    drawn = strips_html([strip([segment(10, 30)], trained=trained)])
    assert rects(drawn, "on") == [(15, 5), (30, 10)]
    none = strips_html([strip([segment(10, 30)], trained=np.zeros(100, np.bool_))])
    assert rects(none, "on") == []


@pytest.mark.parametrize("count", [MOST_SEGMENTS, MOST_SEGMENTS + 1, 5000])
def test_many_segments_are_drawn_together(count):
    trained = np.ones(count, np.bool_)
    drawn = strips_html([strip([segment(n, 1) for n in range(count)], count, trained)])
    pale = rects(drawn, "pale")
    assert len(pale) <= MOST_SEGMENTS + 1
    assert sum(width for _, width in pale) == pytest.approx(100, abs=0.5)
    assert ("segments in cells" in drawn) == (count > MOST_SEGMENTS)
