"""Which rows an audit looks at: all of a range, or a keyed sample of it.

One idea: a sample is the first N places of a keyed permutation of the range, so it is drawn without
replacement, two machines draw the same one, and a larger sample holds every smaller one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import integer, wrong
from tokenloom.errors import ConfigError
from tokenloom.order.run import SourceRun
from tokenloom.random.keys import check_seed, draws, key
from tokenloom.random.permute import permutations

__all__ = ["ARRAYS", "Scope", "scope_of"]

Int64 = NDArray[np.int64]

ARRAYS = {True: "all", False: "none", "sample": "sample"}

ONE_IN = 64  # rows that are rendered with arrays="sample", and hashed in a long audit

FEW = 1024  # rows; of more, only some are hashed


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """What is looked at.

    Attributes:
        first, last: the range of indices, [first, last).
        sample: rows of a keyed sample of the range; None is all of them.
        seed: names the sample, and the rows of ``arrays="sample"``.
        arrays: "all" rows that are looked at are rendered, or a keyed "sample", or "none".
    """

    first: int
    last: int
    sample: int | None
    seed: int
    arrays: str

    @property
    def rows(self) -> int:
        """Rows that are looked at."""
        return self.last - self.first if self.sample is None else self.sample

    def chunks(
        self, size: int, cuts: Sequence[int] = (), low: int = 0, high: int | None = None
    ) -> Iterator[Int64]:
        """The indices at places [low, high), ascending, some at a time; no chunk crosses a cut."""
        high = self.rows if high is None else high
        if self.sample is not None:
            found = _sampled(self)
            yield from (found[at : min(at + size, high)] for at in range(low, high, size))
            return
        first, last = self.first + low, self.first + high
        inner = sorted({cut for cut in cuts if first < cut < last})
        for begin, end in itertools.pairwise([first, *inner, last]):
            for at in range(begin, end, size):
                yield np.arange(at, min(at + size, end))

    def indices(self) -> Callable[[int, int], Int64]:
        """A function: the indices at places [low, high) among all that are looked at."""
        if self.sample is None:
            return lambda low, high: np.arange(self.first + low, min(self.first + high, self.last))
        found = _sampled(self)
        return lambda low, high: found[low:high]

    def rendered(self, indices: Int64) -> Int64:
        """Those of some indices whose arrays are looked at."""
        if self.arrays == "all":
            return indices
        if self.arrays == "none":
            return indices[:0]
        drawn = draws(key(self.seed, "audit", "arrays"), indices.astype(np.uint64))
        found: Int64 = indices[drawn % np.uint64(ONE_IN) == 0]
        return found

    def hashed(self, indices: Int64) -> Int64:
        """The places of those of some rendered indices whose arrays are in the digests.

        Hashing a row takes as long as making it, so of a long audit it is a keyed 64th of the rows.
        """
        if self.arrays != "all" or self.rows <= FEW:
            return np.arange(len(indices))
        drawn = draws(key(self.seed, "audit", "hashes"), indices.astype(np.uint64))
        return np.flatnonzero(drawn % np.uint64(ONE_IN) == 0)


@functools.lru_cache(maxsize=1)
def _sampled(scope: Scope) -> Int64:
    """The indices of a sample, ascending."""
    order = permutations(scope.last - scope.first, [key(scope.seed, "audit", "rows")])
    found = order.forward(np.arange(scope.rows, dtype=np.uint64)).astype(np.int64)
    found.sort()
    found += scope.first
    found.setflags(write=False)
    return found


def scope_of(
    run: Dataset,
    first: int | None,
    last: int | None,
    arrays: bool | str,
    sample: int | None,
    seed: int,
) -> Scope:
    """The scope that was asked for, or why there is none."""
    if arrays not in ARRAYS:
        raise wrong("arrays", arrays, "True, False or 'sample'")
    low = integer("first", 0 if first is None else first)
    high = _end_of(run) if last is None else integer("last", last)
    n = run.run.n
    if n is not None and high > n:
        raise ConfigError(f"last: found {high:,}, but the run has {n:,} rows. Leave it out.")
    if low > high:
        raise ConfigError(f"first: found {low:,}, allowed: up to last, which is {high:,}.")
    if sample is not None:
        integer("sample", sample, least=1)
        sample = None if sample >= high - low else sample
    return Scope(first=low, last=high, sample=sample, seed=check_seed(seed), arrays=ARRAYS[arrays])


def _end_of(run: Dataset) -> int:
    """The end of a run; of an endless one of a single source, the end of its first epoch."""
    if run.run.n is not None:
        return run.run.n
    if isinstance(run.run, SourceRun):
        return run.run.end_of(1)
    raise ConfigError(
        "last: missing; this mix is endless, so there is no last row. Give last=…, such as the "
        "rows of your training."
    )
