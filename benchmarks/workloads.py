"""The workloads of `python -m benchmarks against`: one process runs one of them in one tree.

One idea: the same file runs in both trees, so it uses what both have: NumPy and the public names of
tokenloom. `python -P benchmarks/workloads.py STORES SIZE NAME` with ``PYTHONPATH=TREE/src`` prints
the CPU-seconds of each pass as JSON, without opening, planning and reading before it. NAME `stores`
builds the stores instead, from the JSON lines that `write_corpora` has written there, and `where`
prints which tokenloom was imported.

The last step of a pass waits until all threads are idle, so that a pass pays for all the work it
causes, and for nothing left over from an earlier one.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BEFORE_IMPORT = time.process_time()  # a tree may load its modules when they are first used

import tokenloom as tl  # noqa: E402
from tokenloom import order  # noqa: E402

__all__ = ["SIZES", "TOPICS", "WORKLOADS", "Size", "Workload", "write_corpora"]

BATCH, SEQ, LONG_SEQ = 32, 2048, 4096
VOCABULARY = 50_000
ALL = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids")
CHUNK, PICKS = 8192, 65_536  # indices of a call
IDLE = 0.002  # seconds of almost no CPU after which no thread is at work
PASSES = 5
SOURCES, PLANS = 20, 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Tokens of each store, batches or calls of a pass, documents of a plan."""

    tokens: int
    source_tokens: int
    batches: int
    calls: int
    documents: int


SIZES = {
    "quick": Size(tokens=1 << 17, source_tokens=1 << 13, batches=8, calls=2, documents=2_000),
    "default": Size(
        tokens=1 << 23, source_tokens=1 << 18, batches=512, calls=16, documents=100_000
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """A row of the table.

    `prepare` takes the folder of stores and the size, and gives what is timed and how many
    things it does. A `cold` one is timed once, from before the import of tokenloom on.
    """

    topic: str
    each: str
    prepare: Callable[[Path, Size], tuple[Callable[[], object], int]]
    cold: bool = False


# -- stores --------------------------------------------------------------------------------


def write_corpora(folder: Path, size: Size) -> None:
    """JSON lines of random ids, the same in every run: short documents, long ones, and sources."""
    _write_ids(folder / "short.jsonl", size.tokens, mean=1000, seed=1)
    _write_ids(folder / "long.jsonl", size.tokens // 2, mean=50_000, seed=2)
    for number in range(SOURCES):
        _write_ids(folder / f"source{number}.jsonl", size.source_tokens, mean=500, seed=3 + number)


def _write_ids(path: Path, tokens: int, mean: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    ids = random.integers(1, VOCABULARY, tokens)
    cuts = np.sort(random.integers(1, tokens, tokens // mean))
    with path.open("w") as file:
        for document in np.split(ids, np.unique(cuts)):
            file.write(f'{{"input_ids":{json.dumps(document.tolist())}}}\n')


def _build(corpora: Path, stores: Path) -> None:
    for path in sorted(corpora.glob("*.jsonl")):
        tl.build(
            str(path),
            str(stores / path.stem),
            tokenizer=None,
            vocab_size=VOCABULARY,
            workers=1,
            progress=False,
        )


# -- loaders -------------------------------------------------------------------------------


def _take(batches: Iterator[Any], count: int, fields: tuple[str, ...]) -> None:
    for batch in itertools.islice(batches, count):
        for field in fields:
            getattr(batch, field)  # arrays are made when they are first asked for
    idle = False
    while not idle:
        before = time.process_time()
        time.sleep(IDLE)
        idle = time.process_time() - before < IDLE / 4


def _loader(run: Any, fields: tuple[str, ...]) -> Any:
    return tl.Loader(run.seed(7), batch_size=BATCH, fields=fields)


def _batches(run: Any, size: Size, *fields: str) -> tuple[Callable[[], object], int]:
    return functools.partial(_take, _loader(run, fields), size.batches, fields), size.batches


def _windows(stores: Path) -> Any:
    return tl.open(stores / "short").windows(SEQ).block_shuffle().epochs(None)


def _packed(stores: Path) -> Any:
    return tl.open(stores / "short").pack(SEQ).block_shuffle().epochs(None)


def _spliced(stores: Path) -> Any:
    long = tl.open(stores / "long")
    spliced = long.splice(LONG_SEQ, content_length=2048, pad_id=0, position_scheme="absolute")
    return spliced.shuffle().epochs(None)


def _mixed(stores: Path, count: int) -> Any:
    sources = {
        f"source{number}": tl.open(stores / f"source{number}").pack(SEQ).shuffle().epochs(None)
        for number in range(count)
    }
    weights = {name: 1.0 + number for number, name in enumerate(sources)}
    return tl.mix(sources, weights=weights)


def _first(stores: Path, make: Callable[[Path], Any], fields: tuple[str, ...]) -> None:
    loader = _loader(make(stores), fields)
    _take(loader, 1, fields)
    loader.close()


def _states(run: Any, count: int) -> tuple[Callable[[], object], int]:
    loader = _loader(run, ("tokens",))
    for _ in range(3):
        next(loader)
    return lambda: [loader.state_dict() for _ in range(count)], count


# -- plans and orders ----------------------------------------------------------------------


def _plan(size: Size) -> tuple[Callable[[], object], int]:
    """Plans of different lengths every time, in every process, so that no cached plan is found."""
    drawn = np.random.default_rng(0).lognormal(np.log(500), 1.0, size.documents)
    lengths = np.clip(drawn, 1, SEQ).astype(np.int64)
    turns = itertools.count(os.getpid())

    def plan() -> None:
        for _ in range(PLANS):
            moved = np.roll(lengths, next(turns))
            tl.plan_packing(moved, seq_len=SEQ, strategy="best_fit_decreasing")

    return plan, PLANS * size.documents


def _picks(run: Any, calls: int) -> tuple[Callable[[], object], int]:
    """Calls of 65,536 examples one after another, starting further on in every pass."""
    run, places = run.seed(7), itertools.count()

    def pick() -> None:
        for _ in range(calls):
            start = next(places) * PICKS
            run.picked(np.arange(start, start + PICKS))

    return pick, calls * PICKS


def _mapped(one: Any, calls: int) -> tuple[Callable[[], object], int]:
    places = itertools.count()

    def ask() -> None:
        for _ in range(calls):
            start = next(places) * CHUNK
            one.map(np.arange(start, start + CHUNK))

    return ask, calls * CHUNK


TOPICS = ("loaders", "mix", "packing", "splice", "order")
WORKLOADS = {
    "windows, block shuffle, tokens only": Workload(
        topic="loaders",
        each="batch",
        prepare=lambda stores, size: _batches(_windows(stores), size, "tokens"),
    ),
    "windows, block shuffle, all arrays": Workload(
        topic="loaders",
        each="batch",
        prepare=lambda stores, size: _batches(_windows(stores), size, *ALL),
    ),
    "import, open and first batch of a process": Workload(
        topic="loaders",
        each="opening",
        prepare=lambda stores, size: (lambda: _first(stores, _windows, ALL), 1),
        cold=True,
    ),
    "first batch from open, warm": Workload(
        topic="loaders",
        each="opening",
        prepare=lambda stores, size: (
            lambda: [_first(stores, _windows, ALL) for _ in range(size.calls)],
            size.calls,
        ),
    ),
    "state_dict of windows": Workload(
        topic="loaders",
        each="state",
        prepare=lambda stores, size: _states(_windows(stores), 4 * size.calls),
    ),
    "mix of 5 packed sources, picks": Workload(
        topic="mix",
        each="example",
        prepare=lambda stores, size: _picks(_mixed(stores, 5), size.calls),
    ),
    "mix of 20 packed sources, picks": Workload(
        topic="mix",
        each="example",
        prepare=lambda stores, size: _picks(_mixed(stores, SOURCES), size.calls),
    ),
    "mix of 5 packed sources, all arrays": Workload(
        topic="mix",
        each="batch",
        prepare=lambda stores, size: _batches(_mixed(stores, 5), size, *ALL),
    ),
    "mix of 20 packed sources, all arrays": Workload(
        topic="mix",
        each="batch",
        prepare=lambda stores, size: _batches(_mixed(stores, SOURCES), size, *ALL),
    ),
    "state_dict of a mix of 20": Workload(
        topic="mix",
        each="state",
        prepare=lambda stores, size: _states(_mixed(stores, SOURCES), size.calls),
    ),
    "packed, all arrays": Workload(
        topic="packing",
        each="batch",
        prepare=lambda stores, size: _batches(_packed(stores), size, *ALL),
    ),
    "planning best_fit_decreasing": Workload(
        topic="packing", each="document", prepare=lambda stores, size: _plan(size)
    ),
    "spliced, tokens only": Workload(
        topic="splice",
        each="batch",
        prepare=lambda stores, size: _batches(_spliced(stores), size, "tokens"),
    ),
    "spliced, all arrays": Workload(
        topic="splice",
        each="batch",
        prepare=lambda stores, size: _batches(_spliced(stores), size, *ALL),
    ),
    "order.full, 8,192 indices": Workload(
        topic="order",
        each="index",
        prepare=lambda stores, size: _mapped(order.full(10**9, seed=1), 16 * size.calls),
    ),
    "order.block, 8,192 indices": Workload(
        topic="order",
        each="index",
        prepare=lambda stores, size: _mapped(order.block(10**9, 128, 512, seed=1), 16 * size.calls),
    ),
}


# -- the process ---------------------------------------------------------------------------


def measure(workload: Workload, stores: Path, size: Size) -> dict[str, Any]:
    """CPU-seconds of each pass, and how many things one does."""
    run, things = workload.prepare(stores, size)
    taken = []
    if not workload.cold:
        run()  # blocks are read and checked, plans are made
    for _ in range(1 if workload.cold else PASSES):
        start = BEFORE_IMPORT if workload.cold else time.process_time()
        run()
        taken.append(time.process_time() - start)
    return {"cpu": taken, "things": things}


def where() -> dict[str, Any]:
    """Which tokenloom this process has, and the file of its compiled loops."""
    found = importlib.util.find_spec("tokenloom._native")
    return {"package": tl.__file__, "native": None if found is None else found.origin}


def main(stores: Path, size: str, name: str) -> None:
    if name == "where":
        print(json.dumps(where()))
    elif name == "stores":
        _build(stores.parent / "corpora", stores)
    else:
        print(json.dumps(measure(WORKLOADS[name], stores, SIZES[size])))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
