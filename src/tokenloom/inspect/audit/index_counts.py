"""Which rows a loader gave, from the indices alone: lost, repeated, replayed, shared by ranks.

One idea: an epoch gives every row once, over all ranks together. So the indices of each rank are
cut into as many equal parts as there are epochs, and the same part of all ranks is counted as one
collection. What was given where is then plain counting, whoever made the order.

A *replay* is a stretch of indices that comes again in the same order, as after a resume that
started too early; rows that are repeated by chance do not come in the same order.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.inspect.audit.verdicts import SHOWN, Findings

__all__ = ["INDEX_LAWS", "judge_indices", "longest_replay", "order_digest"]

Int64 = NDArray[np.int64]

INDEX_LAWS = ("in_range", "lost", "repeated", "ranks", "replayed", "fresh_orders")

SHORTEST = 3  # rows of a replay that is worth naming

FILLER = -1  # the index of a row of filler, as loaders add them at the end


def judge_indices(
    streams: Sequence[Int64], rows: int | None, epochs: int | None, findings: Findings
) -> dict[str, Any]:
    """Judge the indices of all ranks; the result has counts for people.

    Args:
        streams: the indices of each rank, in the order given; -1 is filler.
        rows: rows of an epoch; None: unknown, so nothing is known to be lost.
        epochs: how many epochs this was; None: one, or as many as the counts need.
        findings: where to note what was found.
    """
    real = [stream[stream != FILLER] for stream in streams]
    given = int(sum(map(len, real)))
    filler = int(sum(map(len, streams))) - given
    most = rows if rows is not None else max((int(s.max()) + 1 for s in real if len(s)), default=0)
    for rank, stream in enumerate(real):
        _judge_range(rank, stream, most, findings)
    inside = [stream[(stream >= 0) & (stream < most)] for stream in real]
    count = max(1, -(-given // max(1, most))) if epochs is None else epochs
    exact = epochs is not None
    parts = [_cut(stream, count if exact else 1) for stream in inside]
    for number in range(count if exact else 1):
        _judge_epoch([part[number] for part in parts], most, number, exact, rows, findings)
    _judge_replays(real, findings)
    if exact and count > 1:
        _judge_orders(parts, count, findings)
    return {"given": given, "filler": filler, "rows": rows, "epochs": count, "ranks": len(streams)}


def _judge_range(rank: int, stream: Int64, most: int, findings: Findings) -> None:
    findings.note(
        "in_range",
        "rows",
        len(stream),
        np.flatnonzero((stream < 0) | (stream >= most)),
        lambda p: f"rank {rank}, row {p}: index {stream[p]}, of {most:,} rows",
    )


def _cut(stream: Int64, count: int) -> list[Int64]:
    """A stream in equal parts."""
    edges = [len(stream) * number // count for number in range(count + 1)]
    return [stream[low:high] for low, high in itertools.pairwise(edges)]


def _judge_epoch(
    ranks: Sequence[Int64],
    most: int,
    epoch: int,
    exact: bool,
    rows: int | None,
    findings: Findings,
) -> None:
    found, counts = _unique(ranks)  # memory for the rows given, however large their indices are
    total = int(counts.sum())
    # without a number of epochs, each row may come once more than another
    low, high = (1, 1) if exact else (total // max(1, most), -(-total // max(1, most)))

    def tell(row: int) -> str:
        place = int(np.searchsorted(found, row))
        times = int(counts[place]) if place < len(found) and found[place] == row else 0
        return f"epoch {epoch}: row {row:,} comes {times} times"

    if rows is not None:
        seldom = found[counts < max(low, 1)]
        lost = np.union1d(_first_missing(found, most), seldom)
        missing = most - len(found)
        findings.note("lost", "rows", most, lost, tell, broken=missing + len(seldom))
    findings.note("repeated", "rows", total, found[counts > max(high, 1)], tell)
    if len(ranks) > 1 and (exact or total <= most):
        _judge_ranks(ranks, epoch, findings)


def _unique(streams: Sequence[Int64]) -> tuple[Int64, Int64]:
    """The different indices of some streams, ascending, and how often each comes."""
    every = np.concatenate([np.empty(0, np.int64), *streams])
    found, counts = np.unique(every, return_counts=True)
    return found, counts.astype(np.int64)


def _first_missing(found: Int64, most: int) -> Int64:
    """The first few numbers below `most` that are not in an ascending array.

    >>> _first_missing(np.array([0, 2, 3]), 10**14).tolist()
    [1, 4, 5]
    """
    which = np.arange(min(SHOWN, most - len(found)))
    missing_before = found - np.arange(len(found))
    first: Int64 = which + np.searchsorted(missing_before, which, side="right")
    return first


def _judge_ranks(ranks: Sequence[Int64], epoch: int, findings: Findings) -> None:
    """No two ranks have the same row in an epoch."""
    found, owners = _unique([np.unique(stream) for stream in ranks])
    several = np.flatnonzero(owners > 1)
    findings.note(
        "ranks",
        "rows",
        len(found),
        several,
        lambda place: f"epoch {epoch}: {owners[place]} ranks have row {found[place]:,}",
    )


def _judge_replays(streams: Sequence[Int64], findings: Findings) -> None:
    for rank, stream in enumerate(streams):
        found = longest_replay(stream)
        told = ""
        if found is not None:
            first, again, rows = found
            told = (
                f"rank {rank}: rows {first:,} to {first + rows - 1:,} come again, in the same "
                f"order, from row {again:,} on"
            )
        findings.tell("replayed", "rows", len(stream), told)


def longest_replay(stream: Int64) -> tuple[int, int, int] | None:
    """(first, again, rows) of the longest stretch that comes again at once; None for none.

    A whole epoch that has the order of the last one is a matter of its own (`fresh_orders`).

    >>> longest_replay(np.array([4, 2, 7, 1, 2, 7, 1, 5]))
    (1, 4, 3)
    """
    order = np.argsort(stream, kind="stable")
    same = np.flatnonzero(stream[order][1:] == stream[order][:-1])
    before, after = order[same], order[same + 1]  # places of each row and of its next copy
    by_place = np.argsort(after, kind="stable")
    before, after = before[by_place], after[by_place]
    if not len(after):
        return None
    breaks = np.flatnonzero((np.diff(after) != 1) | (np.diff(before) != 1)) + 1
    starts = np.append(0, breaks)
    length = np.diff(np.append(starts, len(after)))
    # where every row comes between the two, it is the order of an epoch that comes again
    length = np.where(after[starts] - before[starts] >= len(np.unique(stream)), 0, length)
    best = int(np.argmax(length))
    if length[best] < SHORTEST:
        return None
    at = starts[best]
    return int(before[at]), int(after[at]), int(length[best])


def _judge_orders(parts: Sequence[Sequence[Int64]], count: int, findings: Findings) -> None:
    """No epoch has the order of another, unless it is the stored order."""
    known: dict[str, int] = {}
    for epoch in range(count):
        streams = [part[epoch] for part in parts]
        if all((np.diff(stream) > 0).all() for stream in streams):
            continue
        before = known.setdefault(order_digest(streams), epoch)
        told = "" if before == epoch else f"epoch {epoch} has the order of epoch {before}"
        findings.tell("fresh_orders", "epochs", 1, told)


def order_digest(streams: Sequence[Int64]) -> str:
    """The digest of the indices of all ranks: 64 hex digits.

    >>> order_digest([np.array([3, 1])])[:8]
    '27f66328'
    """
    made = hashlib.sha256()
    for part in _framed(streams):
        made.update(part)
    return made.hexdigest()


def _framed(streams: Sequence[Int64]) -> Iterator[bytes]:
    for stream in streams:
        yield len(stream).to_bytes(8, "little")
        yield np.ascontiguousarray(stream, "<i8").tobytes()
