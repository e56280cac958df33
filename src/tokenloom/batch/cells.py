"""The cells of a batch: memory for them, and runs of tokens copied into them.

One idea: the location of every run in a group of batches is recorded once and checked once
(`copier`). Filling a batch is then one call that copies, widens and pads.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tokenloom import native
from tokenloom.arrays import Array, Int64
from tokenloom.layout.layout import Reads
from tokenloom.store.payload import read_failed
from tokenloom.store.slabs import LARGE, SlabPool

LINE = 64  # bytes of a cache line

SAMPLE = 64  # runs examined before all of them are announced

STORED = np.dtype(np.int32)  # any array that is in a file

TOKENS = frozenset(np.dtype(one) for one in (np.uint16, np.uint32, np.int32))

TOKEN_CELLS = frozenset(np.dtype(one) for one in (np.int32, np.int64))

_POOL = SlabPool()


def new_array(shape: tuple[int, ...], dtype: Any) -> Array:
    """An uninitialised array; large ones reuse memory from a pool."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size < LARGE:
        return np.empty(shape, kind)
    return _POOL.take(size, shape, kind)


def new_arrays(shape: tuple[int, ...], dtypes: tuple[Any, ...]) -> list[Array]:
    """Several uninitialised arrays of one shape, in one piece of memory."""
    size, places = _side_by_side(math.prod(shape), dtypes)
    memory = new_array((size,), np.uint8)
    return [np.ndarray(shape, kind, memory, start) for kind, start in places]


@functools.lru_cache(maxsize=64)
def _side_by_side(cells: int, dtypes: tuple[Any, ...]) -> tuple[int, list[tuple[Any, int]]]:
    """The bytes taken by one array of `cells` cells for each dtype, and where each array starts."""
    kinds = [np.dtype(one) for one in dtypes]
    sizes = [-(-cells * kind.itemsize // LINE) * LINE for kind in kinds]
    starts = [0, *itertools.accumulate(sizes)]
    return starts[-1], list(zip(kinds, starts[:-1], strict=True))


class Runs(NamedTuple):
    """Which runs of a copier go into a batch.

    Attributes:
        first: the first run.
        last: one past the last run; the cells of the runs ascend and do not overlap.
        base: the cell that is the first of the batch.
        filler: the value of cells without a run.
    """

    first: int
    last: int
    base: int
    filler: int


class Copier(Protocol):
    """Runs of tokens in memory; any range of them can be copied into cells."""

    def fill(self, out: Array, first: int, last: int, base: int, filler: int, /) -> Any:
        """Write runs [first, last) into their cells, counted from `base`; `filler` elsewhere.

        Args:
            out: contiguous, of any shape, of the dtype that `copier` was asked for.
            first: see `Runs`, as the others.
            last: see `Runs`.
            base: see `Runs`.
            filler: see `Runs`.

        Returns:
            None, or what `read_failed` takes if a file could not be read.

        Raises:
            IndexError: a run lies outside `out`, or two runs overlap.
        """


def fill(copier: Copier, out: Array, runs: Runs) -> None:
    """Write runs into their cells; see `Copier`.

    Raises:
        StoreError: a file could not be read, or differs from what was published.
    """
    failed = copier.fill(out, *runs)
    if failed is not None:
        raise read_failed(*failed)


def announce(copier: Copier) -> int:
    """Tell the system that all runs in files are needed soon, unless a sample is in memory.

    Returns:
        the number of runs it was told of.
    """
    tell = getattr(copier, "announce", None)
    return 0 if tell is None else tell(SAMPLE)


def copier(
    views: Sequence[Array],
    which: Int64,
    low: Int64,
    length: Int64,
    cell: Int64,
    cells: Any = np.int32,
) -> Copier:
    """A copier of runs; it keeps the views alive.

    Args:
        views: the arrays that hold the tokens, or payloads (`tokenloom.store.payload`).
        which: the view of each run [runs].
        low: its first element there [runs].
        length: its elements [runs].
        cell: its first cell [runs].
        cells: dtype of the cells. Payloads fill int32 and int64.

    Raises:
        IndexError: a run is not inside its view.

    >>> words = np.array([5, 6, 7, 8], np.uint16)
    >>> runs = np.array([[0, 0], [2, 0], [2, 1], [0, 3]])
    >>> out = np.empty((1, 5), np.int32)
    >>> copier([words], *runs).fill(out, 0, 2, 0, -1)
    >>> out.tolist()
    [[7, 8, -1, 5, -1]]
    """
    make = native.compiled.Copier if _is_compiled(views, cells) else _NumpyCopier
    index = (native.plain(part, np.int64) for part in (which, low, length, cell))
    return make(views, *index)


def _is_compiled(views: Sequence[Array], cells: Any) -> bool:
    """Whether the compiled loop can copy from these views into cells of this dtype."""
    if native.compiled is None or np.dtype(cells) not in TOKEN_CELLS:
        return False
    return {getattr(view, "dtype", STORED) for view in views} <= TOKENS


def row_copier(
    views: Sequence[Array], which: Int64, first: Int64, reads: Reads, cells: Any = np.int32
) -> Copier:
    """A copier of rows, each of which has all its runs in one view; it keeps the views alive.

    Args:
        views: the arrays that hold the tokens.
        which: the view of each row [rows].
        first: the address of the first token of each view [views].
        reads: the runs of each row, and where they go.
        cells: dtype of the cells.

    Raises:
        IndexError: a run is not inside its view.
    """
    if not _is_compiled(views, cells):
        return copier(views, *reads_of_rows(which, first, reads), cells)
    columns = which, first, reads.edges, reads.address, reads.length, reads.at
    index = (native.plain(part, np.int64) for part in columns)
    return native.compiled.Copier.of_rows(views, *index, reads.width)


def reads_of_rows(which: Int64, first: Int64, reads: Reads) -> tuple[Int64, Int64, Int64, Int64]:
    """The view, first element there, length and first cell of each run, as `copier` takes them."""
    row = np.repeat(np.arange(len(which)), np.diff(reads.edges))
    view = which[row]
    return view, reads.address - first[view], reads.length, row * reads.width + reads.at


class _NumpyCopier:
    """A plain NumPy version of `_native.Copier`, for any dtype."""

    def __init__(
        self, views: Sequence[Array], which: Int64, low: Int64, length: Int64, cell: Int64
    ) -> None:
        sizes = np.array([len(view) for view in views], np.int64)
        if len(which) and (which.min() < 0 or which.max() >= len(views)):
            raise IndexError("a run is in none of the views")
        outside = np.flatnonzero((low < 0) | (length < 0) | (length > sizes[which] - low))
        if len(outside):
            raise IndexError(f"run {outside[0]}: not inside its view")
        self._views, self._cell, self._length = views, cell, length
        self._which, self._low, self._high = which, low, low + length

    def fill(self, out: Array, first: int, last: int, base: int, filler: int, /) -> None:
        part, flat = slice(first, last), out.reshape(-1)
        if not 0 <= first <= last <= len(self._cell):
            raise IndexError(f"runs {first} to {last} of {len(self._cell)}")
        at = self._cell[part] - base
        stop = at + self._length[part]
        before = np.concatenate([[0], stop])
        if (at < before[:-1]).any() or before[-1] > len(flat):
            raise IndexError("a run overlaps the one before it or lies outside the output")
        part_of = np.stack([self._which[part], self._low[part], self._high[part]], axis=1)
        views = [self._views[which][low:high] for which, low, high in part_of.tolist()]
        if views and (before[1:] - at).sum() == len(flat):
            np.concatenate(views, out=flat, casting="unsafe")
            return
        flat.fill(filler)
        for view, a, b in zip(views, at.tolist(), stop.tolist(), strict=True):
            flat[a:b] = view
