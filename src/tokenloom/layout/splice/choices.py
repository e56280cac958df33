"""The choices of a document: every (t, s) at which it can be spliced, by number.

One idea: a document of L tokens has T choices, and choice x is a closed form of x and L, so no list
is stored and any number of documents is decoded at once. Each kind of schedule is one class:
`Balanced` (one offset per start), `Clipped` (starts past both ends), `Swept` (many offsets per
start) and `ChoiceGrid` (a few of both).

A choice has a *place*: the number a of its start and the number b of its offset. Orders of either
axis (`tokenloom.layout.splice.turns`) permute places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenloom.arrays import Int64
from tokenloom.layout.splice.spec import SpliceSpec


class Splices(NamedTuple):
    """Where some splices come from and where they go.

    Attributes:
        t: start of the splice window; it may lie before the document [N].
        start: document offset of the first token [N].
        length: tokens; those past the end of the document wrap around to its start [N].
        at: s, frame offset of the first token [N].
    """

    t: Int64
    start: Int64
    length: Int64
    at: Int64


class Balanced:
    """Every start that leaves K tokens, placed at the right end of the frame."""

    even = True

    def __init__(
        self, seq_len: int, content: int, stride: int, least: int, *, adaptive: bool, tail: bool
    ) -> None:
        self._seq_len, self._content, self._stride = seq_len, content, stride
        self._least, self._adaptive, self._tail = least, adaptive, tail

    def content(self, length: Int64) -> Int64:
        """K of each document, 0 if it cannot be spliced [N]."""
        found = np.minimum(length, self._content)
        fits = found >= (self._least if self._adaptive else max(self._least, self._content))
        return np.where(fits, found, 0)

    def count(self, length: Int64) -> Int64:
        """Number of choices of each document [N]."""
        content = self.content(length)
        room = length - content
        found = room // self._stride + 1 + (self._tail & (room % self._stride > 0))
        return np.where(content > 0, found, 0)

    def place(self, choice: Int64, length: Int64) -> tuple[Int64, Int64]:
        """(number of the start, number of the offset) of each choice [N]."""
        return choice, np.zeros_like(choice)

    def offsets(self, start: Int64, length: Int64) -> Int64:
        """Number of offsets of each start, given by number [N]."""
        return np.ones_like(start)

    def splice(self, start: Int64, offset: Int64, length: Int64) -> Splices:
        """The splice at each place [N]."""
        content = self.content(length)
        t = np.minimum(start * self._stride, length - content)  # the tail is not a multiple
        return Splices(t, t, content, self._seq_len - content - offset)

    def breaks(self, length: Int64) -> Int64:
        """Choices at which the tokens of splices change; evenly in between [N, breaks].

        The choice after the last one that shows the first token is one of them.
        """
        return np.ones((len(length), 1), np.int64)


class Clipped(Balanced):
    """Every start whose window has at least `least` tokens of the document, cut to those inside.

    K is the same for all documents, however short: each token is then in K - 1 windows together
    with the token before it, so it is a target that often.

    The longest part of a document has C = min(K, L) tokens. A left part of n tokens and a right
    part of C - n fit where such a part fits, so choice x can share its cells with choice
    ``x + slots``: see `slots`.
    """

    def content(self, length: Int64) -> Int64:
        """See `Choices`."""
        return np.where(super().content(length) > 0, self._content, 0)

    def count(self, length: Int64) -> Int64:
        """See `Choices`."""
        content = self.content(length)
        found = (length + content - 2 * self._least) // self._stride + 1
        return np.where(content > 0, found, 0)

    def slots(self, length: Int64) -> Int64:
        """Stretches of C cells that hold all choices: x and x + slots share one [N]."""
        content, count = self.content(length), self.count(length)
        # tokens of the last choice, if it starts inside the document; else it has no partner
        last = length - (self._least - content + (count - 1) * self._stride)
        pairs = (np.minimum(content, length) - self._least - last) // self._stride + 1
        return count - np.where(content > 0, np.maximum(pairs, 0), 0)

    def splice(self, start: Int64, offset: Int64, length: Int64) -> Splices:
        """See `Choices`."""
        content = self.content(length)
        t = self._least - content + start * self._stride
        first = np.maximum(t, 0)
        size = np.minimum(t + content, length) - first
        return Splices(t, first, size, self._seq_len - content - offset + first - t)

    def breaks(self, length: Int64) -> Int64:
        """See `Balanced`."""
        before = self.content(length) - self._least  # tokens from the first t to 0
        inside = -(-before // self._stride)  # t is 0 or more
        past = before // self._stride + 1  # t is 1 or more
        ends = -(-(length - self._least) // self._stride)  # the window has the last token
        return np.stack([inside, past, ends], axis=1)


class Swept:
    """Many offsets for every start: all starts or only the first, on a line or on a ring.

    Starts that leave fewer than K tokens have more offsets. The total number of offsets of all
    starts with at most r tokens left depends on r alone, so one table serves every document.
    """

    def __init__(self, spec: SpliceSpec, content: int, stride: int) -> None:
        self._seq_len, self._content, self._stride = spec.seq_len, content, stride
        self._least, self._step = spec.min_copy_len, spec.offset_stride
        self._anchored = spec.content_start_mode == "anchor_start"
        self._ring = spec.content_start_mode == "cyclic_roll"
        self._truncate = spec.placement == "truncate"
        self.even = self._anchored or self._ring or self._truncate
        # [residue of r, number of strides]: offsets of all starts with at most r tokens left
        columns = content // stride + 1
        left = np.arange(stride)[:, None] + np.arange(columns) * stride
        counts = np.where((left >= self._least) & (left < content), self._fitting(left), 0)
        self._sums = counts.cumsum(axis=1)
        self._jump = int(self._sums.max(initial=0)) + 1
        self._flat = (self._sums + np.arange(stride)[:, None] * self._jump).reshape(-1)

    def _fitting(self, size: Int64) -> Int64:
        """Number of offsets of a splice of `size` tokens."""
        room = self._seq_len - (self._least if self._truncate else size)
        return np.maximum(room // self._step + 1, 0) + 0 * size

    def content(self, length: Int64) -> Int64:
        """See `Balanced`."""
        found = np.minimum(length, self._content)
        return np.where(found >= self._least, found, 0)

    def _starts(self, length: Int64) -> Int64:
        """Number of leading starts that all have the same number of offsets."""
        if self._anchored:
            return np.ones_like(length)
        if self._ring:
            return (length - 1) // self._stride + 1
        least = self._least if self._truncate else self._content
        return np.maximum((length - least) // self._stride + 1, 0)

    def _late(self, length: Int64) -> tuple[Int64, Int64]:
        """Offsets of all starts with fewer than K tokens left, and tokens left at the first one."""
        left = length - self._starts(length) * self._stride
        inside = np.clip(left, 0, self._sums.shape[1] * self._stride - 1)
        return self._sums[inside % self._stride, inside // self._stride], left

    def count(self, length: Int64) -> Int64:
        """See `Balanced`."""
        content = self.content(length)
        found = self._starts(length) * self._fitting(content)
        if not self.even:
            found = self._starts(length) * self._fitting(np.full_like(length, self._content))
            found = found + self._late(length)[0]
        return np.where(content > 0, found, 0)

    def place(self, choice: Int64, length: Int64) -> tuple[Int64, Int64]:
        """See `Balanced`."""
        if self.even:
            each = self._fitting(self.content(length))
            return choice // each, choice % each
        each = self._fitting(np.full_like(length, self._content))
        start, offset = choice // each, choice % each
        early = self._starts(length)
        late = start >= early
        if not late.any():
            return start, offset
        sums, left = self._late(length)
        residue = left % self._stride
        rest = np.maximum(sums - (choice - early * each), 1)  # choices from here to the last
        column = np.searchsorted(self._flat, rest + residue * self._jump, side="left")
        column = np.where(late, column - residue * self._sums.shape[1], 0)
        before = sums - self._sums[residue, column]
        steps = (left - residue) // self._stride - column
        start = np.where(late, early + steps, start)
        return start, np.where(late, choice - early * each - before, offset)

    def offsets(self, start: Int64, length: Int64) -> Int64:
        """See `Balanced`."""
        size = np.minimum(self.content(length), length - (0 if self.even else start * self._stride))
        return self._fitting(size)

    def splice(self, start: Int64, offset: Int64, length: Int64) -> Splices:
        """See `Balanced`."""
        t, at = start * self._stride, offset * self._step
        left = length if self._ring else length - t
        size = np.minimum(np.minimum(self.content(length), left), self._seq_len - at)
        return Splices(t, t, size, at)


class ChoiceGrid:
    """A few starts and offsets of each document, evenly spaced from the first to the last."""

    even = True

    def __init__(self, balanced: Balanced, seq_len: int, starts: int, offsets: int) -> None:
        self._all, self._seq_len = balanced, seq_len
        self._starts, self._offsets = starts, offsets

    def content(self, length: Int64) -> Int64:
        """See `Balanced`."""
        return self._all.content(length)

    def offsets(self, start: Int64, length: Int64) -> Int64:
        """See `Balanced`."""
        return np.minimum(self._offsets, self._seq_len - self.content(length) + 1)

    def _shown(self, length: Int64) -> Int64:
        return np.minimum(self._starts, self._all.count(length))

    def count(self, length: Int64) -> Int64:
        """See `Balanced`."""
        return self._shown(length) * self.offsets(length, length)

    def place(self, choice: Int64, length: Int64) -> tuple[Int64, Int64]:
        """See `Balanced`."""
        each = self.offsets(choice, length)
        return choice // each, choice % each

    def splice(self, start: Int64, offset: Int64, length: Int64) -> Splices:
        """See `Balanced`."""
        steps = np.maximum(self._shown(length) - 1, 1)
        found = self._all.splice(start * (self._all.count(length) - 1) // steps, 0 * start, length)
        room, steps = self._seq_len - found.length, self.offsets(start, length) - 1
        return found._replace(at=offset * room // np.maximum(steps, 1))


Choices = Balanced | Swept | ChoiceGrid
"""The choices that documents have, given their lengths."""


def choices_for(spec: SpliceSpec, content_length: int | None, stride: int) -> Choices:
    """The choices that a spec allows, for a content length K and a stride between starts."""
    content = min(content_length or spec.seq_len, spec.seq_len)
    fits = content_length is None and spec.mode == "splice"  # K is min(S, L), so all documents fit
    if spec.content_start_mode != "coverage_balanced" and spec.mode == "splice" and not spec.grid:
        return Swept(spec, content, stride)
    kind = Clipped if spec.edge == "clip" else Balanced
    made = kind(
        spec.seq_len,
        content,
        stride,
        spec.min_copy_len,
        adaptive=spec.adaptive_k or fits,
        tail=spec.include_tail,
    )
    return ChoiceGrid(made, spec.seq_len, *spec.grid) if spec.grid else made
