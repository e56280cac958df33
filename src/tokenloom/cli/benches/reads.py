"""`tokenloom bench data-loading`: reads and speed of shuffled requests, as published.

A request asks for ``batch_size x prefetch_batches`` consecutive indices of the shuffled dataset,
modulo its length, and the store itself counts the reads. With perm_type `levanter` the counts are
the published ones: 35,650, 20 and 287 for the default flags (40,960 examples, 2.5 passes over the
16,384 rows). `benches.loading` then measures the loader over the same store and orders.

With ``--store`` requests are not checked against the store's checksums, which would read whole
chunks until each has been checked; the loader checks what it reads, as always.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store, open_store
from tokenloom.arguments import check_between
from tokenloom.cli.benches.loading import loader_lines, measure_loader
from tokenloom.cli.printing import compare, comparison_lines, named_in, option, read_run, write
from tokenloom.errors import ConfigError
from tokenloom.order.shuffle import BlockShuffle, EraShuffle, FullShuffle, Shuffle
from tokenloom.progress import Progress
from tokenloom.random.permute import PERM_TYPES
from tokenloom.store.cache import DEFAULT_CACHE_BYTES
from tokenloom.testing.stores import write_flat

__all__ = ["data_loading"]

STRATEGIES = ("none", "full", "era", "block")

ROWS = 16_384  # of a temporary store

COUNTS = ("reads_issued", "examples", "reads/example", "estimated_read_reduction")

SPEEDS = ("elapsed_s", "examples/s", "tokens/s", "p50_ms", "p95_ms", "reads_saved")


def data_loading(arguments: argparse.Namespace) -> int:
    """Measure reads and a loader: `tokenloom bench data-loading`."""
    settings = _settings(arguments)
    earlier = read_run(arguments.compare, "data-loading") if arguments.compare else None
    run: dict[str, Any] = {"bench": "data-loading", "settings": settings, "results": {}}
    run["speeds"], run["loader"] = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        store = _store(Path(folder) / "store", settings, quiet=arguments.quiet)
        for perm_type in settings["perm_types"]:
            for strategy in settings["strategies"]:
                counts, speeds = _measure(_dataset(store, settings, strategy, perm_type), settings)
                found = {name: {"mean": value} for name, value in counts.items()}
                run["results"].setdefault(perm_type, {})[strategy] = found
                run["speeds"].setdefault(perm_type, {})[strategy] = speeds
                own = open_store(store.path, cache_bytes=DEFAULT_CACHE_BYTES)
                run["loader"].setdefault(perm_type, {})[strategy] = measure_loader(
                    _dataset(own, settings, strategy, perm_type),
                    steps=settings["steps"],
                    batch_size=settings["batch_size"],
                    prefetch=settings["prefetch_batches"],
                )
    if earlier is None:
        write(arguments, run, _lines(run))
        return 0
    run["compare"] = compare(earlier, run, 1e-9)
    slower = _slowdowns(earlier.get("speeds", {}), run["speeds"])
    steps = _slowdowns(earlier.get("loader", {}), run["loader"])
    slower |= {f"{name}, loader": ratio for name, ratio in steps.items()}
    run["compare"]["p50_ratio"] = slower
    limit = arguments.max_slowdown
    too_slow = {name: ratio for name, ratio in slower.items() if limit and ratio > limit}
    lines = [*comparison_lines(arguments.compare, run["compare"])]
    lines += [f"p50 of {name}: {ratio:.2f} times as long" for name, ratio in slower.items()]
    write(arguments, run, lines)
    return 1 if run["compare"]["differs"] or too_slow else 0


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    names = (
        "steps",
        "batch_size",
        "prefetch_batches",
        "seq_len",
        "era_length",
        "window_blocks",
    )
    for name in names:
        check_between(option(name), getattr(arguments, name), 1)
    strategies = named_in("strategies", arguments.strategies, STRATEGIES)
    perm_types = named_in("perm_type", arguments.perm_type, PERM_TYPES)
    check_between("--num-examples", arguments.num_examples, 1)
    if arguments.store is not None and arguments.num_examples is not None:
        raise ConfigError(
            f"--num-examples: found {arguments.num_examples} together with --store, whose rows are "
            "measured as they are. Leave one of the two out."
        )
    return {
        **{name: getattr(arguments, name) for name in (*names, "seed")},
        "num_examples": arguments.num_examples or ROWS,
        "store": arguments.store,
        "strategies": strategies,
        "perm_types": perm_types,
    }


def _store(root: Path, settings: dict[str, Any], *, quiet: bool) -> Store:
    """The store to measure; its rows are noted in the settings."""
    if settings["store"] is None:
        return _make_store(root, settings, quiet=quiet)
    store = open_store(settings["store"], cache_bytes=0, verify="never")
    settings["num_examples"] = len(store.windows(settings["seq_len"]))
    return store


def _make_store(root: Path, settings: dict[str, Any], *, quiet: bool) -> Store:
    """A store of random tokens in documents of one row; every chunk is already checked."""
    rows, seq_len = settings["num_examples"], settings["seq_len"]
    with Progress("making a store", total=2, unit=" steps", show=False if quiet else None) as bar:
        ids = (np.arange(rows * seq_len, dtype=np.uint32) * np.uint32(2_654_435_761)) >> np.uint32(
            18
        )
        write_flat(root, ids.astype(np.uint16), np.full(rows, seq_len), vocab_size=1 << 14)
        bar.reach(1)
        store = open_store(root, cache_bytes=0)
        for start in range(0, store.num_tokens, store.chunk_tokens):
            store.reader.read_one(start, min(start + store.chunk_tokens, store.num_tokens))
        bar.reach(2)
    return store


def _shuffle(settings: dict[str, Any], strategy: str, perm_type: str) -> Shuffle | None:
    if strategy == "none":
        return None
    if strategy == "full":
        return FullShuffle(perm_type=perm_type)
    if strategy == "era":
        return EraShuffle(length=settings["era_length"], perm_type=perm_type)
    return BlockShuffle(window_blocks=settings["window_blocks"], perm_type=perm_type)


def _dataset(store: Store, settings: dict[str, Any], strategy: str, perm_type: str) -> Dataset:
    """The rows of a store in the order of a strategy."""
    shuffle = _shuffle(settings, strategy, perm_type)
    dataset: Dataset = store.windows(settings["seq_len"]).seed(settings["seed"])
    return dataset.shuffle(False if shuffle is None else shuffle)


def _measure(
    dataset: Dataset, settings: dict[str, Any]
) -> tuple[dict[str, float], dict[str, float]]:
    """(what was read, how long it took)."""
    size = settings["batch_size"] * settings["prefetch_batches"]
    took, before = [], dataset.counters()
    for step in range(settings["steps"]):
        begin = time.perf_counter()
        indices = np.arange(step * size, (step + 1) * size) % len(dataset)
        _ = dataset.batch(indices).tokens
        took.append(time.perf_counter() - begin)
    reads = dataset.counters().read_ops - before.read_ops
    examples, elapsed = settings["steps"] * size, sum(took)
    counts = {
        "reads_issued": reads,
        "examples": examples,
        "reads/example": reads / examples,
        "estimated_read_reduction": 1 - reads / examples,
    }
    speeds = {
        "elapsed_s": elapsed,
        "examples/s": examples / elapsed,
        "tokens/s": examples * settings["seq_len"] / elapsed,
        "p50_ms": float(np.percentile(took, 50)) * 1e3,
        "p95_ms": float(np.percentile(took, 95)) * 1e3,
        "reads_saved": examples - reads,
    }
    return counts, speeds


def _slowdowns(earlier: dict[str, Any], now: dict[str, Any]) -> dict[str, float]:
    return {
        f"{perm_type} {strategy}": speeds["p50_ms"] / earlier[perm_type][strategy]["p50_ms"]
        for perm_type, strategies in now.items()
        for strategy, speeds in strategies.items()
        if strategy in earlier.get(perm_type, {})
    }


def _lines(run: dict[str, Any]) -> Iterator[str]:
    settings = run["settings"]
    around = settings["steps"] * settings["batch_size"] * settings["prefetch_batches"]
    yield (
        f"{settings['steps']} requests of {settings['batch_size']} x "
        f"{settings['prefetch_batches']} rows of {settings['seq_len']:,} tokens: {around:,} "
        f"examples, {around / settings['num_examples']:.1f} passes over the store"
    )
    for perm_type, strategies in run["results"].items():
        yield ""
        yield f"Reads (perm_type={perm_type})"
        yield f"| Strategy | {' | '.join(COUNTS)} |"
        yield "|---|" + "---:|" * len(COUNTS)
        for strategy, found in strategies.items():
            reads, examples, per, less = (found[name]["mean"] for name in COUNTS)
            digits = 4 if per >= 0.1 else 5
            yield f"| `{strategy}` | {reads:,} | {examples:,} | {per:.{digits}f} | {less:.2%} |"
        yield ""
        yield f"Speed (perm_type={perm_type}; reads_saved against one read per example)"
        yield f"| Strategy | {' | '.join(SPEEDS)} |"
        yield "|---|" + "---:|" * len(SPEEDS)
        for strategy, speeds in run["speeds"][perm_type].items():
            values = " | ".join(f"{speeds[name]:,.4g}" for name in SPEEDS)
            yield f"| `{strategy}` | {values} |"
        yield ""
        yield from loader_lines(perm_type, run["loader"][perm_type])
