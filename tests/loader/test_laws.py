"""The laws can fail: each is held against runs and loaders that break it, and says where."""

import numpy as np
import pytest
from toyruns import toy_run

import tokenloom as tl
from tokenloom.order.run import SourceRun
from tokenloom.testing import assert_elastic, assert_exactly_once, assert_resumable

# -- runs and loaders that hold them -------------------------------------------------------


def test_an_empty_run_shows_everything_once_and_has_no_step_to_resume(store):
    empty = toy_run(store).take(0)
    assert_exactly_once(empty)
    for law in (assert_resumable, assert_elastic):
        with pytest.raises(tl.ConfigError, match="no step at all"):
            law(empty)


# -- runs that break them ------------------------------------------------------------------


class BrokenRun(SourceRun):
    """Rows of epoch 1 are changed on the way out."""

    change = staticmethod(lambda rows: rows)
    back = staticmethod(lambda index: index)

    def locate(self, indices):
        epoch, row = super().locate(indices)
        return epoch, np.where(epoch == 1, self.change(row), row)

    def items(self, epoch, rows):
        return self.back(super().items(epoch, rows))


def broken(dataset, **ways):
    """The same dataset over a run that is broken in these ways."""
    fresh = dataset.seed(7)
    run = fresh.run
    run.__class__ = type("Broken", (BrokenRun,), {k: staticmethod(v) for k, v in ways.items()})
    return fresh


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ({"change": lambda rows: np.where(rows == 5, 6, rows)}, r"epoch 1: row 6 comes twice, at"),
        ({"change": lambda rows: rows + 1}, "it is row 37 of epoch 1"),
        ({"back": lambda index: index ^ 1}, r"comes at index \d+, but the inverse of the order"),
    ],
)
def test_a_row_twice_or_nowhere_is_found(store, ways, message):
    assert_exactly_once(broken(toy_run(store)))
    with pytest.raises(AssertionError, match=message):
        assert_exactly_once(broken(toy_run(store), **ways))


# -- loaders that break them ---------------------------------------------------------------


class CountsWhatWasPrefetched(tl.Loader):
    def state_dict(self):
        state = super().state_dict()
        ahead = state["examples"] and 4
        return {**state, "examples": state["examples"] + ahead}


class RepeatsAfterRestore(tl.Loader):
    def load_state_dict(self, state, **options):
        super().load_state_dict({**state, "examples": max(0, state["examples"] - 4)}, **options)


class CountsFromTheRestore(tl.Loader):
    """Resumed once it is right; its own states then say how far it got since."""

    base = 0

    def load_state_dict(self, state, **options):
        super().load_state_dict(state, **options)
        self.base = state["examples"]

    def state_dict(self):
        state = super().state_dict()
        since = state["examples"] - self.base
        return {**state, "examples": since or state["examples"]}


class OtherLabelsAfterRestore(tl.Loader):
    restored = False

    def load_state_dict(self, state, **options):
        super().load_state_dict(state, **options)
        self.restored = True

    def __next__(self):
        batch = super().__next__()
        if self.restored and self.step == 3:
            batch.labels[2, 5] = 77
        return batch


class NeverEnds(tl.Loader):
    def __init__(self, dataset, *place, **options):
        super().__init__(dataset, *place, **options)
        self.restored = False

    def load_state_dict(self, state, **options):
        super().load_state_dict(state, **options)
        self.restored = True

    def __next__(self):
        try:
            return super().__next__()
        except StopIteration:
            if not self.restored:
                raise
            return self.seek(0).__next__()


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (
            CountsWhatWasPrefetched,
            "right after loading: the state differs: examples is 12, expected 8",
        ),
        (RepeatsAfterRestore, "restored before step 1: right after loading: .* examples is 0"),
        (
            CountsFromTheRestore,
            "after step 1, restored before step 1: .* examples is 4, expected 8",
        ),
        (OtherLabelsAfterRestore, r"step 2, restored before step 0: labels\[2, 5\] .* is 77,"),
    ],
)
def test_a_loader_that_does_not_resume_is_found(store, loader, message):
    dataset = toy_run(store)
    assert_resumable(dataset)
    with pytest.raises(AssertionError, match=message):
        assert_resumable(dataset, loader=loader)


def test_a_run_that_continues_after_its_end_is_found(store):
    short = toy_run(store).take(12)
    assert_resumable(short)
    with pytest.raises(AssertionError, match="step 3 comes, but the run had ended"):
        assert_resumable(short, loader=NeverEnds)


def every_nth(dataset, batch_size, rank=0, world=1):
    """Rank r takes rows r, r + W, …: the same rows, but not one below the other."""
    loader = tl.Loader(dataset, batch_size, rank, world)
    loader._maker._rows = lambda step, stop, low, high: (
        np.concatenate(
            [
                np.arange(s * batch_size, (s + 1) * batch_size)[rank::world]
                for s in range(step, stop)
            ]
        ),
        [0, *np.cumsum([len(range(rank, batch_size, world))] * (stop - step)).tolist()],
    )
    return loader


def another_order_for_every_world(dataset, batch_size, rank=0, world=1):
    return tl.Loader(dataset.seed(world), batch_size, rank, world)


def overlapping(dataset, batch_size, rank=0, world=1):
    """Every rank but the first starts one row too early."""
    loader = tl.Loader(dataset, batch_size, rank, world)
    honest = loader._maker._rows
    loader._maker._rows = lambda step, stop, low, high: honest(
        step, stop, low - (rank > 0), high - (rank > 0)
    )
    return loader


class EndsEarly(tl.Loader):
    def __next__(self):
        if self.rank == 1 and self.step == 2:
            raise StopIteration
        return super().__next__()


class LosesItsPlaceWhenTheWorldChanges(tl.Loader):
    def load_state_dict(self, state, **options):
        super().load_state_dict({**state, "examples": state["step"] * 12}, **options)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (every_nth, r"step 0, 7 ranks against 1, rank 0: index\[1\] \(row 1\) is 7, expected 1"),
        (another_order_for_every_world, "the state differs|tokens"),
        (overlapping, r"step 0, 7 ranks against 1, rank 1: index\[\d+\]"),
        (EndsEarly, r"step 2: of 7 ranks, \[1\] have ended, others not"),
        (LosesItsPlaceWhenTheWorldChanges, r"step 1, changing between \[1, 7, 3\] ranks"),
    ],
)
def test_a_loader_that_depends_on_the_number_of_ranks_is_found(store, loader, message):
    dataset = toy_run(store, "stored" if loader is every_nth else "full")
    assert_elastic(dataset)
    with pytest.raises(AssertionError, match=message):
        assert_elastic(dataset, loader=loader)
