"""Long work shows how far it is, up to the end; short work shows nothing."""

import functools
import logging

import numpy as np
import pytest
from toydata import ToyStore, numbered
from toystore import keep_plans

import tokenloom as tl
from tokenloom.layout.pack import kept_rows
from tokenloom.layout.pack import rows as grouping
from tokenloom.order import costs as costs_module
from tokenloom.order.costs import SummedCosts
from tokenloom.order.prices import RunPrices
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
    for module in (grouping, kept_rows, costs_module):
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
    told = (
        "packing 20 documents into about 10 rows: the plan is made once, in about 0 s"
        in caplog.text
    )
    assert told == (show is None)


@pytest.mark.parametrize(("limit", "show"), [(5, False), (4, None)])
def test_groups_that_are_planned_for_a_file_are_counted(shown, limit, show, tmp_path):
    some = {"min_progress_packing_groups": limit, "packing_table_bytes": 100}
    with keep_plans(tmp_path / "cache", **some), ToyStore(numbered(SIZES)) as toy:
        run = tl.open(toy.path).pack(16, group_docs=6)
        run.spans(np.arange(len(run)))
        with tiny(packing_table_bytes=1 << 20):
            other = tl.open(toy.path).pack(16, group_docs=6, strategy="greedy")
            other.spans(np.arange(len(other)))
    one, all_fit = [each for each in shown if each.unit == " groups"]
    assert (one.what, one.total, one.show) == ("packing", 4, show)
    assert one.reached == all_fit.reached == [1, 2, 3, 4]
    assert all_fit.show is False, "what is at hand is only written"


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("order", ["rows", "blocks"])  # added up by rows, or as they come
@tiny(cost_chunk_items=4, cost_stride_items=2)
def test_costs_that_are_added_up_are_counted_chunk_by_chunk(shown, order, more, caplog):
    with ToyStore(numbered(SIZES)) as toy:
        made = toy.store.pack(16, group_docs=6)
        run = (made.shuffle() if order == "rows" else made.block_shuffle(window_blocks=2)).run
        with (
            tiny(min_progress_cost_items=run.rows + more),
            caplog.at_level(logging.INFO, "tokenloom"),
        ):
            sums = SummedCosts(RunPrices(run, 1), None)._sums_of(0)
    assert len(sums) == -(-run.rows // 2) + 1
    (one,) = [each for each in shown if each.unit == " rows"]
    assert (one.what, one.total) == ("adding up costs", run.rows)
    assert one.show is (False if more > 0 else None)
    assert one.reached == [*range(4, run.rows, 4), run.rows]
    assert (f"adding up the costs of {run.rows} rows of epoch 0" in caplog.text) == (more <= 0)


def test_every_source_of_a_mix_tells_that_its_windows_do_not_fit(tmp_path):
    with ToyStore(numbered([[40] * 8])) as toy:
        made = {name: toy.store.windows(4).block_shuffle(window_blocks=2) for name in "ab"}
        run = tl.mix(made).run
        with pytest.warns(UserWarning, match="block_shuffle") as told:
            run.warn_if_too_large(1)
        assert len(told) == 2
