"""Loaders: batches of 32 windows of 2,048 tokens in shuffled order, ours and others'.

Three tables: the rate, the time to the first batch, and memory. One idea: all loaders are in one
process over the same tokens and take turns. Every rival is checked and iterates over the data once
before it is timed, so that files are in the page cache, maps are mapped and our chunks are
checked. A pass is 256 batches, long enough that whatever a loader plans ahead for a few thousand
examples is paid inside the pass; it ends when all threads are idle.

Ours is compared with the peers of `benchmarks.peers` and with the limit: a gather from an array in
memory, the faster of two ways, into new arrays, because a batch must stay valid while it is held.
Reused buffers and plain copies of the same number of bytes are also shown.
"""

from __future__ import annotations

import functools
import gc
import itertools
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks import peers
from benchmarks.clock import Row, Table, against, amount, cost, interleave, rate, typical, want
from benchmarks.peers import BATCH, SEQ, Corpus, Rival
from benchmarks.stores import write_store
from tokenloom.store import format as fmt

__all__ = ["SIZES", "Size", "run"]

TOKENS = ("tokens",)
ALL = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids")
ALL_BYTES = 17  # per token: four int32 arrays and a bool
ORDERS = ("shuffle", "block_shuffle")
FAR = 1_000_000  # steps
IDLE = 0.002  # seconds of almost no CPU after which no thread is at work
MIB = 1 << 20

# what ours is held against → at least this many times its rate
TOKENS_GOALS = {"torch DataLoader": 4.0, "limit": 0.7}
ALL_GOALS = {"torch DataLoader": 1.8, "LitData": 3.0, "Grain": 5.0, "nanoGPT get_batch": 9.0}


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Tokens of the store, batches of a pass, rounds, first batches, batches of the memory row."""

    tokens: int
    batches: int
    rounds: int
    firsts: int
    many: int


SIZES = {
    "tiny": Size(tokens=1 << 20, batches=4, rounds=1, firsts=1, many=32),
    "small": Size(tokens=1 << 25, batches=256, rounds=6, firsts=3, many=2_000),
    "default": Size(tokens=1 << 26, batches=256, rounds=16, firsts=7, many=10_000),
    "full": Size(tokens=1 << 27, batches=256, rounds=64, firsts=21, many=100_000),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of loading."""
    how = SIZES[size]
    root = folder / "store"
    write_store(root, how.tokens)
    corpus = Corpus(
        path=root / fmt.shard_name(0) / "input_ids/c/0", tokens=how.tokens, folder=folder
    )
    others, notes = peers.find(corpus)
    ours = _own_rivals(root)
    if not ours:
        notes.append("tokenloom is left out: it has no Loader yet.")
    rates = _rates(corpus, others, ours, how, command)
    tables = [replace(rates, notes=rates.notes + notes)]
    if others or ours:
        tables.append(_firsts(root, others, ours, how.firsts, command))
    if ours:
        tables.append(_memory(root, how.many, command))
    return tables


# -- ours ----------------------------------------------------------------------------------


def _own_rivals(root: Path) -> dict[tuple[str, tuple[str, ...]], Rival]:
    """(order, fields) → ours; nothing while there is no loader."""
    if not hasattr(tl, "Loader"):
        return {}
    return {
        (order, fields): Rival(
            name=f"tokenloom, {order}, {'tokens only' if fields == TOKENS else 'all arrays'}",
            start=functools.partial(_own_batches, root, order, fields),
            arrays=functools.partial(_fields_of, fields),
        )
        for fields in (TOKENS, ALL)
        for order in ORDERS
    }


def _fields_of(fields: tuple[str, ...], batch: Any) -> dict[str, Any]:
    return {field: getattr(batch, field) for field in fields}


def _own_data(root: Path, order: str) -> Any:
    windows: Any = tl.open(root)
    return getattr(windows.windows(SEQ), order)().seed(7)


def _own_loader(data: Any, fields: tuple[str, ...]) -> Any:
    """Tokens are there without asking; all five are asked for, so that they are made together."""
    make: Any = tl.Loader  # type: ignore[attr-defined,unused-ignore]
    more = {} if fields == TOKENS else {"fields": fields}
    return make(data, batch_size=BATCH, **more)


def _own_batches(root: Path, order: str, fields: tuple[str, ...]) -> Iterator[Any]:
    data = _own_data(root, order)
    for batch in peers.endless(lambda: _own_loader(data, fields)):
        for field in fields:
            getattr(batch, field)  # arrays are made when they are first asked for
        yield batch


# -- 1. the rate ---------------------------------------------------------------------------


def _rates(
    corpus: Corpus,
    others: Mapping[str, Rival],
    ours: Mapping[tuple[str, tuple[str, ...]], Rival],
    how: Size,
    command: str,
) -> Table:
    rivals = [*others.values(), *ours.values()]
    running: dict[str, Iterator[Any]] = {}
    notes = []
    for rival in rivals:
        running[rival.name] = batches = rival.start()
        notes.append(peers.check(rival, next(batches), corpus))
        _take(batches, corpus.windows // BATCH)
    limits = _limits(corpus)
    ways = {name: functools.partial(_pass, b, how.batches) for name, b in running.items()}
    ways |= {name: functools.partial(_take, b, how.batches) for name, b in limits.items()}
    timing = interleave(ways, how.rounds)
    done = how.batches * BATCH * SEQ / 1e6

    def row(name: str) -> Row:
        return rate(name, timing[name], done, "Mtok/CPU-s")

    rows = [row(name) for name in limits]
    held = {name: row(rival.name) for name, rival in others.items()}
    gathers = [one for one in rows if one.what.startswith("limit")]
    held["limit"] = max(gathers, key=typical)
    torch = held.get("torch DataLoader")
    for name in others:
        plain = name == "torch DataLoader" or torch is None
        rows.append(held[name] if plain else against(held[name], torch, "torch DataLoader"))
    for (_, fields), rival in ours.items():
        goals = TOKENS_GOALS if fields == TOKENS else ALL_GOALS
        rows += _judged(row(rival.name), {k: g for k, g in goals.items() if k in held}, held)
    epoch = corpus.windows // BATCH
    notes.insert(
        0,
        f"{corpus.tokens:,} tokens, {epoch:,} batches an epoch; {how.rounds} rounds of passes of "
        f"{how.batches} batches. One process, no workers, torch with one thread; all in memory.",
    )
    return Table(
        title=f"loaders 1: shuffled batches of {BATCH} x {SEQ:,} tokens, warm",
        command=command,
        rows=rows,
        notes=notes,
    )


def _judged(row: Row, goals: Mapping[str, float], held: Mapping[str, Row]) -> list[Row]:
    """The row once for each goal; the rate itself if there is nothing to hold it against."""
    judged = [
        want(against(row, held[name], name), ">=", bound, of_ratio=True)
        for name, bound in goals.items()
    ]
    if not judged:
        return [row]
    return [judged[0], *(replace(one, what="  the same") for one in judged[1:])]


def _take(batches: Iterator[Any], count: int) -> None:
    for _ in itertools.islice(batches, count):
        pass


def _pass(batches: Iterator[Any], count: int) -> None:
    """Batches, and all that threads make ahead: else the next in turn would pay for that."""
    _take(batches, count)
    idle = False
    while not idle:
        before = time.process_time()
        time.sleep(IDLE)
        idle = time.process_time() - before < IDLE / 4


def _limits(corpus: Corpus) -> dict[str, Iterator[Any]]:
    """What memory allows: rows gathered and widened, and bytes copied, without end."""
    flat = np.fromfile(corpus.path, np.uint16, corpus.windows * SEQ)
    rows = np.random.default_rng(7).permutation(corpus.windows)
    whole = len(rows) // BATCH
    picks = rows[: whole * BATCH].reshape(whole, BATCH)  # [windows] → [batch, row]
    windows, data = flat.reshape(-1, SEQ), flat.view(np.uint8)
    take = functools.partial(np.take, windows, axis=0)
    return {
        "limit: gather, fancy index, astype(int32)": _gather(windows.__getitem__, picks),
        "limit: gather, np.take, astype(int32)": _gather(take, picks),
        "gather into reused buffers": _gather_reused(windows, picks),
        "memcpy of int32 tokens": _copies(data, 4),
        f"memcpy of five arrays, {ALL_BYTES} bytes a token": _copies(data, ALL_BYTES),
    }


def _gather(pick: Callable[[np.ndarray], np.ndarray], picks: np.ndarray) -> Iterator[np.ndarray]:
    for rows in itertools.cycle(picks):
        yield pick(rows).astype(np.int32)


def _gather_reused(windows: np.ndarray, picks: np.ndarray) -> Iterator[np.ndarray]:
    narrow, wide = np.empty((BATCH, SEQ), np.uint16), np.empty((BATCH, SEQ), np.int32)
    for rows in itertools.cycle(picks):
        np.take(windows, rows, axis=0, out=narrow, mode="clip")  # "raise" would copy once more
        np.copyto(wide, narrow)
        yield wide


def _copies(data: np.ndarray, token_bytes: int) -> Iterator[np.ndarray]:
    size = BATCH * SEQ * token_bytes
    out = np.empty(min(size, len(data)), np.uint8)
    for first in itertools.cycle(range(0, max(1, len(data) - size + 1), size)):
        np.copyto(out, data[first : first + size])
        yield out


# -- 2. the first batch --------------------------------------------------------------------


def _firsts(
    root: Path,
    others: Mapping[str, Rival],
    ours: Mapping[tuple[str, tuple[str, ...]], Rival],
    rounds: int,
    command: str,
) -> Table:
    ways: dict[str, Callable[[], object]] = {
        rival.name: functools.partial(_first, rival.start)
        for rival in [*others.values(), *ours.values()]
    }
    for order in ORDERS if ours else ():
        ways[f"tokenloom, {order}, seek to step {FAR:,}"] = functools.partial(
            _first, functools.partial(_sought, root, order)
        )
    timing = interleave(ways, rounds)
    rows = [cost(name, timing[name], 1, "ms") for name in ways]
    note = f"Fresh objects in a warm process, from opening the files; {rounds} rounds. Imports are "
    notes = [note + "not counted, files are in the page cache."]
    return Table(title="loaders 2: to the first batch", command=command, rows=rows, notes=notes)


def _first(start: Callable[[], Iterator[Any]]) -> object:
    return next(start())


def _sought(root: Path, order: str) -> Iterator[Any]:
    """Batches from step `FAR` on, many epochs in; to be resumed, a run has to get there."""
    loader = _own_loader(_own_data(root, order).epochs(None), TOKENS)
    loader.seek(FAR)
    for batch in loader:
        getattr(batch, TOKENS[0])
        yield batch


# -- 3. memory -----------------------------------------------------------------------------


def _memory(root: Path, many: int, command: str) -> Table:
    rows = []
    for order in ORDERS:
        batches = _own_batches(root, order, ALL)
        _take(batches, tl.open(root).num_tokens // (BATCH * SEQ))  # the cache of blocks is full
        gc.collect()
        before = _resident()
        _take(batches, many)
        gc.collect()
        what = f"tokenloom, {order}, all arrays: growth over {many:,} batches"
        rows.append(amount(what, (_resident() - before) / MIB, "MiB"))
    note = f"Resident memory of the process, {_resident() / MIB:,.0f} MiB in the end with all that "
    notes = [note + "the other loaders left; after one epoch, which fills the cache of blocks."]
    return Table(title="loaders 3: memory", command=command, rows=rows, notes=notes)


def _resident() -> int:
    """Bytes of this process in memory; where that is unknown, the peak."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
