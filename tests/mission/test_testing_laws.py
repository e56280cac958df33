"""The laws of `tokenloom.testing` can fail: loaders and runs that break them are found."""

import numpy as np
import pytest
from refusals import refused
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.testing import assert_elastic, assert_exactly_once, assert_resumable


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


def test_an_empty_run_shows_everything_once_and_has_no_step_to_resume(store):
    empty = toy_run(store).take(0)
    assert_exactly_once(empty)
    for law in (assert_resumable, assert_elastic):
        with pytest.raises(tl.ConfigError):
            law(empty)


CHANGES = {  # of the rows of epoch 1
    "a row twice": lambda epoch, row: np.where((epoch == 1) & (row == 5), 6, row),
    "a row too many": lambda epoch, row: np.where(epoch == 1, row + 1, row),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_row_twice_or_nowhere_is_found(store, monkeypatch, change):
    run = toy_run(store)
    assert_exactly_once(run)
    kind, really = type(run.run), type(run.run).locate

    def locate(self, indices):
        epoch, row = really(self, indices)
        return epoch, CHANGES[change](epoch, row)

    monkeypatch.setattr(kind, "locate", locate)
    refused(lambda: assert_exactly_once(run), AssertionError, "epoch 1", "row")


class CountsWhatWasPrefetched(tl.Loader):
    def state_dict(self):
        state = super().state_dict()
        return {**state, "examples": state["examples"] + (state["examples"] and 4)}


class RepeatsAfterRestore(tl.Loader):
    def load_state_dict(self, state, **options):
        super().load_state_dict({**state, "examples": max(0, state["examples"] - 4)}, **options)


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


class NeverEnds(OtherLabelsAfterRestore):
    def __next__(self):
        try:
            return tl.Loader.__next__(self)
        except StopIteration:
            if not self.restored:
                raise
            return self.seek(0).__next__()


@pytest.mark.parametrize(
    ("loader", "named"),
    [
        (CountsWhatWasPrefetched, ("examples is 12", 8)),
        (RepeatsAfterRestore, ("step 1", "examples is 0")),
        (OtherLabelsAfterRestore, ("step 2", "labels[2, 5]", 77)),
        (NeverEnds, ("step 3",)),
    ],
)
def test_a_loader_that_does_not_resume_is_found(store, loader, named):
    run = toy_run(store)
    run = run.take(12) if loader is NeverEnds else run
    assert_resumable(run)
    refused(lambda: assert_resumable(run, loader=loader), AssertionError, *named)


def another_order_for_every_world(dataset, batch_size, rank=0, world=1):
    return tl.Loader(dataset.seed(world), batch_size, rank, world)


def the_same_rows_twice(dataset, batch_size, rank=0, world=1):
    return tl.Loader(dataset, batch_size, min(rank, max(0, world - 2)), world)


class EndsEarly(tl.Loader):
    def __next__(self):
        if self.rank == 1 and self.step == 2:
            raise StopIteration
        return super().__next__()


class LosesItsPlaceWhenTheWorldChanges(tl.Loader):
    def load_state_dict(self, state, **options):
        super().load_state_dict({**state, "examples": state["step"] * 12}, **options)


@pytest.mark.parametrize(
    ("loader", "named"),
    [
        (another_order_for_every_world, ("7 ranks",)),
        (the_same_rows_twice, ("step 0", "7 ranks", "index")),
        (EndsEarly, ("step 2", "7 ranks", "[1]")),
        (LosesItsPlaceWhenTheWorldChanges, ("step 1", "[1, 7, 3]")),
    ],
)
def test_a_loader_that_depends_on_the_number_of_ranks_is_found(store, loader, named):
    dataset = toy_run(store)
    assert_elastic(dataset)
    refused(lambda: assert_elastic(dataset, loader=loader), AssertionError, *named)
