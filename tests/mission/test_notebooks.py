"""What a notebook shows of a batch: the cells of its first rows, and nothing unescaped."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from toyruns import toy_store

SHOWN = 8  # rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("toy")).pack(16)


def strips(page, width):
    """Of every row: (first cell, last cell) of its documents, as titles and places agree."""
    inside = page.split("</style>")[1].removesuffix("</div>").join(["<div>", "</div>"])
    found = []
    for row in ElementTree.fromstring(inside).iter("li"):
        filler, *documents = row.iter("rect")
        assert (filler.get("class"), filler.get("width")) == ("filler", "100%")
        found.append([])
        for rect in documents:
            first, last = map(int, re.search(r"cells (\d+) to (\d+)", rect[0].text).groups())
            x, wide = (float(rect.get(name).rstrip("%")) * width / 100 for name in ("x", "width"))
            assert (x, x + wide) == pytest.approx((first, last + 1), abs=1e-3)
            found[-1].append((first, last))
    return found


@pytest.mark.parametrize("rows", [1, SHOWN, SHOWN + 1, SHOWN + 3])
def test_the_first_rows_are_drawn_cell_by_cell_and_the_others_are_counted(run, rows):
    batch = run.batch(range(rows))
    page = batch._repr_html_()
    drawn = strips(page, batch.shape[1])
    assert len(drawn) == min(rows, SHOWN)
    more = re.search(r"and (\d+) more rows", page)
    assert (int(more[1]) if more else 0) == rows - len(drawn)
    for row, pieces in zip(batch.segment_ids, drawn, strict=False):
        cells = [cell for a, b in pieces for cell in range(a, b + 1)]
        assert cells == np.flatnonzero(row).tolist()  # all others are filler
        assert [len(set(row[a : b + 1])) for a, b in pieces] == [1] * len(pieces)
