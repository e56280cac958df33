"""Mixing: what it costs to find the source of an example, at any index.

Sources have rows of equal cost (token windows) or of different costs (packed rows, here 1 to 4,096
tokens); weights are drawn once. Planning is in chunks of 65,536 examples, as in a loader. The rival
is the usual loop: a heap of what each source has consumed, which must replay everything before an
index.

Then what a mix costs whoever trains: batches of a mix of five and of a thousand sources beside
those of one source, states, fingerprints and edits.
"""

from __future__ import annotations

import functools
import heapq
import importlib.util
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import tokenloom as tl
from benchmarks.clock import Case, Row, Table, against, cost, interleave, want
from benchmarks.stores import write_store
from tokenloom.api.plan_packing import line_of
from tokenloom.layout.layout import Phases
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.limits import limits
from tokenloom.mixture.merge import Clock, Merge
from tokenloom.order.costs import EqualCosts, SummedCosts, costs_of
from tokenloom.order.run import source_run
from tokenloom.order.shuffle import BlockShuffle, FullShuffle
from tokenloom.testing import tiny

__all__ = ["SIZES", "run"]

CHUNK = limits().mix_chunk_items
FAR = 10**9
# size → (chunks of a pass, samples for rivals, rows of an indexed epoch, rounds)
SIZES = {
    "tiny": (1, 1_000, 10_000, 1),
    "small": (4, 20_000, 200_000, 3),
    "default": (16, 100_000, 2_000_000, 7),
    "full": (64, 200_000, 10_000_000, 9),
}
GOALS = {5: 60.0, 100: 200.0}  # ns a sample
# size → (tokens of the large store, sources of the large mix, batches of a pass, parts, edits)
MIXES = {
    "tiny": (1 << 18, 40, 20, 40, 20),
    "small": (1 << 24, 1000, 300, 500, 300),
    "default": (1 << 26, 1000, 2048, 500, 300),
    "full": (1 << 26, 1000, 4096, 500, 300),
}
SMALL, STORES = 1 << 15, 40  # tokens of a small store, and how many there are
GROUP = 8192  # examples that a loader plans together


class _Prices:
    """Rows of one epoch with prices of their own."""

    def __init__(self, rows: int, seed: int) -> None:
        self._prices = np.random.default_rng(seed).integers(1, 4097, rows)
        self.phases = Phases.constant(rows)

    identity = None
    most = 4096

    def prices(self, first: int, last: int) -> np.ndarray:
        """Of some items."""
        return self._prices[np.arange(first, last) % len(self._prices)]

    def is_steady(self, epoch: int) -> bool:
        """Every epoch has all rows."""
        return True

    def whole(self, first: int, last: int) -> None:
        """Rows must be visited."""

    def by_rows(self, *_) -> None:
        """Rows are added up in the order in which they come."""


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of mixing."""
    chunks, few, rows, rounds = SIZES[size]
    with mock.patch.dict("os.environ", TOKENLOOM_CACHE_DIR=str(folder / "cache")):
        return [
            _plans(chunks, few, rows, rounds, command),
            _seeks(rows, rounds, command),
            _sums(rows // 10, rounds, command),
            _batches(folder, size, rounds, command),
            _books(folder, size, rounds, command),
        ]


def _merge(count: int, rows: int = 0) -> Merge:
    weights = np.random.default_rng(count).dirichlet(np.ones(count))
    clocks = []
    for number, weight in enumerate(weights.tolist()):
        summed = SummedCosts(_Prices(rows, number), None) if rows else EqualCosts(2048, None)
        clocks.append(Clock(f"source {number}", summed, weight))
    return Merge(clocks, seed=0, midpoint=False)


def _plan(merge: Merge, chunks: int) -> None:
    first = merge.begin
    for number in range(chunks):
        merge.items(first + number * CHUNK, first + (number + 1) * CHUNK)


def _heap(count: int, samples: int) -> None:
    """The loop with a state: the source that has consumed least for its weight."""
    weights = np.random.default_rng(count).dirichlet(np.ones(count)).tolist()
    heap = [(0.0, number) for number in range(count)]
    for _ in range(samples):
        consumed, number = heap[0]
        heapq.heapreplace(heap, (consumed + 2048 / weights[number], number))


def _grain(count: int, samples: int) -> Callable[[], object] | None:
    if importlib.util.find_spec("grain") is None:
        return None
    import grain

    weights = np.random.default_rng(count).dirichlet(np.ones(count)).tolist()
    sources = [grain.MapDataset.range(10**9) for _ in range(count)]
    mixed = grain.MapDataset.mix(sources, weights=weights)
    return lambda: [mixed[i] for i in range(samples)]


def _plans(chunks: int, few: int, rows: int, rounds: int, command: str) -> Table:
    ways: dict[str, Callable[[], object] | Case] = {}
    counts: dict[str, int] = {}
    for count in (5, 100, 1000):
        name = f"{count} sources, rows of one cost"
        made = _merge(count)
        ways[name], counts[name] = functools.partial(_plan, made, chunks), chunks * CHUNK
    for count in (5, 100):
        name = f"{count} sources, rows with costs of their own"
        made = _merge(count, rows // 20 if count > 5 else rows)
        _plan(made, chunks)  # sums of the first epochs
        ways[name], counts[name] = functools.partial(_plan, made, chunks), chunks * CHUNK
    for count in (5, 100):
        name = f"{count} sources, a heap in Python"
        ways[name], counts[name] = functools.partial(_heap, count, few), few
    notes = [f"Chunks of {CHUNK:,} examples, {chunks} of them one after the other; ns a sample."]
    for count in (5, 100):
        rival = _grain(count, few // 50)
        if rival is None:
            notes.append("Grain is left out: it is not installed.")
            break
        ways[f"{count} sources, Grain"], counts[f"{count} sources, Grain"] = rival, few // 50
    timing = interleave(ways, rounds)
    found: list[Row] = []
    for name in ways:
        row = cost(name, timing[name], counts[name], "ns")
        number = int(name.split()[0])
        if name.endswith("one cost") and number in GOALS:
            row = want(row, "<=", GOALS[number])
        found.append(row)
    heap = {row.what: row for row in found}
    found = [
        against(row, heap[f"{row.what.split()[0]} sources, a heap in Python"], "the heap")
        if row.what.endswith("one cost") and int(row.what.split()[0]) in GOALS
        else row
        for row in found
    ]
    return Table(title="mix 1: which source", command=command, rows=found, notes=notes)


def _far(count: int, rows: int, merge: Merge | None = None) -> Any:
    made = merge or _merge(count, rows)
    made.cut(FAR + 1)  # somewhere else, so that nothing is known
    return made.items(FAR, FAR + 64)


def _seeks(rows: int, rounds: int, command: str) -> Table:
    ways: dict[str, Callable[[], object] | Case] = {
        f"{count} sources: the 64 examples at 10^9": functools.partial(_far, count, 0)
        for count in (5, 100, 1000)
    }
    known = _merge(5, rows)
    _far(5, rows, known)
    name = "5 sources with costs of their own: the same, sums known"
    ways[name] = functools.partial(_far, 5, rows, known)
    timing = interleave(ways, rounds)
    found = [want(cost(one, timing[one], 1, "ms"), "<=", 50.0) for one in ways]
    notes = ["A seek starts with only the sums known; two cuts and a sort."]
    return Table(title="mix 2: seeking", command=command, rows=found, notes=notes)


def _packed(documents: int) -> Packed:
    """A packed layout of documents of which only lengths are known: median 500, at most 2,048."""
    drawn = np.random.default_rng(0).lognormal(np.log(500), 1.0, documents)
    return Packed(PackSpec(seq_len=2048), line_of(np.clip(drawn, 1, 2048).astype(np.int64)))


def _sums(rows: int, rounds: int, command: str) -> Table:
    """What it costs to know C(k) of a real source: its order, the tokens of its rows, the sums."""
    layout = _packed(3 * rows)
    every = int(layout.phases.rows[0])
    layout.costs(0, np.arange(1))  # have them at hand, as a plan leaves them
    shuffles = {
        "full shuffle": FullShuffle(),
        "block shuffle": BlockShuffle(window_blocks=16),
        "as stored": None,
    }
    ways: dict[str, Callable[[], object] | Case] = {}
    for name, shuffle in shuffles.items():
        run = source_run(name="a", layout=layout, shuffle=shuffle, epochs=None, seed=0)
        ways[name] = functools.partial(_add_up, run)
    ways["planning the rows themselves"] = functools.partial(_packed, 3 * rows)
    # work it out every time
    with tiny(min_cached_cost_items=1 << 62, min_cached_packing_documents=1 << 62):
        timing = interleave(ways, rounds)
    found = [cost(one, timing[one], every, "ns") for one in ways]
    found = [want(row, "<=", 60.0) if row.what in shuffles else row for row in found]
    notes = [
        f"{every:,} packed rows of 2,048 tokens; ns a row, once for each source and epoch.",
        "The tokens of a row fall out of planning, and are kept with the plan.",
    ]
    return Table(title="mix 3: sums of a packed source", command=command, rows=found, notes=notes)


def _add_up(run: Any) -> int:
    return costs_of(run, "tokens", None).upto(run.rows)


# -- what a mix costs whoever trains -------------------------------------------------------------
def _opened(folder: Path, name: str, tokens: int) -> Any:
    if not (folder / name).exists():
        write_store(folder / name, tokens)
    return tl.open(folder / name)


def _one_source(folder: Path, size: str, seq_len: int) -> Any:
    windows = _opened(folder, "large", MIXES[size][0]).windows(seq_len)
    return windows.block_shuffle().epochs(None).seed(7)


def _five(folder: Path, size: str, layout: str) -> Any:
    stores = [_opened(folder, f"fifth {n}", MIXES[size][0] // 5) for n in range(5)]
    made = [getattr(store, layout)(2048).block_shuffle().epochs(None) for store in stores]
    weights = {f"s{n}": weight for n, weight in enumerate((0.37, 0.23, 0.19, 0.13, 0.08))}
    return tl.mix(dict(zip(weights, made, strict=True)), weights=weights).seed(7)


def _thousand(folder: Path, size: str) -> Any:
    stores = [_opened(folder, f"small {n}", SMALL) for n in range(STORES)]
    count = MIXES[size][1]
    shares = np.random.default_rng(0).dirichlet(np.full(count, 2.0))
    weights = {f"s{n}": float(share) for n, share in enumerate(shares)}
    made = [stores[n % STORES].windows(256).block_shuffle().epochs(None) for n in range(count)]
    return tl.mix(dict(zip(weights, made, strict=True)), weights=weights).seed(7)


def _passes(run: Any, batches: int) -> Case:
    """Batches of 32 rows; the loader is warm, alone, and closed before the next one starts."""
    steps = itertools.count(0, batches)

    def prepare() -> Any:
        loader = tl.Loader(run, batch_size=32).seek(next(steps))
        for _ in range(min(batches, 600)):
            next(loader)
        return loader

    def take(loader: Any) -> None:
        for _ in range(batches):
            next(loader)
        loader.close()

    return Case(prepare=prepare, run=take)


def _picks(run: Any, groups: int) -> None:
    """(source, item) in groups, as a loader asks."""
    run._chunks = {}
    for first in range(0, groups * GROUP, GROUP):
        run.pick(np.arange(first, first + GROUP))


def _batches(folder: Path, size: str, rounds: int, command: str) -> Table:
    batches, many = MIXES[size][2], MIXES[size][1]
    five, thousand = _five(folder, size, "windows"), _thousand(folder, size)
    packed = _five(folder, size, "pack")
    large = _opened(folder, "large", MIXES[size][0]).pack(2048).block_shuffle().epochs(None)
    ways = {
        "one source, 32 x 2,048": _passes(_one_source(folder, size, 2048), batches),
        "five sources, 32 x 2,048": _passes(five, batches),
        "one packed source, 32 x 2,048": _passes(large.seed(7), batches),
        "five packed sources, 32 x 2,048": _passes(packed, batches),
        "one source, 32 x 256": _passes(_one_source(folder, size, 256), batches),
        f"{many:,} sources, 32 x 256": _passes(thousand, batches),
    }
    timing = interleave(ways, rounds)
    made = {name: cost(name, timing[name], batches) for name in ways}
    names = list(ways)
    for name, rival, most in zip(names[1::2], names[::2], (1 / 0.85, 1 / 0.85, 5.0), strict=True):
        row = against(made[name], made[rival], "one source")
        made[name] = want(row, "<=", round(most, 3), of_ratio=True)
    groups = 8
    picks: dict[str, Callable[[], object] | Case] = {
        "five sources, index to (source, item)": functools.partial(_picks, five.run, groups),
        "five packed sources, index to (source, item)": functools.partial(
            _picks, packed.run, groups
        ),
        f"{many:,} sources, index to (source, item)": functools.partial(
            _picks, thousand.run, groups
        ),
    }
    timing = interleave(picks, rounds)
    found = [cost(name, timing[name], groups * GROUP, "ns") for name in picks]
    found[:2] = [want(row, "<=", 60.0) for row in found[:2]]
    notes = [
        f"Tokens only, block shuffle, stores in memory, {batches:,} batches of a warm loader; µs.",
        f"(source, item) in groups of {GROUP:,}; ns a row.",
        "The many sources are windows over 40 small stores, each with an order of its own.",
    ]
    rows = [*made.values(), *found]
    return Table(title="mix 4: batches", command=command, rows=rows, notes=notes)


def _books(folder: Path, size: str, rounds: int, command: str) -> Table:
    """States, fingerprints and edits, each of a run that has not been asked before."""
    _, many, _, parts, edits = MIXES[size]
    thousand = _thousand(folder, size)
    loader = tl.Loader(thousand, batch_size=32)
    split = _opened(folder, "documents", 1 << 21).split({f"p{n}": 1 / parts for n in range(parts)})
    laid = {name: one.windows(2) for name, one in split.items() if len(one.indices)}
    edited = _five(folder, size, "windows")
    for number in range(edits - 1):
        edited = edited.edit(at=1000 * (number + 1), weights={"s0": 0.3 + number % 7})
    state, first, print_, edit = (
        f"state of {many:,} sources, later ones",
        f"state of {many:,} sources, the first",
        f"fingerprint of {len(laid)} parts of a split",
        f"edit {edits} of a mix",
    )
    ways: dict[str, Callable[[], object] | Case] = {
        first: Case(
            prepare=lambda: tl.Loader(thousand.seed(7), batch_size=32),
            run=lambda one: one.state_dict(),
        ),
        state: Case(prepare=lambda: _stepped(loader), run=lambda one: one.state_dict()),
        print_: Case(prepare=lambda: _ready(tl.mix(laid).seed(1)), run=lambda run: run.fingerprint),
        edit: lambda: edited.edit(at=1000 * edits, weights={"s0": 0.9}),
    }
    timing = interleave(ways, rounds)
    found = [cost(name, timing[name], 1, "ms") for name in ways]
    goals = {first: 20.0, state: 20.0, print_: 50.0, edit: 5.0}
    found = [want(row, "<=", goals[row.what]) if row.what in goals else row for row in found]
    notes = ["The first state also describes the run and computes its fingerprint."]
    return Table(title="mix 5: states and edits", command=command, rows=found, notes=notes)


def _ready(dataset: Any) -> Any:
    _ = dataset.run
    return dataset


def _stepped(loader: Any) -> Any:
    next(loader)
    return loader
