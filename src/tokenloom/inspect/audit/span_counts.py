"""Which tokens a loader gave, from the stretches of documents it names: lost, repeated, starved.

One idea: a stretch of a document is +1 where it starts and -1 after its end, and a running sum says
how often each token was given. That takes 8 bytes per token of the documents, so it is for corpora
of up to 2^28 tokens; a run of tokenloom is judged in constant memory by `audit_run`.

Documents that never come are *starved*. Packers that keep what does not fit for later tend to
starve the shortest or the longest ones, so their lengths are reported beside those of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.inspect.audit.verdicts import Findings

__all__ = ["SPAN_LAWS", "SpanCounts", "stretches_of"]

Int64 = NDArray[np.int64]

SPAN_LAWS = ("spans_inside", "tokens_lost", "tokens_repeated", "starved")

MOST = 1 << 28  # tokens


class SpanCounts:
    """Counts how often each token is given.

    Args:
        lengths: tokens of each document [documents].
        epochs: how often each token should be given; None: once or more, alike for all.
        findings: where to note what was found.
    """

    def __init__(self, lengths: Int64, epochs: int | None, findings: Findings) -> None:
        if len(lengths) and (lengths.min() < 0 or int(lengths.sum()) > MOST):
            raise ConfigError(
                f"lengths: found {int(lengths.sum()):,} tokens in all, allowed: up to {MOST:,}. "
                "Audit a part of the documents."
            )
        self._lengths, self._epochs, self._findings = lengths, epochs, findings
        self._first = np.cumsum(lengths) - lengths
        self._marks = np.zeros(int(lengths.sum()) + 1, np.int64)
        self._shown = np.zeros(len(lengths), np.int64)

    def look(self, stretches: Int64) -> None:
        """Add stretches (document, start, length) [N, 3]."""
        document, start, length = stretches.T
        known = (document >= 0) & (document < len(self._lengths))
        room = np.where(known, self._lengths[np.where(known, document, 0)], 0)
        good = known & (start >= 0) & (length >= 0) & (start + length <= room)
        self._findings.note(
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
            self._findings.note(
                law, "tokens", len(counts), np.flatnonzero(wrong), lambda p: self._told(counts, p)
            )
        starved = np.flatnonzero((self._shown == 0) & (self._lengths > 0))
        self._findings.note(
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

    def _told(self, counts: Int64, place: int) -> str:
        document = int(np.searchsorted(self._first, place, side="right")) - 1
        while self._lengths[document] == 0 or self._first[document] > place:
            document -= 1
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
    return _triples(found)


def _triples(found: Any) -> Int64:
    if isinstance(found, np.ndarray):
        made: Int64 = found.astype(np.int64).reshape(-1, 3)
        return made
    flat = list(_flattened(found))
    return np.array(flat, np.int64).reshape(-1, 3)


def _flattened(found: Sequence[Any]) -> list[Any]:
    """The triples of nested lists."""
    if len(found) == 3 and not any(isinstance(one, (list, tuple, np.ndarray)) for one in found):
        return [found]
    return [triple for one in found for triple in _flattened(one)]
