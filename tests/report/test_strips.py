"""Strips, columns and triangles: marks are where their cells are, and never too many."""

import re

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.page.charts import Mark
from tokenloom.page.histogram import columns
from tokenloom.page.sheet import asset
from tokenloom.page.strips import MOST_SEGMENTS, Strip, StripSegment, strip_legend, strips_html
from tokenloom.page.triangles import Block, attention_map
from tokenloom.report import report_on


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


def test_a_mask_of_every_other_token_is_as_coarse_as_the_drawing():
    trained = np.arange(100_000) % 2 == 0
    drawn = strips_html([strip([segment(0, 100_000)], 100_000, trained)])
    assert drawn.count("<rect") < 600


def test_an_edge_where_a_document_is_cut_is_torn_and_has_a_tick():
    drawn = strips_html([strip([segment(0, 50, after=True), segment(50, 1, before=True)])])
    assert drawn.count('class="torn"') == 1  # the other is too small to be torn
    assert drawn.count('class="tick"') == 2
    assert 'class="torn"' not in strips_html([strip([segment(0, 50)])])


@pytest.mark.parametrize("count", [MOST_SEGMENTS, MOST_SEGMENTS + 1, 5000])
def test_many_segments_are_drawn_together(count):
    trained = np.ones(count, np.bool_)
    drawn = strips_html([strip([segment(n, 1) for n in range(count)], count, trained)])
    pale = rects(drawn, "pale")
    assert len(pale) <= MOST_SEGMENTS + 1
    assert sum(width for _, width in pale) == pytest.approx(100, abs=0.5)
    assert ("segments in cells" in drawn) == (count > MOST_SEGMENTS)


@pytest.mark.parametrize("count", [MOST_SEGMENTS, 300])
def test_the_grey_of_documents_that_are_drawn_together_is_in_the_legend(tmp_path, count):
    rows = [{"text": "ab"}] * count
    store = tl.build(rows, tmp_path / "s", tokenizer="bytes", progress=False)
    run = store.pack(2 * count)
    for page in (report_on(run, batch_size=1).html, run.view(step=0, batch_size=1)._repr_html_()):
        assert ("grey: several documents" in page) == (count > MOST_SEGMENTS)


def test_words_are_escaped_and_read_aloud():
    bad = StripSegment(first=0, cells=5, words="<b>\u202e", series=3)
    drawn = strips_html([Strip(name="<i>", cells=5, segments=(bad,), about="&")])
    assert "<b>" not in drawn
    assert "<i>" not in drawn
    assert "‹U+202E›" in drawn
    assert 'role="img"' in drawn
    assert 'aria-label="&lt;i&gt;: 1 segment in 5 cells"' in drawn


def test_an_empty_row_and_no_row_are_drawn():
    assert rects(strips_html([strip([], 0)]), "filler") == [(0, 100)]
    assert strips_html([]) == '<div class="strip-list"><ol class="strips"></ol></div>'
    assert "cut" not in strip_legend(cut=False)


def test_columns_are_as_high_as_their_values():
    drawn = columns(["1", "2", "4"], {"a": [1, 2, 4], "b": [4, 0, 2]}, 720, "x", below="tokens")
    found = re.findall(r'height="([\d.]+)" class="(s\d)"', drawn)
    heights = {one: [float(h) for h, c in found if c == one] for one in ("s1", "s2")}
    assert heights["s1"] == pytest.approx([55, 110, 220])
    assert heights["s2"] == pytest.approx([220, 110])  # nothing is drawn for nothing
    assert columns([], {}, 340, "x", below="tokens").startswith("<svg")


def test_a_mark_stands_between_its_bins():
    drawn = columns(["1", "2"], {"a": [1, 1]}, 340, "x", below="t", marks=[Mark(1, "here")])
    assert 'd="M188 33V257" class="mark"' in drawn
    (words,) = re.findall(r'y="([\d.]+)">here<', drawn)
    assert 33 - float(words) >= 6  # letters such as g end above the line


@pytest.mark.parametrize("count", [1, 2, 100, 3000])
def test_a_map_has_one_path_for_each_colour(count):
    blocks = [Block(n, n + 1, f"s{n % 8 + 1}") for n in range(count)]
    drawn = attention_map(blocks, count, "x", all_pairs=False)
    assert drawn.count("<path") == min(count, 8) + 1  # and the axis
    assert drawn.count("M") - 1 == count
    assert "crossing" not in drawn
    assert "crossing" in attention_map(blocks, count, "x", all_pairs=True)


def test_the_smallest_triangle_is_seen():
    drawn = attention_map(
        [Block(0, 1, "s1"), Block(1, 1 << 20, "s2")], 1 << 20, "x", all_pairs=False
    )
    first = re.search(r'd="M22 24L([\d.]+) ', drawn)
    assert float(first[1]) - 22 >= 1.5


def test_neighbours_of_one_colour_are_told_apart_by_their_shade():
    def classes(*colours):
        segments = tuple(
            StripSegment(first=2 * n, cells=2, words=f"document {n}", series=colour)
            for n, colour in enumerate(colours)
        )
        drawn = strips_html([Strip(name="row", cells=2 * len(colours), segments=segments)])
        return re.findall(r'class="(s\d[^"]*)"', drawn)

    assert classes(0, 0, 0, 1, 1) == ["s1", "s1 odd", "s1", "s2", "s2 odd"]
    assert classes(0, 1, 0) == ["s1", "s2", "s1"]
    assert ".strip .odd {" in asset("page.css")
