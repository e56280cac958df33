"""Mixing as loops: which source comes next, item by item.

A source is a name, a function from an item to its cost, and how many items there are. The loop
draws again and again from the source whose pending item comes first in time, and adds up what it
costs. Nothing here imports the code under test.
"""

import itertools
import struct
from collections import Counter
from dataclasses import dataclass, field

from slow_orders import shuffled, slow_child, slow_key


@dataclass
class Slow:
    """A source while the loop runs; `declared` items make it exhausted, `n` are all it has."""

    name: str
    cost: object  # item → cost
    n: int | None = None
    weight: float = 1.0
    declared: int | None = None
    base: float = 0.0
    ref: int = 0
    k: int = 0
    consumed: int = 0
    gone: bool = False

    @property
    def is_over(self):
        return self.gone or (self.n is not None and self.k >= self.n)

    def time(self, midpoint):
        """Ruling 10, in Python's own floats."""
        if midpoint:
            twice = 2 * (self.consumed - self.ref) + self.cost(self.k)
            return self.base + twice / (2 * self.weight)
        return self.base + (self.consumed - self.ref) / self.weight

    def deadline(self):
        """Ruling 12: when it is exhausted."""
        if self.declared is None:
            return float("inf")
        left = sum(self.cost(k) for k in range(self.k, self.declared))
        if self.declared < self.k:
            left = -sum(self.cost(k) for k in range(self.declared, self.k))
        return self.base + (self.consumed + left - self.ref) / self.weight


@dataclass
class Loop:
    """The greedy loop; `picks` is what it has drawn so far."""

    sources: list
    seed: int = 0
    midpoint: bool = False
    in_turn: bool = False
    stop: str | None = None  # None draws endlessly
    picks: list = field(default_factory=list)

    def __post_init__(self):
        self._until()

    def _until(self):
        moments = [one.deadline() for one in self.sources if not one.is_over]
        self.until = float("inf")
        if moments and self.stop == "first_exhausted":
            self.until = min(moments)
        if moments and self.stop == "restart":
            self.until = max(moments)

    def _tie(self, place, moment):
        """Which of several sources is first that have an item at one moment."""
        if self.in_turn:
            return place
        bits = struct.unpack("<Q", struct.pack("<d", moment))[0]
        return slow_child(slow_key(self.seed, "mix", "ties", self.sources[place].name), bits)

    def pending(self):
        """(moment, place) of every source that has an item left."""
        every = enumerate(self.sources)
        return [(one.time(self.midpoint), place) for place, one in every if not one.is_over]

    def draw(self):
        """The next (source, item), None at the end."""
        pending = self.pending()
        if not pending or min(pending)[0] >= self.until:
            return None
        moment = min(pending)[0]
        first = [place for time, place in pending if time == moment]
        place = first[0] if len(first) == 1 else min(first, key=lambda p: self._tie(p, moment))
        source = self.sources[place]
        pick = place, source.k
        source.consumed += source.cost(source.k)
        source.k += 1
        self.picks.append(pick)
        return pick

    def run(self, count=None):
        """Draw that many more, or to the end."""
        left = itertools.count() if count is None else range(count)
        for _ in left:
            if self.draw() is None:
                break
        return self.picks

    def edit(self, *, weights=None, add=(), remove=()):
        """Ruling 13, at the place that the loop has come to."""
        pending = self.pending()
        now = min(pending)[0] if pending else 0.0
        for source in self.sources:
            if source.name in remove:
                source.gone = True
                continue
            new = (weights or {}).get(source.name, source.weight)
            if new != source.weight:
                start = source.base + (source.consumed - source.ref) / source.weight
                source.base = now + (start - now) * source.weight / new
                source.ref, source.weight = source.consumed, new
        for source in add:
            source.base = now
            self.sources.append(source)
        self._until()


def slow_rounds(picks, block, sources, *, is_shuffled=False, seed=0):
    """Blocks from what the `weights` loop drew: its counts at block ends, less those before."""
    out = []
    for number, first in enumerate(range(0, len(picks), block)):
        before = Counter(place for place, _ in picks[:first])
        behind = Counter(place for place, _ in picks[: first + block])
        here = [(s, k) for s in range(sources) for k in range(before[s], behind[s])]
        if is_shuffled:
            here = shuffled(here, slow_child(slow_key(seed, "mix", "rounds"), number))
        out += here
    return out
