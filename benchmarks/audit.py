"""Audits: plan rows per CPU-minute, and the array audit beside the loader that makes the same rows.

A plan audit reads no token, so its store is large and only its lengths matter. An array audit makes
every row, reads what it must hold once more, and asks `check_batch` about every batch. Both are
timed over the same rows in one interleaved run; pages are checked against their sums before.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenloom as tl
from benchmarks.clock import Row, Table, against, interleave, rate, want
from benchmarks.loaders import ALL
from benchmarks.stores import write_store
from tokenloom.inspect import audit_run

__all__ = ["SIZES", "run"]

BATCH = 64

# size → (tokens of the store, rows of a plan audit, tokens of an array audit, rounds)
SIZES = {
    "tiny": (1 << 18, 2_000, 1 << 17, 1),
    "small": (1 << 25, 100_000, 1 << 22, 3),
    "default": (1 << 27, 500_000, 1 << 23, 5),
    "full": (1 << 28, 2_000_000, 1 << 24, 9),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of audits."""
    tokens, rows, cells, rounds = SIZES[size]
    write_store(folder / "store", tokens)
    store = tl.open(folder / "store")
    return [_plans(store, rows, rounds, command), _arrays(store, cells, rounds, command)]


def _runs(store: tl.Store, seq_len: int) -> dict[str, tl.Dataset]:
    """The runs that are audited, endless."""
    windows = store.windows(seq_len).shuffle().epochs(None)
    packed = store.pack(seq_len).shuffle().epochs(None)
    mix = tl.mix({"windows": windows, "packed": packed}, weights={"windows": 2, "packed": 1})
    return {"windows": windows, "packed": packed, "mix of both": mix}


def _plans(store: tl.Store, rows: int, rounds: int, command: str) -> Table:
    cases: dict[str, Callable[[], object]] = {}
    for seq_len in (256, 2048):
        for name, made in _runs(store, seq_len).items():
            cases[f"{name}, rows of {seq_len:,}"] = _planned(made, rows)
    timing = interleave(cases, rounds)
    found: list[Row] = []
    for name, took in timing.items():
        row = rate(name, took, rows * 60 / 1e6, "M rows/CPU-min")
        found.append(want(row, ">=", 10))
    notes = [f"{rows:,} rows of each; items, order, coverage, mixture and digests, no token."]
    return Table(title="audit 1: plans", command=command, rows=found, notes=notes)


def _planned(made: tl.Dataset, rows: int) -> Callable[[], object]:
    return lambda: _passed(audit_run(made, 0, rows, arrays=False))


def _passed(found: Any) -> None:
    if not found.ok:
        raise AssertionError(str(found))


def _arrays(store: tl.Store, cells: int, rounds: int, command: str) -> Table:
    cases: dict[str, Callable[[], object]] = {}
    names, done = [], {}
    for seq_len in (2048, 8192):
        rows = max(1, cells // seq_len // BATCH) * BATCH
        for name, made in _runs(store, seq_len).items():
            title = f"{name}, rows of {seq_len:,}"
            names.append(title)
            done[title] = rows * seq_len
            cases[f"loader, {title}"] = _loaded(made, rows)
            cases[f"audit, {title}"] = _audited(made, rows)
    timing = interleave(cases, rounds)
    found: list[Row] = []
    for title in names:
        loader, audit = (
            rate(what, timing[what], done[title] / 1e6, "Mtok/CPU-s")
            for what in (f"loader, {title}", f"audit, {title}")
        )
        found += [loader, against(audit, loader, "loader")]
    notes = [f"{cells:,} cells of each, all of {', '.join(ALL)}; batches of {BATCH}, no prefetch."]
    return Table(title="audit 2: arrays", command=command, rows=found, notes=notes)


def _audited(made: tl.Dataset, rows: int) -> Callable[[], object]:
    return lambda: _passed(audit_run(made, 0, rows, arrays="all"))


def _loaded(made: tl.Dataset, rows: int) -> Callable[[], object]:
    def load() -> None:
        batches = iter(tl.Loader(made, BATCH, fields=ALL, prefetch=0))
        for _ in range(rows // BATCH):
            next(batches)

    return load
