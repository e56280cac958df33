"""What a loader gave, counted from what its batches tell: rows by index, tokens by spans.

An epoch gives every row once, over all ranks together. So the indices of each rank are cut into as
many equal parts as there are epochs, and the same part of all ranks is counted as one collection.
A *replay* is a stretch of indices that comes again in the same order, as after a resume that
started too early; rows that are repeated by chance do not come in the same order.

A stretch of a document is +1 where it starts and -1 after its end, and a running sum says how often
each token was given. That takes 8 bytes per token of the documents, so it is for corpora of up to
2^28 tokens; a run of tokenloom is judged in constant memory by `audit_run`.

Documents that never come are *starved*. Packers that keep what does not fit for later tend to
starve the shortest or the longest ones, so their lengths are reported beside those of all.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError
from tokenloom.inspect.audit.laws import SHOWN, Findings

INDEX_LAWS = ("in_range", "lost", "repeated", "ranks", "replayed", "fresh_orders")

SPAN_LAWS = ("spans_inside", "tokens_lost", "tokens_repeated", "starved")

SHORTEST = 3  # rows of a replay that is worth naming

MOST_TOKENS = 1 << 28  # counted one by one

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
    findings.record(
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

    def describe(row: int) -> str:
        place = int(np.searchsorted(found, row))
        times = int(counts[place]) if place < len(found) and found[place] == row else 0
        return f"epoch {epoch}: row {row:,} comes {times} times"

    if rows is not None:
        seldom = found[counts < max(low, 1)]
        lost = np.union1d(_first_missing(found, most), seldom)
        missing = most - len(found)
        findings.record("lost", "rows", most, lost, describe, broken=missing + len(seldom))
    findings.record("repeated", "rows", total, found[counts > max(high, 1)], describe)
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
    findings.record(
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
        findings.record_whole("replayed", "rows", len(stream), told)


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
        findings.record_whole("fresh_orders", "epochs", 1, told)


def order_digest(streams: Sequence[Int64]) -> str:
    """The digest of the indices of all ranks: 64 hex digits.

    >>> order_digest([np.array([3, 1])])[:8]
    '27f66328'
    """
    digest = hashlib.sha256()
    for stream in streams:
        digest.update(len(stream).to_bytes(8, "little"))
        digest.update(np.ascontiguousarray(stream, "<i8").tobytes())
    return digest.hexdigest()


class SpanCounts:
    """Counts how often each token is given.

    Args:
        lengths: tokens of each document [documents].
        epochs: how often each token should be given; None: once or more, alike for all.
        findings: where to note what was found.
    """

    def __init__(self, lengths: Int64, epochs: int | None, findings: Findings) -> None:
        if lengths.min(initial=0) < 0:
            document = int(lengths.argmin())
            raise ConfigError(
                f"lengths: found {lengths[document]:,} tokens in document {document}, allowed: "
                "from 0 on."
            )
        if int(lengths.sum()) > MOST_TOKENS:
            raise ConfigError(
                f"lengths: found {int(lengths.sum()):,} tokens in all, allowed: up to "
                f"{MOST_TOKENS:,}. Audit a part of the documents."
            )
        self._lengths, self._epochs, self._findings = lengths, epochs, findings
        self._first = np.cumsum(lengths) - lengths
        self._marks = np.zeros(int(lengths.sum()) + 1, np.int64)
        self._shown = np.zeros(len(lengths), np.int64)

    def add(self, stretches: Int64) -> None:
        """Add stretches (document, start, length) [N, 3]."""
        document, start, length = stretches.T
        known = (document >= 0) & (document < len(self._lengths))
        room = np.where(known, self._lengths[np.where(known, document, 0)], 0)
        good = known & (start >= 0) & (length >= 0) & (start + length <= room)
        self._findings.record(
            "spans_inside",
            "spans",
            len(stretches),
            np.flatnonzero(~good),
            lambda p: f"document {document[p]} has no tokens {start[p]} to {start[p] + length[p]}",
        )
        place = self._first[document[good]] + start[good]
        np.add.at(self._marks, place, 1)
        np.add.at(self._marks, place + length[good], -1)
        np.add.at(self._shown, document[good], 1)

    def finish(self) -> dict[str, Any]:
        """Judge the counts; the result has numbers for people."""
        counts = np.cumsum(self._marks)[:-1]
        right = self._epochs or max(1, int(counts.max(initial=1)))
        lost, again = counts < right, counts > right
        for law, wrong in (("tokens_lost", lost), ("tokens_repeated", again)):
            self._findings.record(
                law,
                "tokens",
                len(counts),
                np.flatnonzero(wrong),
                lambda place: self._describe(counts, place),
            )
        starved = np.flatnonzero((self._shown == 0) & (self._lengths > 0))
        self._findings.record(
            "starved",
            "documents",
            int((self._lengths > 0).sum()),
            starved,
            lambda d: f"document {d}, of {self._lengths[d]} tokens, never comes",
        )
        return {
            "documents": len(self._lengths),
            "tokens": len(counts),
            "tokens_lost": int(np.maximum(right - counts, 0).sum()),
            "tokens_repeated": int(np.maximum(counts - right, 0).sum()),
            "starved_documents": len(starved),
            "mean_length": _mean(self._lengths),
            "mean_length_of_starved": _mean(self._lengths[starved]),
        }

    def _describe(self, counts: Int64, place: int) -> str:
        document = int(np.searchsorted(self._first, place, side="right")) - 1
        at = place - int(self._first[document])
        return f"document {document}, token {at}: it comes {counts[place]} times"


def _mean(lengths: Int64) -> float | None:
    return float(f"{lengths.mean():.6g}") if len(lengths) else None


def stretches_of(found: Any) -> Int64 | None:
    """(document, start, length) of the spans of a batch [N, 3]; None if they are not told.

    Args:
        found: an object with these three as attributes, such as `Batch.spans`; or lists or arrays
            of such triples, in any nesting.

    >>> stretches_of([[(4, 0, 3)], [(7, 2, 2), (8, 0, 1)]]).tolist()
    [[4, 0, 3], [7, 2, 2], [8, 0, 1]]
    """
    if found is None:
        return None
    if all(hasattr(found, name) for name in ("document", "start", "length")):
        columns = [np.asarray(getattr(found, name)) for name in ("document", "start", "length")]
        return np.stack(columns, axis=-1).astype(np.int64).reshape(-1, 3)
    triples = found if isinstance(found, np.ndarray) else np.array([*_triples(found)], np.int64)
    flat: Int64 = triples.astype(np.int64).reshape(-1, 3)
    return flat


def _triples(nested: Sequence[Any]) -> Iterator[Any]:
    if len(nested) == 3 and not any(isinstance(one, list | tuple | np.ndarray) for one in nested):
        yield nested
        return
    for one in nested:
        yield from _triples(one)
