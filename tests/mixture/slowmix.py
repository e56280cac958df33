"""Mixing said as loops: what `tokenloom.mix` must give, item by item.

Nothing here asks the code under test anything but the keys of ties and permutations. A source is a
name, a function from an item to its cost, and how many items there are. The loop draws again and
again from the source whose pending item happens first, and adds up what that costs.
"""

import contextlib
import itertools
import signal
import struct
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

import tokenloom as tl
from tokenloom.random.keys import child, key
from tokenloom.random.permute import permutations
from tokenloom.testing import write_store


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


def begin(name, cost, n=None, weight=1.0, declared=None, initial=0):
    """A source at the start of a run."""
    return Slow(name, cost, n, weight, declared, base=initial / weight)


def listed(costs):
    """Items with these costs, over and over."""
    return lambda k: costs[k % len(costs)]


def by_epoch(epochs):
    """Items with the costs of epoch 0, then of epoch 1, …; the last repeats endlessly."""

    def cost(k):
        for one in epochs:
            if k < len(one):
                return one[k]
            k -= len(one)
        return epochs[-1][k % len(epochs[-1])]

    return cost


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
        return child(key(self.seed, "mix", "ties", self.sources[place].name), bits)

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


def slow_rounds(picks, block, sources, *, shuffled=False, seed=0):
    """Blocks from what the `weights` loop drew: its counts at block ends, less those before."""
    out = []
    for number, first in enumerate(range(0, len(picks), block)):
        before = Counter(place for place, _ in picks[:first])
        behind = Counter(place for place, _ in picks[: first + block])
        here = [(s, k) for s in range(sources) for k in range(before[s], behind[s])]
        if shuffled:
            made = permutations(len(here), [child(key(seed, "mix", "rounds"), number)])
            order = made.forward(np.arange(len(here), dtype=np.uint64)).tolist()
            here = [here[place] for place in order]
        out += here
    return out


def counts_at(picks, index, sources):
    """Items of each source among the first picks."""
    found = Counter(place for place, _ in picks[:index])
    return [found[place] for place in range(sources)]


def pairs(found):
    """(source, item) arrays as a list of pairs."""
    source, item = found
    return list(zip(source.tolist(), item.tolist(), strict=True))


@contextlib.contextmanager
def within(seconds):
    """A loop that never ends fails instead; CPU-seconds, so that a busy machine does not count."""

    def late(*_):
        raise AssertionError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# -- datasets ------------------------------------------------------------------------------

SEQ_LEN = 8


def toy(root, lengths, *, first=1, vocab_size=1000, columns=None):
    """A store whose documents have these lengths; tokens count up from `first`."""
    count = itertools.count(first)
    documents = [[next(count) % vocab_size for _ in range(length)] for length in lengths]
    half = len(documents) // 2
    shards = [documents[:half], documents[half:]]
    options = {"inner": 16, "chunk_tokens": 32, "vocab_size": vocab_size, "columns": columns}
    write_store(root, [shard for shard in shards if shard], **options)
    return tl.open(root, cache_bytes=1 << 20)


def lengths_of(seed, tokens, most=20):
    """Lengths of documents that have that many tokens together."""
    rng, found = np.random.default_rng(seed), []
    while sum(found) < tokens:
        found.append(min(int(rng.integers(1, most)), tokens - sum(found)))
    return found


def three_stores(root):
    """Three small stores: whole rows, a ragged tail, short documents."""
    return {
        "wiki": toy(root / "wiki", lengths_of(1, 12 * SEQ_LEN)),
        "code": toy(root / "code", lengths_of(2, 5 * SEQ_LEN + 3), first=300),
        "books": toy(root / "books", lengths_of(3, 90, most=8), first=600),
    }


def tokens_of(run, most):
    """Tokens in the frames of the first items of a source, from its spans; at least 1 each."""
    epoch, row = run.locate(np.arange(most))
    spans = run.layout.spans(epoch, row)
    return np.maximum(1, np.bincount(spans.row, spans.cells, minlength=most)).astype(int).tolist()


def loop_of(mixed, rule, *, cost, stop, weights=None, seed=0, initial=None, caps=None, most=12_000):
    """The loop for a mix of datasets, with nothing taken from it but the runs of its sources."""
    sources = []
    for name, run in zip(mixed.run.names, mixed.run.sources, strict=True):
        epochs = mixed.sources[name].config.epochs
        declared = None if epochs is None else epochs * run.rows
        cap = None if not caps or name not in caps else int(caps[name] * run.rows)
        if cap is not None:
            declared = cap if declared is None else min(cap, declared)
        n = declared if stop == "all_exhausted" else cap
        each = listed(tokens_of(run, most)) if cost == "tokens" else listed([1])
        weight = (weights or {}).get(name, 1.0)
        sources.append(begin(name, each, n, weight, declared, (initial or {}).get(name, 0)))
    midpoint = rule in ("weights", "rounds", "random")
    return Loop(sources, seed=seed, midpoint=midpoint, in_turn=rule == "round_robin", stop=stop)


def expected_of(mixed, rule, *, block=None, seed=0, **options):
    """Every (source, item) of a mix, from the loop."""
    picks = loop_of(mixed, rule, seed=seed, **options).run()
    if rule in ("rounds", "random"):
        return slow_rounds(picks, block, len(mixed.sources), shuffled=rule == "random", seed=seed)
    return picks


def picks_of(mixed, first=0, last=None):
    """(source, item) of a stretch of a mix."""
    return pairs(mixed.run.pick(np.arange(first, len(mixed) if last is None else last)))
