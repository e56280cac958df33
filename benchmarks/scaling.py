"""What must not grow faster than it has to: large stores, one case a line.

Every case runs in a fresh process (`python -m benchmarks.scaling CASE STORE`): it opens a store,
which is not timed, does one thing, and says how many CPU-seconds that took and by how much the peak
of its memory grew. `CASES` is a plain list: to add a case, add a line.

The stores have tiny documents, or hard links to one shard, so that 10^8 documents take no space.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Row, Table, want
from benchmarks.probe import peak
from benchmarks.stores import publish, virtual_store, write_shard
from tokenloom import cli
from tokenloom.inspect import coverage

__all__ = ["CASES", "SIZES", "ScalingCase", "run"]

SHARD = 131_072  # documents
SIZES = {"tiny": 1 / 2000, "small": 1 / 20, "default": 1.0, "full": 1.0}  # share of the documents
ROUNDS = {"tiny": 1, "small": 1, "default": 3, "full": 5}
CLIP: dict[str, Any] = {"content_length": 256, "edge": "clip", "fill": "pack"}
RELATIVE: dict[str, Any] = {"position_scheme": "relative"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingCase:
    """One thing to do with one store.

    Attributes:
        what: its name in the table.
        store: which store, a key of `STORES`.
        documents: how many documents that has, at size default.
        prepare: store → what is needed, not timed.
        do: does it; the time and memory of this count.
        seconds, megabytes: the goals.
    """

    what: str
    store: str
    documents: int
    prepare: Callable[[tl.Store], Any] = lambda store: store
    do: Callable[[Any], object]
    seconds: float
    megabytes: float


# -- stores --------------------------------------------------------------------------------


def _texts(mean: int) -> Callable[[Path, int], None]:
    """A store of random documents, of half `mean` to three halves of it."""

    def write(root: Path, documents: int) -> None:
        root.mkdir()
        random, parts = np.random.default_rng(0), []
        for low in range(0, documents, 100):
            lengths = random.integers(mean // 2, mean * 3 // 2, min(100, documents - low))
            ids = random.integers(1, 50_000, int(lengths.sum())).astype(np.uint16)
            parts.append((ids, lengths))
        publish(root, [write_shard(root, 0, parts, "uint16")], "uint16")

    return write


def _linked(root: Path, documents: int) -> None:
    """Documents of 64 tokens with an id each; shards are links to one."""
    shards = max(1, documents // SHARD)
    virtual_store(root, shards, min(SHARD, documents))


def _bare(root: Path, documents: int) -> None:
    """Documents of one to three tokens without ids."""
    root.mkdir()
    random, entries = np.random.default_rng(0), []
    for number, low in enumerate(range(0, documents, 1 << 20)):
        lengths = random.integers(1, 4, min(1 << 20, documents - low))
        ids = random.integers(0, 50_000, int(lengths.sum())).astype(np.uint16)
        entries.append(write_shard(root, number, [(ids, lengths)], "uint16"))
    publish(root, entries, "uint16")


STORES: dict[str, Callable[[Path, int], None]] = {
    "texts": _texts(2000),
    "books": _texts(200_000),
    "linked": _linked,
    "bare": _bare,
}


# -- cases ---------------------------------------------------------------------------------


def _resumed(options: dict[str, Any], order: str) -> Callable[[tl.Store], Any]:
    """A loader in the middle of the second epoch of a splice."""

    def prepare(store: tl.Store) -> tl.Loader:
        ds = store.splice(2048, pad_id=0, **options).epochs(None)
        ds = {"stored": ds, "full": ds.shuffle(), "block": ds.block_shuffle()}[order]
        loader = tl.Loader(ds, 32, fields=("tokens",))
        loader.seek(ds.run.sources[0].rows * 3 // 2 // 32)
        return loader

    return prepare


def _state(loader: tl.Loader) -> object:
    with loader:
        return loader.state_dict()


def _table(store: tl.Store) -> object:
    return str(coverage(store.splice(2048, pad_id=0, **RELATIVE), epochs=2))


def _listed(store: tl.Store) -> object:
    return coverage(store.splice(2048, pad_id=0, **RELATIVE), epochs=2).as_json()


def _info(store: tl.Store) -> object:
    with contextlib.redirect_stdout(io.StringIO()):
        return cli.main(["info", str(store.path)])


def _split(by: str) -> Callable[[tl.Store], object]:
    def do(store: tl.Store) -> object:
        parts = store.split({"train": 0.9, "eval": 0.1}, by=by)
        return [len(part.indices) for part in parts.values()]

    return do


def _select(mode: str) -> Callable[[tl.Store], object]:
    return lambda store: store.select(num_docs=min(1000, len(store)), doc_select_mode=mode).indices


TEMPERATURE = {**CLIP, "balance_tau": 0.7}
CASES = [
    *(
        ScalingCase(
            what=f"first state after a resume, {name}, {order} order",
            store="texts",
            documents=10_000,
            prepare=_resumed(options, order),
            do=_state,
            seconds=0.1,
            megabytes=200,
        )
        for name, options in (
            ("clip + pack", CLIP),
            ("clip + pack by temperature", TEMPERATURE),
            ("clip + pack, K = S", RELATIVE),
        )
        for order in ("stored", "full", "block")
    ),
    *(
        ScalingCase(
            what=f"coverage, {name} {what}",
            store=store,
            documents=documents,
            do=do,
            seconds=2.0,
            megabytes=300,
        )
        for store, documents, name in (
            ("texts", 10_000, "documents of 2,000 tokens"),
            ("books", 100, "documents of 200,000 tokens"),
        )
        for what, do in (("printed", _table), ("as JSON", _listed))
    ),
    ScalingCase(
        what="tokenloom info",
        store="linked",
        documents=100_000_000,
        do=_info,
        seconds=1.0,
        megabytes=200,
    ),
    *(
        ScalingCase(
            what=what, store=store, documents=10_000_000, do=do, seconds=seconds, megabytes=200
        )
        for what, store, do, seconds in (
            ("split by number, both parts", "bare", _split("id"), 1.0),
            ("split by id, both parts", "linked", _split("id"), 1.0),
            ("split by content, both parts", "bare", _split("content"), 1.0),
            ("select the longest 1,000", "bare", _select("longest"), 0.5),
            ("select 1,000 at random", "bare", _select("random"), 0.5),
        )
    ),
]


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of scaling."""
    roots: dict[tuple[str, int], Path] = {}
    rows: list[Row] = []
    for number, case in enumerate(CASES):
        documents = max(4, int(case.documents * SIZES[size]))
        root = roots.get((case.store, documents))
        if root is None:
            root = roots[case.store, documents] = folder / f"{case.store}-{documents}"
            STORES[case.store](root, documents)
        if size == "tiny" and number:  # a process for each would take most of the time
            found = [_measured(case, str(root))]
        else:
            found = [_ask(number, root, folder) for _ in range(ROUNDS[size])]
        what = f"{case.what}, {documents:,} documents"
        rows.append(want(_row(what, found, "seconds", "CPU-s"), "<=", case.seconds))
        grown = _row("  growth of the peak of memory", found, "megabytes", "MB")
        rows.append(want(grown, "<=", case.megabytes))
    note = f"Each figure from {ROUNDS[size]} fresh process(es); opening the store is not counted."
    return [Table(title="scaling", command=command, rows=rows, notes=[note])]


def _row(what: str, found: list[dict[str, float]], key: str, unit: str) -> Row:
    values = [one[key] for one in found]
    return Row(
        what=what,
        value=min(values),
        median=statistics.median(values),
        unit=unit,
        samples=tuple(values),
    )


def _ask(number: int, store: Path, folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scaling", str(number), str(store)],
        cwd=Path(__file__).resolve().parent.parent,
        env={**os.environ, "TOKENLOOM_CACHE_DIR": str(folder / "cache")},
        check=True,
        capture_output=True,
        text=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _measured(case: ScalingCase, store: str) -> dict[str, float]:
    """What one case takes in this process."""
    ready = case.prepare(tl.open(store))
    with contextlib.suppress(OSError):  # Linux: the peak starts anew
        Path("/proc/self/clear_refs").write_text("5")
    memory, cpu = peak(), time.process_time()
    case.do(ready)
    return {"seconds": time.process_time() - cpu, "megabytes": (peak() - memory) / 1e6}


if __name__ == "__main__":
    print(json.dumps(_measured(CASES[int(sys.argv[1])], sys.argv[2])))
