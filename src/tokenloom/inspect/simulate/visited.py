"""A short mix, visited once: where every item comes, and what was taken at any example.

One idea: where an item of a mix comes is a search over all its sources, and of a thousand sources
it takes a hundredth of a second. All examples of a short mix are worked out together in the time of
some ten such searches, so whoever has many questions visits it, sorts what was seen, and looks
every answer up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.limits import limits
from tokenloom.order.run import Consumed, Run

__all__ = ["VisitedMix", "visited"]

Int64 = NDArray[np.int64]


def visited(run: Run, first: int, last: int) -> VisitedMix | None:
    """Examples [first, last) of a mix of many sources; None where it is not worth a visit."""
    if len(run.sources) <= limits().min_visited_sources or last - first > limits().visited_examples:
        return None
    return VisitedMix(run, first, last)


class VisitedMix:
    """Where items of a mix come, sorted by source and item.

    Args:
        run: a run of several sources.
        first, last: the examples that are visited.
    """

    def __init__(self, run: Run, first: int, last: int) -> None:
        self._run = run
        places = run.placed(np.arange(first, last))
        counts = np.zeros(len(run.sources) + 1, np.int64)
        items, examples, tokens = [], [], []
        for part in sorted(places, key=lambda one: one.number):
            order = np.argsort(part.item, kind="stable")
            at = np.arange(last - first) if part.at is None else part.at
            counts[part.number + 1] = len(order)
            items.append(part.item[order])
            examples.append(first + at[order])
            tokens.append(part.run.layout.costs(part.epoch, part.row)[order])
        self._edges = np.cumsum(counts)
        none = [np.empty(0, np.int64)]
        self._item, self._example, self._tokens = (
            np.concatenate(none + some) for some in (items, examples, tokens)
        )

    def index(self, source: int, items: Int64) -> Int64:
        """The index of each item of a source; -1 for those that were not visited [N]."""
        first, last = self._edges[source : source + 2].tolist()
        known = self._item[first:last]
        if not len(known):
            return np.full(len(items), -1, np.int64)
        place = np.minimum(np.searchsorted(known, items), len(known) - 1)
        found: Int64 = np.where(known[place] == items, self._example[first + place], -1)
        return found

    def taken_at(self, marks: Sequence[int]) -> list[tuple[Consumed, ...]]:
        """What the visited examples before each of some ascending marks take from each source."""
        sources = self._run.sources
        shape = len(sources), len(marks) + 1
        owner = np.repeat(np.arange(len(sources)), np.diff(self._edges))
        # [sources, marks]: an example is counted at the first mark after it, and at all later ones
        cell = owner * shape[1] + np.searchsorted(marks, self._example, side="right")
        rows, tokens = (
            np.bincount(cell, weights=by, minlength=shape[0] * shape[1])
            .reshape(shape)
            .cumsum(axis=1)
            .astype(np.int64)
            .T.tolist()
            for by in (None, self._tokens)
        )
        return [
            tuple(
                Consumed(one.name, n, k, one.epochs_in(n))
                for one, n, k in zip(sources, rows[mark], tokens[mark], strict=True)
            )
            for mark in range(len(marks))
        ]
