"""Long work shows how far it is, up to the end; short work shows nothing."""

import functools
import logging

import pytest
from toydata import ToyStore, numbered

from tokenloom.layout.pack import kept_rows
from tokenloom.layout.pack import rows as grouping
from tokenloom.testing import tiny

SIZES = [[3, 9, 1, 5, 16], [7] * 12, [2, 14, 8]]  # 20 documents


class Shown:
    """Stands for a progress bar, and notes what it is told."""

    def __init__(self, every, what, *, total, unit, show):
        self.what, self.total, self.unit, self.show, self.reached = what, total, unit, show, []
        every.append(self)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def reach(self, count):
        self.reached.append(count)


@pytest.fixture
def shown(monkeypatch):
    every = []
    for module in (grouping, kept_rows):
        monkeypatch.setattr(module, "Progress", functools.partial(Shown, every))
    return every


@pytest.mark.parametrize(("limit", "show"), [(21, False), (20, None), (19, None)])
def test_documents_that_are_packed_are_counted_group_by_group(shown, limit, show, caplog):
    with (
        ToyStore(numbered(SIZES)) as toy,
        tiny(min_progress_packing_documents=limit),
        caplog.at_level(logging.INFO, "tokenloom"),
    ):
        toy.store.pack(16, group_docs=6)
    (one,) = [each for each in shown if each.unit == " documents"]
    assert (one.what, one.total, one.show) == ("packing", 20, show)
    assert one.reached == [6, 12, 18, 20]
    assert ("packing 20 documents into about 10 rows" in caplog.text) == (show is None)
