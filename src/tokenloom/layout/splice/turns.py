"""Showing documents: which choice the k-th example of a document in an epoch shows.

One idea: the k-th of Q examples shows the choice at the k-th of Q evenly spaced points among T
choices (`Even`), or on the line of their weights (`Edged`). Nothing is drawn at random, so counts
are exact and any example is found without the ones before it. Every epoch shifts the points.
Epoch 0 takes the midpoints, as published. With equal weights the shift is Q/T of a choice, so all
choices have been shown after ceil(T / Q) epochs, and none is ever two visits ahead of another.

Worked example: 4 choices, quota 3: epoch 0 shows 0 2 3, epoch 1 shows 0 1 3, epoch 2 shows 0 1 2.

Each way knows how often a choice has been shown, which determines the jitter, and which examples of
an epoch show a given choice, which is the inverse. All arithmetic is on integers.

Orders of the two axes of an enumeration: starts of a document, and offsets of a start.

One idea: the set of choices never changes, only when each one comes. Keys name the document (by its
number in the store), the start and the epoch, so it does not matter what else is selected.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64, UInt64, grouped, with_newest
from tokenloom.errors import ConfigError
from tokenloom.layout.splice.choices import Choices
from tokenloom.layout.splice.shares import Edges, floor_sum
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.limits import limits
from tokenloom.random.keys import GOLDEN, children, draws, key
from tokenloom.random.permute import Feistel, hash_sorted

SORTED = 64  # largest n that is sorted


def permuted(x: Int64, n: Int64, keys: UInt64) -> Int64:
    """Where x goes in the permutation of range(n) that its key names [N].

    A small n is sorted by hashes, so that every order is equally likely.
    """
    out, chunk = np.empty_like(x), limits().splice_chunk_permutations
    for size, here in grouped(n):
        for low in range(0, len(here), chunk):
            some = here[low : low + chunk]
            if size <= SORTED:
                out[some] = hash_sorted(size, keys[some])[np.arange(len(some)), x[some]]
            else:
                every = np.arange(len(some))
                words = Feistel(size, keys[some]).forward(x[some].view(np.uint64), every)
                out[some] = words.view(np.int64)
    return out


class Axes:
    """The order in which an enumeration visits starts and offsets."""

    def __init__(self, spec: SpliceSpec) -> None:
        self._content, self._offsets = spec.shuffle_content, spec.shuffle_offsets
        self._epochs = spec.shuffle_per_epoch
        self._content_key = key(spec.content_seed, "splice", "content")
        self._offset_key = key(spec.offset_seed, "splice", "offsets")
        self._tables: dict[tuple[int, int], tuple[Int64, Int64]] = {}

    def places(
        self, choices: Choices, choice: Int64, length: Int64, document: Int64, epoch: Int64
    ) -> tuple[Int64, Int64]:
        """(start, offset) of the choice at each position of the enumeration [N]."""
        if not self._content:
            start, offset = choices.place(choice, length)
        elif choices.even:
            each = choices.offsets(np.zeros_like(choice), length)
            offset = choice % each
            start = self.starts(choice // each, choices.count(length) // each, document, epoch)
        else:
            start, offset = self._uneven(choices, choice, length, document, epoch)
        if self._offsets:
            n = choices.offsets(start, length)
            keys = draws(self._keys(self._offset_key, document, epoch), start.view(np.uint64))
            offset = _in_stretches(offset, n, keys, self._offsets)
        return start, offset

    def _keys(self, root: int, document: Int64, epoch: Int64) -> UInt64:
        every = children(root, document.view(np.uint64))
        return draws(every, epoch.astype(np.uint64)) if self._epochs else every

    def starts(self, place: Int64, n: Int64, document: Int64, epoch: Int64) -> Int64:
        """The start at each place among n, if starts are shuffled [N]."""
        if not self._content:
            return place
        keys = self._keys(self._content_key, document, epoch)
        return _in_stretches(place, n, keys, self._content)

    def _uneven(
        self, choices: Choices, choice: Int64, length: Int64, document: Int64, epoch: Int64
    ) -> tuple[Int64, Int64]:
        """Places where starts have different numbers of offsets, by a table for each epoch."""
        start, offset = np.empty_like(choice), np.empty_like(choice)
        for number, here in grouped(document):
            for turn, inner in grouped(epoch[here]):
                part = here[inner]
                order, edges = self._table(choices, number, turn, int(length[part[0]]))
                place = np.searchsorted(edges, choice[part], side="right") - 1
                start[part], offset[part] = order[place], choice[part] - edges[place]
        return start, offset

    def _table(
        self, choices: Choices, document: int, epoch: int, length: int
    ) -> tuple[Int64, Int64]:
        """Starts in their order, and the number of choices before each; the newest are cached."""
        known = self._tables.get((document, epoch))
        if known is not None:
            return known
        total = choices.count(np.array([length]))
        last = choices.place(total - 1, np.array([length]))[0]
        every = np.arange(int(last[0]) + 1)
        one = np.ones_like(every)
        order = self.starts(every, one * len(every), one * document, one * epoch)
        sizes = choices.offsets(order, one * length)
        made = order, np.concatenate([[0], np.cumsum(sizes)])
        self._tables = with_newest(
            self._tables, (document, epoch), made, limits().kept_splice_tables
        )
        return made


def _in_stretches(x: Int64, n: Int64, keys: UInt64, how: bool | int) -> Int64:
    """Numbers permuted among n, or only inside stretches of `how` [N]."""
    if how is True:
        return permuted(x, n, keys)
    stretch = x // how
    begin = stretch * how
    size = np.minimum(how, n - begin)
    return begin + permuted(x - begin, size, draws(keys, stretch.view(np.uint64)))


def jitter(spec: SpliceSpec, visit: Int64, room: Int64, document: Int64, choice: Int64) -> Int64:
    """How many cells to the left each visit of a choice is shifted [N].

    Any J + 1 consecutive visits ("low_discrepancy"), or each block of J + 1 visits from the first
    on ("uniform"), cover all J + 1 offsets; J is `offset_jitter`, or less where room is short.
    """
    many = np.minimum(spec.offset_jitter, room) + 1
    root = key(spec.offset_seed, "splice", "jitter")
    keys = draws(children(root, document.view(np.uint64)), choice.view(np.uint64))
    if spec.jitter_mode == "low_discrepancy":
        begin = (keys % many.astype(np.uint64)).astype(np.int64)
        turned: Int64 = (visit + begin) % many
        return turned
    return permuted(visit % many, many, draws(keys, (visit // many).view(np.uint64)))


LARGEST = 1 << 62


class Even:
    """Evenly spaced choices, all with the same weight.

    Args:
        choices: T of each document [N].
        quota: Q, its examples in an epoch [N].

    >>> way = Even(np.array([4]), np.array([3]))
    >>> [way.choose(np.zeros(3, int), np.arange(3), np.full(3, e)).tolist() for e in range(3)]
    [[0, 2, 3], [0, 1, 3], [0, 1, 2]]
    """

    def __init__(self, choices: Int64, quota: Int64) -> None:
        common = np.maximum(np.gcd(choices, quota), 1)
        self._t, self._q = np.maximum(choices // common, 1), np.maximum(quota // common, 1)
        self._mid = choices // 2 // common
        self.plain = bool((self._t == self._q).all())  # T = Q, every choice once per epoch
        _check_sizes(choices, quota)

    def _shift(self, place: Int64, epoch: Int64) -> Int64:
        t = self._t[place]
        moved: Int64 = (self._mid[place] + epoch % t * self._q[place]) % t
        return moved

    def choose(self, place: Int64, k: Int64, epoch: Int64) -> Int64:
        """The choice of example k of an epoch [N]."""
        if self.plain:
            return k
        found: Int64 = (k * self._t[place] + self._shift(place, epoch)) // self._q[place]
        return found

    def visits(self, place: Int64, k: Int64, choice: Int64, epoch: Int64) -> Int64:
        """How often the choice was shown before example k of that epoch [N]."""
        if self.plain:
            return epoch
        t, q, mid = self._t[place], self._q[place], self._mid[place]
        # of an epoch: F(x + 1 - e) - F(x - e), F(z) = ceil((z q - mid) / t); the sum telescopes
        before = -((mid - (choice + 1) * q) // t) + (mid - (choice + 1 - epoch) * q) // t
        first = -((self._shift(place, epoch) - choice * q) // t)
        visits: Int64 = before + k - first
        return visits

    def examples(self, place: int, choice: int, epoch: int) -> range:
        """The examples of an epoch that show a choice."""
        t, q, mid = (int(one[place]) for one in (self._t, self._q, self._mid))
        shift = (mid + epoch * q) % t
        return range(-((shift - choice * q) // t), -((shift - (choice + 1) * q) // t))

    def shown(self, place: Int64, first: Int64, last: Int64, epoch: int) -> Int64:
        """How many examples of all epochs before `epoch` show choices [first, last) [N]."""
        t, q, mid = self._t[place], self._q[place], self._mid[place]
        rounds, rest = epoch // t, epoch % t
        # choice x is shown F(x + 1) - F(x + 1 - rest) times, see `visits`; F(z) is
        # floor((z q - mid - 1) / t) + 1, and the 1 cancels
        count, bound = last - first, (first + 1) * q - mid - 1
        high, low = floor_sum(count, t, q, bound), floor_sum(count, t, q, bound - rest * q)
        found: Int64 = rounds * q * count + high - low
        return found


class Wrapped:
    """All choices in order, over and over; an epoch starts where the previous one ended.

    Args:
        choices: T of each document [N].
        quota: Q, its examples in an epoch [N].
    """

    def __init__(self, choices: Int64, quota: Int64) -> None:
        self._t, self._q = np.maximum(choices, 1), quota

    def choose(self, place: Int64, k: Int64, epoch: Int64) -> Int64:
        """See `Even`."""
        found: Int64 = (epoch * self._q[place] + k) % self._t[place]
        return found

    def visits(self, place: Int64, k: Int64, choice: Int64, epoch: Int64) -> Int64:
        """See `Even`."""
        found: Int64 = (epoch * self._q[place] + k) // self._t[place]
        return found

    def examples(self, place: int, choice: int, epoch: int) -> range:
        """See `Even`."""
        t, q = int(self._t[place]), int(self._q[place])
        return range((choice - epoch * q) % t, q, t)

    def shown(self, place: Int64, first: Int64, last: Int64, epoch: int) -> Int64:
        """See `Even`."""
        rounds, rest = np.divmod(epoch * self._q[place], self._t[place])
        found: Int64 = rounds * (last - first) + np.clip(rest - first, 0, last - first)
        return found


class Edged:
    """Evenly spaced points on a line of weights; each epoch shifts them by a golden-ratio step.

    Args:
        edges: weights by the distance to an end.
        choices: T of each document [N].
        quota: Q, its examples in an epoch [N].
        room: L - K of each document [N].
    """

    def __init__(self, edges: Edges, choices: Int64, quota: Int64, room: Int64) -> None:
        self._edges, self._room = edges, room
        self._choices, self._q = choices, np.maximum(quota, 1)
        self._total = edges.total(room, choices)
        self._step = _golden_steps(self._total)
        _check_sizes(self._total, quota)

    def _shift(self, place: Int64, epoch: Int64) -> Int64:
        total = self._total[place]
        moved: Int64 = (total // 2 + epoch % total * self._step[place]) % total
        return moved

    def _before(self, place: Int64, choice: Int64) -> Int64:
        return self._edges.before(choice, self._room[place], self._choices[place])

    def choose(self, place: Int64, k: Int64, epoch: Int64) -> Int64:
        """See `Even`."""
        weight = (k * self._total[place] + self._shift(place, epoch)) // self._q[place]
        return self._edges.at(weight, self._room[place], self._choices[place])

    def visits(self, place: Int64, k: Int64, choice: Int64, epoch: Int64) -> Int64:
        """See `Even`."""
        total, q = self._total[place], self._q[place]
        low, earlier = self._before(place, choice), self.earlier(place, choice, epoch)
        first = np.maximum(-((self._shift(place, epoch) - low * q) // total), 0)
        visits: Int64 = earlier + k - first
        return visits

    def earlier(self, place: Int64, choice: Int64, epoch: Int64 | int) -> Int64:
        """See `Even`."""
        total, q, step = self._total[place], self._q[place], self._step[place]
        low, high = self._before(place, choice), self._before(place, choice + 1)
        rounds, rest = epoch // total, epoch % total
        # the sum over e of ceil((bound q - shift(e)) / total), where shift(e) = mid + e step up to
        # whole turns; those are the same for both bounds and cancel
        begins = np.concatenate([total // 2 - low * q, total // 2 - high * q])
        n, m, a = (np.concatenate([one, one]) for one in (rest, total, step))
        below, above = floor_sum(n, m, a, begins).reshape(2, -1)
        earlier: Int64 = rounds * q * (high - low) + below - above
        return earlier

    def examples(self, place: int, choice: int, epoch: int) -> range:
        """See `Even`."""
        where, q = np.array([place]), int(self._q[place])
        shift, total = int(self._shift(where, np.array([epoch]))[0]), int(self._total[place])
        low, high = (int(self._before(where, np.array([one]))[0]) for one in (choice, choice + 1))
        return range(max(0, -((shift - low * q) // total)), -((shift - high * q) // total))


Way = Even | Wrapped | Edged
"""How the examples of documents visit their choices; documents are given by place [N]."""


def _golden_steps(total: Int64) -> Int64:
    """About 0.618 of each total, and coprime to it."""
    step = np.maximum((total * (GOLDEN >> 32)) >> 32, 1)  # totals are below 2^31
    while (shared := np.gcd(step, np.maximum(total, 1)) != 1).any():
        step = np.where(shared, step + 1, step)
    return np.asarray(step)


def _check_sizes(choices: Int64, quota: Int64) -> None:
    """Refuse numbers whose products do not fit into 63 bits."""
    large = np.flatnonzero(choices.astype(np.float64) * quota >= LARGEST).tolist()
    for place in large:
        have, show = int(choices[place]), int(quota[place])
        if math.lcm(have, show) >= LARGEST:
            raise ConfigError(
                f"epoch_length: document {place} has {have:,} choices and a quota of {show:,}, too "
                "many to spread exactly. Lower epoch_length, or raise the strides."
            )


class Duplicates:
    """Duplicated starts near the ends, drawn once for each document.

    This is the method used before edge weights were continuous: start t gets a second copy with
    probability ``(w - 1) / (w_max - 1)``.

    Args:
        spec: supplies the seed.
        choices: choices of the documents.
        alphas: alpha of each document [N].
        stride: tokens between starts.
        length: tokens of each document [N].
        document: its number in the store [N].
    """

    def __init__(
        self,
        spec: SpliceSpec,
        choices: Choices,
        alphas: NDArray[np.float64],
        stride: int,
        length: Int64,
        document: Int64,
    ) -> None:
        count, content = choices.count(length), choices.content(length)
        keys = children(key(spec.content_seed, "splice", "duplicates"), document.view(np.uint64))
        columns = zip(length, content, alphas, count, keys, strict=True)
        doubled = [_doubled(*one, stride) for one in columns]
        self.extra = np.array([len(one) for one in doubled], np.int64)
        self._first = np.cumsum(self.extra) - self.extra
        self._base = np.cumsum(count + self.extra) - (count + self.extra)
        second = [
            base + one + np.arange(len(one)) + 1
            for base, one in zip(self._base.tolist(), doubled, strict=True)
        ]
        self._second = np.concatenate([np.empty(0, np.int64), *second])

    def original(self, place: Int64, choice: Int64) -> Int64:
        """The choice that each one copies, or the choice itself if it is not a copy [N]."""
        copies = np.searchsorted(self._second, self._base[place] + choice, side="right")
        found: Int64 = choice - (copies - self._first[place])
        return found


def _doubled(
    length: int, content: int, alpha: float, count: int, stream: np.uint64, stride: int
) -> Int64:
    """Numbers of the duplicated starts of a document; only starts near the ends qualify."""
    if not count or alpha <= 0:
        return np.empty(0, np.int64)
    near = -(-content // stride) + 1
    every = np.arange(count)
    some = every if count <= 2 * near else np.concatenate([every[:near], every[-near:]])
    t = np.minimum(some * stride, length - content)
    d = np.minimum(np.minimum(t + 1, length - content - t + 1), content)
    weights = (content / d) ** alpha
    most = float(content) ** alpha
    chance = (weights - 1) / (most - 1) if most > 1 else np.zeros(len(some))
    luck = draws(int(stream), some.astype(np.uint64)) / 2.0**64
    return some[luck < chance]
