"""Which reads serve which requests: a pure plan over integers, made before any byte moves.

All files of a store lie on one line of addresses, ``file << 40 | byte``; a request is a
range on it. Sorting, de-duplicating, merging and cutting are then array operations on one axis,
and ranges of two files can never merge because no file reaches 2^40 bytes.

Worked example, cap 8, requests [5,9) [3,6) [20,40) [3,6)::

    runs    [3,9) [20,40)                 overlapping or touching requests are one run
    reads   [3,9) [20,28) [28,36) [36,40) a run is cut every `cap` bytes from its start
    pieces  request 0 = read 0 [2:6]; 1 = read 0 [0:3]; 2 = reads 1, 2, 3 whole; 3 = as 1

Cost: one sort and a few passes over the requests; no Python per request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokenloom.arrays import Int64

FILE_SHIFT = 40

CAP_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What to read, and how the answers make up the requests.

    Attributes:
        start, stop: addresses of the reads, sorted, disjoint [R].
        runs: how many gap-free stretches the reads form.
        read, low, high: piece p is bytes [low, high) of read `read[p]` [P].
        request: the request that piece p belongs to; pieces are in request order [P].
    """

    start: Int64
    stop: Int64
    runs: int
    read: Int64
    low: Int64
    high: Int64
    request: Int64


def union(start: Int64, stop: Int64, gap: int = 0) -> tuple[Int64, Int64]:
    """The sorted, disjoint ranges that cover all given ones; neighbours up to `gap` apart merge.

    Empty ranges vanish.

    >>> a, b = union(np.array([5, 3, 20, 3]), np.array([9, 6, 40, 6]))
    >>> a.tolist(), b.tolist()
    ([3, 20], [9, 40])
    """
    keep = stop > start
    if not keep.all():
        start, stop = start[keep], stop[keep]
    if len(start) == 0:
        return start, stop
    size = stop - start
    if (size == size[0]).all():  # ranges of one size end as they start: no need to sort pairs
        start = np.sort(start)
        stop = start + size[0]
    else:
        by_start = np.argsort(start, kind="stable")
        start, stop = start[by_start], np.maximum.accumulate(stop[by_start])
    # a range opens a run when it starts beyond everything before it
    opens = np.empty(len(start), bool)
    opens[0] = True
    np.greater(start[1:], stop[:-1] + gap, out=opens[1:])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(start)) - 1
    return start[first], stop[last]


def plan(start: Int64, stop: Int64, *, gap: int = 0, cap: int = CAP_BYTES) -> ReadPlan:
    """The reads for these requests: merged where they touch, cut at `cap` bytes.

    Args:
        start: first address of each request [N].
        stop: address after each request [N]; a request may be empty.
        gap: merge requests up to this many bytes apart (the bytes between are wasted).
        cap: no read is longer than this.
    """
    apart = _apart(start, stop, gap, cap)
    if apart is not None:
        return apart
    run_start, run_stop = union(start, stop, gap)
    if not len(run_start) or int((run_stop - run_start).max()) <= cap:
        return _uncut(start, stop, run_start, run_stop)
    # reads of a run: ceil(length / cap)
    cuts = -(-(run_stop - run_start) // cap)
    first_read = np.cumsum(cuts) - cuts
    read_run = np.repeat(np.arange(len(cuts)), cuts)
    step = np.arange(len(read_run)) - first_read[read_run]
    read_start = run_start[read_run] + step * cap
    read_stop = np.minimum(read_start + cap, run_stop[read_run])

    # pieces of a request: the reads from the one that holds its first byte to its last
    full = np.flatnonzero(stop > start)
    begin, end = start[full], stop[full]
    head = np.searchsorted(read_start, begin, side="right") - 1
    tail = np.searchsorted(read_start, end, side="left") - 1
    count = tail - head + 1
    request = np.repeat(full, count)
    first_piece = np.cumsum(count) - count
    read = np.arange(len(request)) - np.repeat(first_piece - head, count)
    low = np.maximum(start[request], read_start[read]) - read_start[read]
    high = np.minimum(stop[request], read_stop[read]) - read_start[read]
    return ReadPlan(read_start, read_stop, len(run_start), read, low, high, request)


def _apart(start: Int64, stop: Int64, gap: int, cap: int) -> ReadPlan | None:
    """The plan when no request is empty, cut, or near another: each is a read (most calls)."""
    size = stop - start
    if not len(size) or int(size.min()) <= 0 or int(size.max()) > cap:
        return None
    order = np.argsort(start, kind="stable")
    first, last = start[order], stop[order]
    if (first[1:] <= last[:-1] + gap).any():
        return None
    every = np.arange(len(order))
    read = np.empty_like(every)
    read[order] = every  # the inverse: request order[k] is read k
    return ReadPlan(first, last, len(order), read, np.zeros_like(every), size, every)


def _uncut(start: Int64, stop: Int64, run_start: Int64, run_stop: Int64) -> ReadPlan:
    """The plan when every run is one read: a request is then one piece (most calls are this)."""
    request = np.flatnonzero(stop > start)
    if len(request) < len(start):
        start, stop = start[request], stop[request]
    read = np.searchsorted(run_start, start, side="right") - 1
    base = run_start[read]
    return ReadPlan(run_start, run_stop, len(run_start), read, start - base, stop - base, request)
