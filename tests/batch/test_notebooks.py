"""What a notebook shows of a batch: the cells of its first rows, and nothing unescaped."""

import re
from xml.etree import ElementTree

import pytest
from toyruns import toy_store

from tokenloom.batch.views.html import SHOWN, table


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("toy")).pack(16)


def strips(page):
    """Of every row that is drawn: (first cell, last cell, cells, class) of its pieces."""
    rows = {}
    for rect in ElementTree.fromstring(
        page.split("</style>")[1].removesuffix("</div>").join(["<div>", "</div>"])
    ).iter("rect"):
        first, last = re.search(r"cells (\d+) to (\d+)", rect.find("title").text).groups()
        assert int(rect.get("x")) == int(first)
        piece = (int(first), int(last), int(rect.get("width")), rect.get("class"))
        rows.setdefault(int(rect.get("y")), []).append(piece)
    return [rows[y] for y in sorted(rows)]


@pytest.mark.parametrize("rows", [1, SHOWN, SHOWN + 1, SHOWN + 3])
def test_the_first_rows_are_drawn_cell_by_cell_and_the_others_are_counted(run, rows):
    batch = run.batch(range(rows))
    page = batch._repr_html_()
    drawn = strips(page)
    assert len(drawn) == min(rows, SHOWN)
    more = re.search(r"and (\d+) more rows", page)
    assert (int(more[1]) if more else 0) == rows - len(drawn)
    for row, pieces in zip(batch.segment_ids.tolist(), drawn, strict=False):
        cells = [cell for a, b, _, _ in pieces for cell in range(a, b + 1)]
        assert cells == list(range(batch.shape[1]))
        assert [n for *_, n, _ in pieces] == [b + 1 - a for a, b, *_ in pieces]
        for a, b, _, colour in pieces:
            assert len(set(row[a : b + 1])) == 1
            assert (colour == "filler") == (row[a] == 0)


def test_a_table_has_numbers_with_commas_and_words_as_they_are():
    page = table("<Store>", [("documents", 12345), ("sealed", True), ("name", "<b>")])
    assert "<b>&lt;Store&gt;</b>" in page
    assert ">12,345</td>" in page
    assert ">True</td>" in page
    assert ">&lt;b&gt;</td>" in page
