"""A run of one source is the orders of its epochs, one after the other, and nothing else."""

import numpy as np
import pytest
from toydata import ToyStore, numbered

from tokenloom.order.shuffle import BlockShuffle, EraShuffle, FullShuffle
from tokenloom.testing import tiny

EPOCHS = 5

SHUFFLES = {
    "stored": None,
    "full": FullShuffle(),
    "linear": FullShuffle(perm_type="linear"),
    "era": EraShuffle(length=3),
    "block": BlockShuffle(io_block_size=2, window_blocks=2),
    "lanes": BlockShuffle(io_block_size=1, window_blocks=1, lanes=2),
}


@pytest.fixture(scope="module", params=[1, 2, 3, 6, 9])
def windows(request):
    """Rows of two tokens, in stored order."""
    with ToyStore(numbered([[2 * request.param]])) as toy:
        yield toy.store.windows(2)


@pytest.fixture(params=SHUFFLES)
def endless(request, windows):
    shuffle = SHUFFLES[request.param]
    return (windows if shuffle is None else windows.shuffle(shuffle)).epochs(None).seed(5)


def slow(run):
    """(epoch, row) of the first examples, one epoch after the other."""
    return [
        (epoch, row)
        for epoch in range(EPOCHS)
        for row in run.order(epoch).map(np.arange(run.rows)).tolist()
    ]


def pairs(epoch, row):
    return list(zip(np.broadcast_to(epoch, row.shape).tolist(), row.tolist(), strict=True))


def test_examples_are_the_orders_of_epochs_one_after_the_other(endless):
    run = endless.run
    wanted = slow(run)
    for epoch in range(EPOCHS):
        shown = sorted(row for e, row in wanted if e == epoch)
        assert shown == list(range(run.rows)), "every row once"
    every = np.arange(len(wanted))
    assert pairs(*run.locate(every)) == wanted
    back = every[::-1].copy()
    assert pairs(*run.locate(back)) == wanted[::-1]
    assert [pairs(*run.locate(every[k : k + 1])) for k in every] == [[one] for one in wanted]
    assert [len(one) for one in run.locate(every[:0])] == [0, 0]
    for epoch in range(EPOCHS):
        items = run.items(epoch, np.arange(run.rows)).tolist()
        assert [wanted[item] for item in items] == [(epoch, row) for row in range(run.rows)]
        assert run.items(epoch, np.array([run.rows])).tolist() == [-1], "no such row"


@pytest.mark.parametrize("long", [1, 256])
def test_any_stretch_of_examples_is_cut_from_them(endless, long):
    with tiny(min_mapped_epoch_rows=long):
        wanted = slow(endless.run)
        for first in range(2 * endless.run.rows + 2):
            for last in (first, first + 1, first + 2, first + endless.run.rows, len(wanted)):
                assert pairs(*endless.run.rows_from(first, last)) == wanted[first:last]


def test_epochs_are_counted_when_they_are_whole(endless):
    run, rows = endless.run, endless.run.rows
    for examples in range(3 * rows + 1):
        (one,) = run.consumed(examples)
        assert one == ("main", examples, 2 * examples, examples // rows)
    assert [run.end_of(epochs) for epochs in range(4)] == [0, rows, 2 * rows, 3 * rows]


@pytest.mark.parametrize(
    ("epochs", "take", "wanted"),
    [(2, None, 2.0), (2, 1, 1), (1, 10**6, 1.0), (None, 7, 7), (None, None, None), (0, None, 0)],
)
def test_a_run_ends_with_its_epochs_or_with_what_was_taken(windows, epochs, take, wanted):
    made = windows.epochs(epochs)
    run = (made if take is None else made.take(take)).run
    n = int(wanted * run.rows) if isinstance(wanted, float) else wanted
    assert run.n == n
    if n is None:
        assert run.reaches(0, 10**15)
        assert run.index(0, np.array([10**15])).tolist() == [10**15]
        return
    assert [run.reaches(0, item) for item in (n - 1, n)] == [True, False]
    assert run.index(0, np.array([0, n - 1, n])).tolist() == [0 if n else -1, n - 1, -1]
    assert run.tokens_in(n) == 2 * n
    with pytest.raises(IndexError, match=f"examples {n + 1}: out of range, allowed: 0 to {n}"):
        run.tokens_in(n + 1)


def test_lanes_of_a_run_are_those_of_its_epochs(endless):
    run, rows = endless.run, endless.run.rows
    every = np.arange(EPOCHS * rows)
    found = run.fractions(every)
    if run.lanes == 1:
        assert found is None
        assert run.fraction_period(0, rows) == 0
        return
    wanted = [run.order(epoch).fractions(np.arange(rows)) for epoch in range(EPOCHS)]
    assert found.tolist() == np.concatenate(wanted).tolist()
    for first in range(2 * rows):
        for last in range(first + 1, 2 * rows + 1):
            period = run.fraction_period(first, last)
            some = found[first:last]
            assert period == 0 or (some[period:] == some[:-period]).all()
            if first < rows < last:
                assert period == 0, "an epoch ends in between"
    if rows % 2 == 0:
        assert run.fraction_period(0, rows) == 2
        assert run.fraction_period(rows, 2 * rows) == 2
