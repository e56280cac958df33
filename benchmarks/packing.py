"""Packing: what a plan costs, how full rows get, and what packed batches cost.

Lengths are lognormal with a median of 500 tokens, clipped to the frame of 2,048, in groups of
10,000 documents. A plan needs only lengths; peers that pack token lists get lists of those lengths,
and their figures include moving tokens, as a note says.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks import peers
from benchmarks.clock import Row, Table, against, amount, cost, interleave, rate, want
from benchmarks.loaders import ALL, TOKENS
from benchmarks.peers import BATCH, SEQ, Corpus
from benchmarks.stores import write_store
from tokenloom import native
from tokenloom.batch import boundaries, paint
from tokenloom.layout.pack.packers import STRATEGIES, pack
from tokenloom.layout.pack.spec import SEQUENTIAL
from tokenloom.store import format as fmt

__all__ = ["CAPACITY", "SIZES", "document_lengths", "position_ways", "run", "scan"]

CAPACITY, GROUP = 2048, 10_000

# size → (documents, documents for peers, rounds, tokens of the store, batches of a pass)
SIZES = {
    "tiny": (20_000, 200, 1, 1 << 20, 4),
    "small": (100_000, 1_000, 3, 1 << 24, 64),
    "default": (1_000_000, 2_000, 5, 1 << 26, 256),
    "full": (1_000_000, 5_000, 15, 1 << 27, 256),
}
GOALS = {  # µs a document, at most
    "best_fit": 0.8,
    "best_fit_decreasing": 0.8,
    "first_fit": 2.0,
    "first_fit_decreasing": 2.0,
    "greedy": 0.15,
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of packing."""
    documents, few, rounds, tokens, batches = SIZES[size]
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder / "torch"))  # a peer makes it
    return [
        _plans(document_lengths(documents), few, rounds, command),
        _fills(documents, few, command),
        _batches(folder, tokens, batches, rounds, command),
        _positions(rounds, command),
    ]


def document_lengths(count: int, log_median: float = math.log(500)) -> np.ndarray:
    """Tokens of documents: lognormal, clipped to the frame."""
    made = np.random.default_rng(0).lognormal(log_median, 1.0, count)
    return np.clip(made, 1, CAPACITY).astype(np.int64)


# -- 1. plans ------------------------------------------------------------------------------


def _in_groups(sizes: np.ndarray, strategy: str, compiled: Any = native.compiled) -> int:
    before, native.compiled = native.compiled, compiled
    try:
        parts = range(0, len(sizes), GROUP)
        return sum(len(pack(sizes[a : a + GROUP], CAPACITY, strategy)) for a in parts)
    finally:
        native.compiled = before


def _plans(sizes: np.ndarray, few: int, rounds: int, command: str) -> Table:
    part = sizes[: max(GROUP, len(sizes) // 10)]
    ways: dict[str, Callable[[], object]] = {}
    counts: dict[str, int] = {}
    for strategy in STRATEGIES:
        ways[strategy] = functools.partial(_in_groups, sizes, strategy)
        counts[strategy] = len(sizes)
        if native.compiled is not None and strategy not in ("greedy", "one_doc"):
            name = f"{strategy}, in Python (TOKENLOOM_NATIVE=0)"
            ways[name] = functools.partial(_in_groups, part, strategy, None)
            counts[name] = len(part)
    by_scan = f"a scan over all bins, {few:,} documents"
    ways[by_scan], counts[by_scan] = functools.partial(scan, sizes[:few].tolist()), few
    notes = []
    for name, (module, make) in PEERS.items():
        if importlib.util.find_spec(module) is None:
            notes.append(f"{name} is left out: {module} not installed.")
            continue
        many = max(few, 2_000)
        ways[name], counts[name] = make(sizes[:many].tolist()), many
    timing = interleave(ways, rounds)

    def row(name: str) -> Row:
        made = cost(name, timing[name], counts[name], "µs")
        goal = GOALS.get(name)
        return made if goal is None else want(made, "<=", goal)

    notes.insert(0, f"{len(sizes):,} documents in groups of {GROUP:,}; frames of {CAPACITY:,}.")
    notes.append("Peers also move token lists; a plan does not.")
    title = "packing 1: planning, CPU a document"
    return Table(title=title, command=command, rows=[row(n) for n in ways], notes=notes)


def scan(sizes: list[int]) -> int:
    """Bins of best fit decreasing by looking at every bin, as published packers do."""
    rooms: list[int] = []
    for length in sorted(sizes, reverse=True):
        fits = [(room, i) for i, room in enumerate(rooms) if room >= length]
        if fits:
            rooms[min(fits)[1]] -= length
        else:
            rooms.append(CAPACITY - length)
    return len(rooms)


def _count(made: Any) -> int:
    """Rows that a peer made."""
    return made if isinstance(made, int) else len(made)


def _trl(lengths: list[int]) -> Callable[[], object]:
    datasets: Any = importlib.import_module("datasets")
    trl: Any = importlib.import_module("trl.data_utils")
    rows = datasets.Dataset.from_dict({"input_ids": [[1] * n for n in lengths]})
    rows = rows.with_format("arrow")

    datasets.disable_caching()
    datasets.disable_progress_bars()

    def go() -> object:
        return trl.pack_dataset(rows, CAPACITY, "bfd", map_kwargs={"load_from_cache_file": False})

    return go


def _grain(lengths: list[int]) -> Callable[[], object]:
    grain: Any = importlib.import_module("grain")
    packing: Any = importlib.import_module("grain.experimental")
    rows = [{"input_ids": np.ones(n, np.int32)} for n in lengths]

    def go() -> object:
        made = packing.BestFitPackIterDataset(
            grain.MapDataset.source(rows).to_iter_dataset(),
            length_struct={"input_ids": CAPACITY},
            num_packing_bins=64,
        )
        return sum(1 for _ in made)

    return go


PEERS: dict[str, tuple[str, Callable[[list[int]], Callable[[], object]]]] = {
    "TRL pack_dataset, bfd": ("trl", _trl),
    "Grain BestFitPackIterDataset, 64 bins": ("grain", _grain),
}


# -- 2. fill -------------------------------------------------------------------------------


def _fills(documents: int, few: int, command: str) -> Table:
    """Filler among a million cells: fill itself would need five digits."""
    made = np.random.default_rng(3).lognormal(np.log(404), 1.3, documents)
    lengths = made.astype(np.int64) + 1
    goals = {1_000: 3_000, 10_000: 400, 100_000: 100}  # fills of .997, .9996, .9999
    rows = []

    def filler(strategy: str, group: int) -> Row:
        groups = {"group_docs": group, "group_tokens": 1 << 40}
        plan = tl.plan_packing(lengths, seq_len=4096, strategy=strategy, **groups)
        return amount(f"{strategy}, groups of {group:,}", plan.padding * 1e6, "of a million cells")

    for group, goal in goals.items():
        row = filler("best_fit_decreasing", group)
        rows.append(want(row, "<=", goal) if documents >= group else row)
    rows += [filler(strategy, GROUP) for strategy in (SEQUENTIAL, *STRATEGIES)]
    some = np.minimum(lengths[:few], CAPACITY)
    ours = len(pack(some, CAPACITY, "best_fit_decreasing"))
    made_by = {"best_fit_decreasing, one group": ours}
    for name, (module, make) in PEERS.items():
        if importlib.util.find_spec(module) is not None:
            made_by[name] = _count(make(some.tolist())())
    for name, bins in made_by.items():
        share = 1 - some.sum() / (bins * CAPACITY)
        what = f"{few:,} documents in frames of {CAPACITY:,}: {name}"
        rows.append(amount(what, float(share) * 1e6, "of a million cells"))
    long = lengths > 4096
    note = (
        f"{documents:,} documents of {lengths.mean():,.0f} tokens on average in frames of 4,096; "
        f"{long.mean():.1%} are longer and hold {lengths[long].sum() / lengths.sum():.1%} of the "
        "tokens; they are split."
    )
    return Table(title="packing 2: filler", command=command, rows=rows, notes=[note])


# -- 3. batches ----------------------------------------------------------------------------


def _batches(folder: Path, tokens: int, batches: int, rounds: int, command: str) -> Table:
    root = folder / "store"
    write_store(root, tokens)
    corpus = Corpus(path=root / fmt.shard_name(0) / "input_ids/c/0", tokens=tokens, folder=folder)
    found, notes = peers.find(corpus)
    torch = found.get("torch DataLoader")
    store = tl.open(root)
    ways: dict[str, Any] = {}
    for name, fields in (("tokens only", TOKENS), ("all arrays", ALL)):
        for order in ("shuffle", "block_shuffle"):
            ways[f"packed, {order}, {name}"] = functools.partial(_own, store, order, fields)
    if torch is not None:
        ways[torch.name] = torch.start
    running = {name: start() for name, start in ways.items()}
    for one in running.values():
        _take(one, tokens // SEQ // BATCH)
    passes = {n: functools.partial(_take, one, batches) for n, one in running.items()}
    timing = interleave(passes, max(2, rounds))
    done = batches * BATCH * SEQ / 1e6
    made = {name: rate(name, timing[name], done, "Mtok/CPU-s") for name in ways}
    rows = []
    for name, row in made.items():
        if torch is None or name == torch.name:
            rows.append(row)
            continue
        held = against(row, made[torch.name], "torch DataLoader")
        rows.append(want(held, ">=", 1.3, of_ratio=True) if "all arrays" in name else held)
    title = f"packing 3: packed batches of {BATCH} x {SEQ:,}, warm"
    return Table(title=title, command=command, rows=rows, notes=notes)


def _own(store: tl.Store, order: str, fields: tuple[str, ...]) -> Any:
    packed = getattr(store.pack(SEQ), order)().seed(7).epochs(None)
    return iter(tl.Loader(packed, BATCH, fields=fields))


def _take(batches: Any, count: int) -> None:
    for _ in range(count):
        next(batches)


# -- 4. positions --------------------------------------------------------------------------


def position_ways(documents: int) -> dict[str, Callable[[], np.ndarray]]:
    """Ways to the position ids of 64 rows of 4,096 tokens, each with this number of documents."""
    rng = np.random.default_rng(2)
    cuts = [np.sort(rng.choice(4095, documents - 1, replace=False) + 1) for _ in range(64)]
    starts = [np.concatenate([[0], one]).tolist() for one in cuts]
    tokens = rng.integers(1, 1000, (64, 4096)).astype(np.int32)
    for row, one in zip(tokens, cuts, strict=True):
        row[one - 1] = 0
    lengths = np.full(64, 4096)

    def guessed() -> np.ndarray:
        marks = boundaries.marks_from_tokens(tokens, lengths, 0, None)
        tiles = boundaries.tiles_from_marks(marks, lengths, 4096)
        return paint.paint(tiles, ["position_ids"])["position_ids"]

    def a_document_at_a_time() -> np.ndarray:
        made = np.empty((64, 4096), np.int32)
        for row, one in zip(made, starts, strict=True):
            for start in one:  # renumbers all that follows, so documents x cells
                row[start:] = np.arange(4096 - start)
        return made

    def a_maximum() -> np.ndarray:
        cells = np.arange(4096, dtype=np.int32)
        begin = np.zeros((64, 4096), np.int32)
        begin[:, 1:] = np.where(tokens[:, :-1] == 0, cells[1:], 0)
        return cells - np.maximum.accumulate(begin, axis=1)

    return {
        "from document starts": functools.partial(boundaries.position_ids, starts, 4096),
        "from EOS tokens": guessed,
        "from document starts, as published": a_document_at_a_time,
        "from EOS tokens, as published": a_maximum,
    }


def _positions(rounds: int, command: str) -> Table:
    """64 rows of 4,096 tokens with 200 documents each: position ids from starts, and from EOS."""
    ways = dict(list(position_ways(200).items())[:2])
    timing = interleave(ways, max(3, rounds))
    rows = [cost(name, timing[name], 1, "ms") for name in ways]
    rows[0] = want(rows[0], "<=", 20.0)
    return Table(
        title="packing 4: position ids of 64 x 4,096 tokens, 200 documents a row",
        command=command,
        rows=rows,
        notes=[f"The starts take {200 / 4096:.1%} of the bytes of the position ids."],
    )
