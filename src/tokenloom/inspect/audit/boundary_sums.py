"""Whether every token is shown as often as it should be, in a few integers.

One idea: how often each token of a line is shown is a step function, and a step function is known
by its steps: +1 where a stretch starts, -1 after its end. With a hash of the address in place of
each step, stretches add up to one 64-bit sum: ``Σ H(start) - H(end)``. The order of the stretches
does not matter, adjacent stretches cancel at their seam, and two sums are equal if and only if
every token is shown equally often (but for a chance of 2^-64). So an epoch of any length, in any
order, packed in any way, is compared with the lengths of its documents in constant memory.

Worked example: documents of 3 and 5 tokens on one line, cut every 4 tokens, give the stretches
[0, 3) [3, 4) and [4, 8): H(0) - H(3) + H(3) - H(4) + H(4) - H(8) = H(0) - H(8), which is also the
sum of the line. A token lost or shown twice leaves its two hashes in the sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenloom.arrays import Int64
from tokenloom.layout.joined import Joined
from tokenloom.layout.layout import Layout
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.windows import Windows
from tokenloom.limits import limits
from tokenloom.random.keys import draws, key

ADDRESSES, ROWS = key(0, "audit", "addresses"), key(0, "audit", "numbers")

LENGTHS, OWN_ROWS = "the lengths of documents", "the rows of the layout in stored order"


class Covered(NamedTuple):
    """How often the tokens of a line should be shown in an epoch.

    Attributes:
        total: the sum, modulo 2^64.
        tokens: stored tokens in cells, counted as often as they are shown.
        truth: what it was computed from.
    """

    total: int
    tokens: int
    truth: str


def boundary_sum(start: Int64, length: Int64) -> int:
    """The sum of some stretches [N], modulo 2^64.

    >>> cut = boundary_sum(np.array([4, 0, 3]), np.array([4, 3, 1]))
    >>> cut == boundary_sum(np.array([0]), np.array([8]))
    True
    """
    ups = draws(ADDRESSES, start.astype(np.uint64))
    downs = draws(ADDRESSES, (start + length).astype(np.uint64))
    return int((ups - downs).sum(dtype=np.uint64))


def number_sum(numbers: Int64) -> int:
    """The sum of the hashes of some numbers [N], modulo 2^64: equal for equal collections."""
    return int(draws(ROWS, numbers.astype(np.uint64)).sum(dtype=np.uint64))


def epoch_covered(layout: Layout, epoch: int, rows: int, known: dict[int, Covered]) -> Covered:
    """What an epoch should show.

    Args:
        layout: the rows; of several layouts, one after the other, those of the first `rows`.
        epoch: the epoch.
        rows: rows of the epoch.
        known: what parts show that are the same in every epoch; filled here.
    """
    total, tokens, truth, begin, before = 0, 0, "", 0, 0
    for number, part in enumerate(layout.parts if isinstance(layout, Joined) else [layout]):
        if before >= rows:
            break  # appended later
        found = known.get(number) or covered_by(part, epoch, begin)
        if part.is_constant:
            known[number] = found
        total, tokens, truth = total + found.total, tokens + found.tokens, found.truth
        begin += part.line.tokens
        before += int(part.phases.rows[part.phases.of(epoch)])
    return Covered(total % (1 << 64), tokens, truth)


def covered_by(layout: Layout, epoch: int, begin: int = 0) -> Covered:
    """What an epoch should show.

    Args:
        layout: the rows.
        epoch: the epoch.
        begin: where on its line the layout starts.
    """
    chunk = limits().audit_chunk_examples
    if isinstance(layout, Windows):
        return _by_steps(layout, begin)
    if isinstance(layout, Packed) and _follows_from_lengths(layout.spec):
        return _by_lengths(layout, begin)
    total, tokens, rows = 0, 0, int(layout.phases.rows[layout.phases.of(epoch)])
    for low in range(0, rows, chunk):
        spans = layout.spans(epoch, np.arange(low, min(low + chunk, rows)))
        total += boundary_sum(spans.address + begin, spans.length)
        tokens += int(spans.length.sum())
    return Covered(total % (1 << 64), tokens, OWN_ROWS)


def _by_steps(layout: Windows, begin: int) -> Covered:
    """Windows start every `step` tokens; without overlap they are one stretch."""
    chunk = limits().audit_chunk_examples
    spec, rows, line = layout.spec, int(layout.phases.rows[0]), layout.line.tokens
    if not spec.overlap:
        end = min(rows * spec.step, line)
        return Covered(boundary_sum(np.array([begin]), np.array([end])), end, LENGTHS)
    total = tokens = 0
    for low in range(0, rows, chunk):
        start = np.arange(low, min(low + chunk, rows)) * spec.step
        length = np.minimum(start + spec.width, line) - start
        total += boundary_sum(start + begin, length)
        tokens += int(length.sum())
    return Covered(total % (1 << 64), tokens, LENGTHS)


def _follows_from_lengths(spec: PackSpec) -> bool:
    """Whether each document is shown from its start on, every token once, up to a length."""
    return spec.min_row_len == 1 and spec.stride == 0 and spec.overlap == 0


def _by_lengths(layout: Packed, begin: int) -> Covered:
    chunk = limits().audit_chunk_examples
    total, tokens, line = 0, 0, layout.line
    for low in range(0, line.documents, chunk):
        _, edges = line.bounds(low, min(low + chunk, line.documents))
        used = _used(np.diff(edges), layout.spec)
        total += boundary_sum(edges[:-1] + begin, used)
        tokens += int(used.sum())
    return Covered(total % (1 << 64), tokens, LENGTHS)


def _used(lengths: Int64, spec: PackSpec) -> Int64:
    """Tokens of each document that packing shows, counted from its start."""
    most = lengths if spec.max_len is None else np.full_like(lengths, spec.max_len)
    used = np.where((lengths >= spec.min_len) & (lengths <= most), lengths, 0)
    if spec.max_doc_tokens is not None:
        used = np.minimum(used, spec.max_doc_tokens)
    if spec.overflow not in ("truncate", "drop"):
        return used
    bos, eos = spec.bos_id is not None, spec.eos_id is not None
    # a document that was cut by max_doc_tokens has no EOS
    cells = used + bos + (eos & (used == lengths))
    instead = spec.width - bos if spec.overflow == "truncate" else 0
    return np.where(cells > spec.width, instead, used)
