"""Looking into a run of 10^9 rows over 10^8 documents: at, where and next, and what they rest on.

Every figure comes from fresh processes (`python -m benchmarks.looking WHAT KIND STORE`): one makes
the plans and the sums of the first epoch and keeps them, the next ones find them, and one more
compares two endless runs, in frames of 512 tokens. Documents have 64 tokens and the other frames 6,
so a document is in about eleven rows; shards are links to one shard, so 10^8 documents take no
space.

Times are CPU-seconds, so what a new process takes includes its imports.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Row, Table, want
from benchmarks.stores import virtual_store

__all__ = ["KINDS", "run"]

SHARD = 131_072  # documents
DOCUMENTS = 100_000_000
SEQ_LEN, ORDINARY = 6, 512
SIZES = {"tiny": 1 / 20_000, "small": 1 / 100, "default": 1 / 10, "full": 1.0}
ROUNDS = {"tiny": 1, "small": 3, "default": 3, "full": 3}  # new processes
ASKED = 24  # questions of each kind to a warm process


def windows(store: tl.Store, seq_len: int = SEQ_LEN) -> tl.Dataset:
    """Token windows, fully shuffled."""
    return store.windows(seq_len, align=True).shuffle().epochs(None)


def packed(store: tl.Store, seq_len: int = SEQ_LEN) -> tl.Dataset:
    """Packed frames, fully shuffled."""
    return store.pack(seq_len).shuffle().epochs(None)


def mixed(store: tl.Store, seq_len: int = SEQ_LEN) -> tl.Dataset:
    """Both of them by tokens: rows differ in tokens, so costs are added up."""
    sources = {"p": packed(store, seq_len), "w": windows(store, seq_len)}
    return tl.mix(sources, cost="tokens")


KINDS: dict[str, Callable[..., tl.Dataset]] = {
    "windows": windows,
    "packed": packed,
    "mix by tokens": mixed,
}


def rows_of(ds: tl.Dataset) -> int:
    """Rows of one epoch of all sources."""
    return sum(source.rows for source in ds.run.sources)


def questions(ds: tl.Dataset, seed: int) -> dict[str, Callable[[], object]]:
    """One of each kind, about a random example of the first epoch and a random document."""
    draw = np.random.default_rng(seed)
    index = int(draw.integers(rows_of(ds) // 2))
    name = ds.run.names[0]
    documents = ds.run.sources[0].layout.line.documents
    document = int(draw.integers(documents))
    return {
        "at": lambda: ds.at(index),
        "where": lambda: list(ds.where(name, document, epochs=1)),
        "next": lambda: ds.next(name, document, after=index),
    }


def made(kind: str, store: str) -> dict[str, float]:
    """What plans, and sums of the first epoch, cost in the process that makes them."""
    opened = tl.open(store)
    before = time.process_time()
    ds = KINDS[kind](opened)
    _ = ds.run
    plan = time.process_time() - before
    rows, before = rows_of(ds), time.process_time()
    for ask in questions(ds, 0).values():
        ask()
    summed = ds.run.sources[0].rows
    return {"rows": rows, "plan": plan, "asked": time.process_time() - before, "summed": summed}


def new(kind: str, store: str) -> dict[str, float]:
    """CPU-seconds of a process so far, once it has answered one question of each kind."""
    ds = KINDS[kind](tl.open(store))
    for ask in questions(ds, 1).values():
        ask()
    return {"seconds": time.process_time()}


def warm(kind: str, store: str) -> dict[str, Any]:
    """CPU-seconds of each question to a process that has answered some."""
    ds = KINDS[kind](tl.open(store))
    found: dict[str, list[float]] = {}
    for seed in range(ASKED):
        for name, ask in questions(ds, seed).items():
            ask()  # its group is planned, its shard open
            before = time.process_time()
            ask()
            found.setdefault(name, []).append(time.process_time() - before)
    return found


def compared(kind: str, store: str) -> dict[str, float]:
    """CPU-seconds of the comparison of two endless runs, in frames of ordinary length."""
    opened = tl.open(store)
    a, b = KINDS[kind](opened, ORDINARY), KINDS[kind](opened, ORDINARY).seed(2)
    _ = a.run, b.run
    before = time.process_time()
    found = tl.diff(a, b)
    assert found
    return {"seconds": time.process_time() - before}


WHAT = {"made": made, "new": new, "warm": warm, "compared": compared}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of looking."""
    documents = max(4000, int(DOCUMENTS * SIZES[size]))
    root = folder / "linked"
    shards = max(1, documents // SHARD)
    virtual_store(root, shards, min(SHARD, documents))
    rows: list[Row] = []
    for kind in KINDS:
        rows += _kind(kind, root, folder, size)
    note = f"{shards * min(SHARD, documents):,} documents of 64 tokens, frames of {SEQ_LEN}."
    return [Table(title="looking", command=command, rows=rows, notes=[note])]


def _kind(kind: str, root: Path, folder: Path, size: str) -> list[Row]:
    """The rows of one kind of run."""

    def ask(what: str) -> dict[str, Any]:
        if size == "tiny":  # a process for each would take most of the time
            return WHAT[what](kind, str(root))
        return _asked(what, kind, root, folder)

    first = ask("made")
    name = f"{kind}, {int(first['rows']):,} rows"
    each = 1e9 / first["rows"]
    rows = []
    if kind == "packed":
        rows.append(want(_row(f"{name}: a plan", [first["plan"] * each], "ns a row"), "<=", 150))
    if kind == "mix by tokens":
        summed = first["asked"] * 1e9 / first["summed"]
        rows.append(want(_row(f"{name}: sums of an epoch", [summed], "ns a row"), "<=", 30))
    fresh = [ask("new")["seconds"] for _ in range(ROUNDS[size])]
    rows.append(want(_row(f"{name}: all three in a new process", fresh, "CPU-s"), "<=", 1))
    for what, times in ask("warm").items():
        row = _row(f"{name}: {what}, warm", [1000 * one for one in times], "ms", typical=True)
        rows.append(want(row, "<=", 10))
    again = [ask("compared")["seconds"] for _ in range(ROUNDS[size])]
    rows.append(
        want(_row(f"{kind}, frames of {ORDINARY}: diff with another seed", again, "CPU-s"), "<=", 2)
    )
    return rows


def _row(what: str, values: list[float], unit: str, *, typical: bool = False) -> Row:
    """The best of some rounds; of different questions, the median."""
    middle = statistics.median(values)
    value = middle if typical else min(values)
    return Row(what=what, value=value, median=middle, unit=unit, samples=tuple(values))


def _asked(what: str, kind: str, store: Path, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.looking", what, kind, str(store)],
        cwd=Path(__file__).resolve().parent.parent,
        env={**os.environ, "TOKENLOOM_CACHE_DIR": str(folder / "cache")},
        check=True,
        capture_output=True,
        text=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](*sys.argv[2:4])))
