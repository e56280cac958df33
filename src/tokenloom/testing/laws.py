"""The laws of a loader, to check against any dataset, tokenloom's own or yours.

One idea: a law compares a dataset with itself. The same run is iterated over once without a stop,
and again with stops, with another number of ranks, or backwards, and all results must be equal bit
for bit; no expected value has to be known.

A law that does not hold raises `AssertionError`, which tells what differs and where.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.batch.batch import Batch
from tokenloom.batch.views.named import all_fields
from tokenloom.errors import NoTrainedTokens
from tokenloom.limits import limits
from tokenloom.loader.loader import Loader

__all__ = ["assert_elastic", "assert_exactly_once", "assert_resumable"]

Array = NDArray[Any]

Contents = dict[str, Array]

State = dict[str, Any]

MakeLoader = Callable[..., Loader]

SPAN_FIELDS = ("document", "start", "length", "at", "address", "flags")


def assert_resumable(
    dataset: Dataset, *, batch_size: int = 4, steps: int = 8, loader: MakeLoader = Loader
) -> None:
    """Check exact resume: stopped before any step, a run continues as if it had not been stopped.

    The state before every step, and the one after the last, is passed through JSON into a fresh
    loader. It must be the same state right after loading, and everything after it must equal the
    run without a stop: every array of every batch, and every later state. Then one run is stopped
    and restored before each of its steps.

    Args:
        dataset: finite or endless.
        batch_size: rows of a step.
        steps: number of steps to check; fewer if the run ends earlier.
        loader: makes a loader; called like `Loader`.

    Raises:
        AssertionError: naming the step, the array and the first cell that differ.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     assert_resumable(store.windows(2).shuffle().epochs(2), batch_size=4)
    """
    whole = loader(dataset, batch_size)
    states, batches = [whole.state_dict()], list[Contents]()
    for batch in _some(whole, steps):
        batches.append(_contents(batch))
        states.append(whole.state_dict())
    ended = len(batches) < steps
    whole.close()
    for first in range(len(states)):
        where = f"restored before step {first}"
        resumed = _restored(loader(dataset, batch_size), states[first], where)
        for step in range(first, len(batches)):
            _same(_contents_of_next(resumed, step, where), batches[step], f"step {step}, {where}")
            _same_state(resumed.state_dict(), states[step + 1], f"after step {step}, {where}")
        if ended and next(resumed, None) is not None:
            raise AssertionError(f"{where}: step {len(batches)} comes, but the run had ended")
        resumed.close()
    state = states[0]
    for step, batch_then in enumerate(batches):
        where = f"restored before every step up to {step}"
        resumed = _restored(loader(dataset, batch_size), state, where)
        _same(_contents_of_next(resumed, step, where), batch_then, f"step {step}, {where}")
        state = resumed.state_dict()
        resumed.close()


def assert_elastic(
    dataset: Dataset,
    worlds: Sequence[int] = (1, 7, 3),
    *,
    batch_size: int = 16,
    steps: int = 6,
    loader: MakeLoader = Loader,
) -> None:
    """Check that a run has one order for any number of ranks, even if it changes in mid-run.

    The concatenated batches of all ranks must be the same for every number of ranks, and all ranks
    must have the same state. Then one run changes to the next number of ranks before every step.

    Args:
        dataset: finite or endless.
        worlds: numbers of ranks; the others are compared with the first.
        batch_size: rows of a step over all ranks, at least the number of ranks.
        steps: number of steps to check; fewer if the run ends earlier.
        loader: makes a loader; called like `Loader`.

    Raises:
        AssertionError: naming the step, the rank, the array and the first cell that differ.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     assert_elastic(store.windows(2).shuffle().epochs(2), worlds=(1, 2, 3), batch_size=4)
    """
    known = list(_walk(dataset, worlds[:1], batch_size, steps, loader))
    for world in worlds[1:]:
        found = list(_walk(dataset, [world], batch_size, steps, loader))
        _same_walk(found, known, f"{world} ranks against {worlds[0]}")
    found = list(_walk(dataset, worlds, batch_size, steps, loader))
    _same_walk(found, known, f"changing between {list(worlds)} ranks before every step")


def assert_exactly_once(dataset: Dataset, *, epochs: int = 2) -> None:
    """Check the epochs of a run: each has every row exactly once, and its order has an inverse.

    Args:
        dataset: finite or endless; a last epoch that was cut short has no row twice.
        epochs: number of epochs to check if it is endless.

    Raises:
        AssertionError: naming the epoch, the row, and the indices it comes at.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "the quick brown fox"}], folder + "/toy", tokenizer="bytes")
    ...     assert_exactly_once(store.windows(2).shuffle().epochs(3))
    """
    chunk = limits().inspected_chunk_examples
    (run,) = dataset_of("assert_exactly_once", dataset).run.sources
    phases = run.phases
    end = len(dataset) if dataset.is_finite else phases.end(epochs)
    epoch, begin = 0, 0
    while begin < end:
        rows = int(phases.rows[phases.of(epoch)])
        stop = min(phases.start(epoch + 1), end)
        place = np.full(rows, -1, np.int64)  # index of each row; no row twice means every row once
        for first in range(begin, stop, chunk):
            indices = np.arange(first, min(first + chunk, stop))
            _look_up(dataset, epoch, indices, place)
        epoch, begin = epoch + 1, stop


def _look_up(dataset: Dataset, epoch: int, indices: NDArray[np.int64], place: Array) -> None:
    """Record the rows at some indices of an epoch; raise if one is wrong or a repetition."""
    epochs, rows = dataset.locate(indices)
    wrong = np.flatnonzero((epochs != epoch) | (rows < 0) | (rows >= len(place)))
    if len(wrong):
        at = wrong[0]
        raise AssertionError(
            f"index {indices[at]}: it is row {rows[at]} of epoch {epochs[at]}, but it should be "
            f"one of the {len(place)} rows of epoch {epoch}"
        )
    _, first_here, which = np.unique(rows, return_index=True, return_inverse=True)
    again = np.flatnonzero((place[rows] >= 0) | (first_here[which] != np.arange(len(rows))))
    if len(again):
        at = again[0]
        before = place[rows[at]] if place[rows[at]] >= 0 else indices[first_here[which[at]]]
        raise AssertionError(
            f"epoch {epoch}: row {rows[at]} comes twice, at index {before} and at {indices[at]}"
        )
    place[rows] = indices
    back = dataset.run.sources[0].items(epoch, rows)
    if (back != indices).any():
        at = np.flatnonzero(back != indices)[0]
        raise AssertionError(
            f"epoch {epoch}: row {rows[at]} comes at index {indices[at]}, but the inverse of the "
            f"order gives {back[at]}"
        )


# -- walking -------------------------------------------------------------------------------
def _some(batches: Iterator[Batch], count: int) -> Iterator[Batch]:
    """At most `count` batches; no more are taken from the iterator."""
    for _ in range(count):
        batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _restored(fresh: Loader, state: State, where: str) -> Loader:
    """A fresh loader in that state, which is passed through JSON and checked afterwards."""
    fresh.load_state_dict(json.loads(json.dumps(state, allow_nan=False)))
    _same_state(fresh.state_dict(), state, f"{where}: right after loading")
    return fresh


def _contents_of_next(loader: Loader, step: int, where: str) -> Contents:
    batch = next(loader, None)
    if batch is None:
        raise AssertionError(f"{where}: step {step} is missing, the run has ended")
    return _contents(batch)


def _walk(
    dataset: Dataset,
    worlds: Sequence[int],
    batch_size: int,
    steps: int,
    loader: MakeLoader,
) -> Iterator[list[Contents]]:
    """The part of each step on each rank, while the number of ranks cycles through `worlds`."""
    ranks, state = list[Loader](), dict[str, Any]()
    for step in range(steps):
        world = worlds[step % len(worlds)]
        if len(ranks) != world:
            for one in ranks:
                one.close()
            ranks = [loader(dataset, batch_size, rank, world) for rank in range(world)]
            for one in ranks if state else ():
                one.load_state_dict(state)
        batches = [next(rank, None) for rank in ranks]
        parts = [_contents(batch) for batch in batches if batch is not None]
        if parts and len(parts) < len(ranks):
            ended = [rank for rank, batch in enumerate(batches) if batch is None]
            raise AssertionError(f"step {step}: of {world} ranks, {ended} have ended, others not")
        state = ranks[0].state_dict()
        for number, rank in enumerate(ranks):
            _same_state(rank.state_dict(), state, f"after step {step}, rank {number} of {world}")
        if not parts:
            break
        yield parts
    for one in ranks:
        one.close()


# -- comparing -----------------------------------------------------------------------------
def _contents(batch: Batch) -> Contents:
    """Everything in a batch, as arrays; arrays that raise NoTrainedTokens are empty."""
    found: Contents = {"index": np.array(batch.index)}
    for name in all_fields():
        if name == "spans":
            found |= {f"spans.{part}": getattr(batch.spans, part) for part in SPAN_FIELDS}
            continue
        try:
            found[name] = np.array(getattr(batch, name))
        except NoTrainedTokens:
            found[name] = np.empty(0)
    return found


def _joined(parts: Sequence[Contents]) -> Contents:
    """The contents of a step, from those of its ranks."""
    whole: Contents = {}
    cells = np.cumsum([0] + [part["tokens"].size for part in parts])
    for name in parts[0]:
        arrays = [part[name] for part in parts]
        if name == "cu_seqlens":  # each rank counts from 0: shift by the cells before it
            moved = [array[:-1] + cells[rank] for rank, array in enumerate(arrays)]
            arrays = [*moved, cells[-1:]]
        elif name in ("document_starts", "continues"):  # as wide as the widest rank
            most = max(array.shape[1] for array in arrays)
            filler = -1 if name == "document_starts" else False
            arrays = [
                np.pad(a, ((0, 0), (0, most - a.shape[1])), constant_values=filler) for a in arrays
            ]
        shapes = {array.shape[1:] for array in arrays}
        whole[name] = np.concatenate(arrays) if len(shapes) == 1 else np.empty((0, len(shapes)))
    return whole


def _same_walk(
    found: Sequence[list[Contents]], wanted: Sequence[list[Contents]], where: str
) -> None:
    """Compare the steps of two walks."""
    for step, (parts, others) in enumerate(zip(found, wanted, strict=False)):
        rows = [len(part["index"]) for part in parts]
        _same(_joined(parts), _joined(others), f"step {step}, {where}", rows)
    if len(found) != len(wanted):
        raise AssertionError(f"{where}: {len(found)} steps, expected {len(wanted)}")


def _same(found: Contents, wanted: Contents, where: str, rows: Sequence[int] = ()) -> None:
    """Compare two steps; `rows` are the rows of each rank."""
    for name in wanted:
        a, b = found[name], wanted[name]
        if a.shape != b.shape:
            raise AssertionError(f"{where}: {name} has shape {a.shape}, expected {b.shape}")
        if (a == b).all():
            continue
        cell = tuple(int(i) for i in np.argwhere(a != b)[0])
        if len(rows) and not name.startswith(("cu_", "spans")):
            rank = int(np.searchsorted(np.cumsum(rows), cell[0], side="right"))
            where = f"{where}, rank {rank}"
        raise AssertionError(
            f"{where}: {name}{list(cell)} (row {cell[0]}) is {a[cell]}, expected {b[cell]}; "
            f"index {found['index'].reshape(-1)[:4].tolist()}…, expected "
            f"{wanted['index'].reshape(-1)[:4].tolist()}…"
        )


def _same_state(found: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    keys = [key for key in {**wanted, **found} if found.get(key) != wanted.get(key)]
    if keys:
        shown = ", ".join(f"{k} is {found.get(k)!r}, expected {wanted.get(k)!r}" for k in keys)
        raise AssertionError(f"{where}: the state differs: {shown}")
