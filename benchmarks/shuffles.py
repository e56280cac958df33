"""`python -m benchmarks permutation` and `data-loading`: how well orders mix, and what they read.

Both print tables, or one JSON object with `--json`, and compare with an earlier one with
`--compare FILE`. With perm_type `levanter` they print the figures of the published block shuffle
note: its table of measures, and 35,650, 20 and 287 reads for 20 requests of 128 x 16 rows, 2.5
passes over 16,384 rows. With `feistel` they print those of our own orders.

A request of `data-loading` asks for batch_size x prefetch_batches consecutive indices, modulo the
length of the dataset, and the store counts its reads. Requests to a `--store` are not checked
against its checksums, which would read whole chunks until each has been checked. A `Loader` over
the same store and orders is measured after that; it checks what it reads, and its block cache is
empty at the start.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.earlier import compare, comparison_lines, is_worse, read_run
from tokenloom import order
from tokenloom.order.shuffle import EraShuffle, FullShuffle
from tokenloom.quality import ShuffleQuality, fair, measure
from tokenloom.random.permute import PERM_TYPES
from tokenloom.testing import write_flat

__all__ = ["main", "measured"]

CHUNK_TOKENS = 262_144  # of a block, unless --io-block-size is given

ROWS = 16_384  # of the temporary store

CACHE_BYTES = 640 << 20  # of a store that a loader reads, so that no other one warms it

LEAST = {"seed": 0, "n": 2}  # of other whole numbers: 1

TITLES = {
    "mean_abs_displacement_norm": "mean_abs_displacement_norm",
    "inversion_fraction": "inversion_fraction",
    "spearman_rho": "Spearman rho",
    "same_block_transition_rate": "same_block_transition_rate",
}
MEASURES = [field.name for field in fields(ShuffleQuality)]
MIXING_BAR, LOCALITY_BAR = 20, 48  # characters that 1.0 takes

COUNTS = ("reads_issued", "examples", "reads/example", "estimated_read_reduction")
SPEEDS = ("elapsed_s", "examples/s", "tokens/s", "p50_ms", "p95_ms", "reads_saved")
LOADER = ("examples", "examples/s", "tokens/s", "p50_ms", "p95_ms")
LOADER += ("reads", "bytes", "cache_hits", "cache_misses")

Run = dict[str, Any]
"""What a command prints with `--json`."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A command: its options, what it measures, and how that is printed."""

    add_options: Callable[[argparse.ArgumentParser], None]
    measure: Callable[[argparse.Namespace], Run]
    lines: Callable[[Run], Iterator[str]]


def main(name: str, words: Sequence[str]) -> int:
    """Run a command.

    Returns:
        0; 1 if --compare finds a difference, or a store cannot be read; 3 if the file of --compare
        cannot be used. A wrong command line ends the process with 2.
    """
    asked = _parser(name).parse_args(words)
    try:
        earlier = read_run(asked.compare, name) if asked.compare else None
        run = _run(name, asked)
    except tl.TokenloomError as error:
        print(error, file=sys.stderr)
        return 3 if isinstance(error, tl.InputError) else 1
    if earlier is None:
        lines: Iterable[str] = WORKLOADS[name].lines(run)
    else:
        run["compare"] = compare(earlier, run, asked.tolerance)
        lines = comparison_lines(asked.compare, run["compare"])
    print(json.dumps(run, indent=1) if asked.json else "\n".join(lines))
    return int(earlier is not None and is_worse(run["compare"], asked.max_slowdown))


def measured(name: str) -> Run:
    """What a command measures with its default options, which are those of the published note."""
    return _run(name, _parser(name).parse_args([]))


def _run(name: str, asked: argparse.Namespace) -> Run:
    return {"bench": name, **WORKLOADS[name].measure(asked)}


# -- options -------------------------------------------------------------------------------


def _parser(name: str) -> argparse.ArgumentParser:
    description = __doc__.partition("\n\n")[2]
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}", description=description, allow_abbrev=False
    )
    WORKLOADS[name].add_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier output of --json")
    parser.add_argument("--tolerance", type=float, default=1e-9, help="ignored difference (1e-9)")
    return parser


def _add_orders(
    parser: argparse.ArgumentParser, strategies: Sequence[str], **defaults: int | None
) -> None:
    """Options that say which orders: whole numbers with their defaults, and words."""
    for name, default in defaults.items():
        option, whole = f"--{name.replace('_', '-')}", _whole(LEAST.get(name, 1))
        shown = f"default: {f'{CHUNK_TOKENS} // seq_len' if default is None else default}"
        parser.add_argument(option, type=whole, default=default, metavar="N", help=shown)
    parser.add_argument("--strategies", type=_words_of(strategies), default="full,era,block")
    parser.add_argument("--perm-type", dest="perm_types", type=_words_of(PERM_TYPES))


def _whole(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"found {number}, allowed: {least} or more.")
        return number

    return whole


def _words_of(allowed: Sequence[str]) -> Callable[[str], list[str]]:
    """Reads words with commas between them."""

    def words(text: str) -> list[str]:
        chosen = [word.strip() for word in text.split(",")]
        for word in chosen:
            if word not in allowed:
                message = f"found {word!r}, allowed: {', '.join(allowed)}."
                raise argparse.ArgumentTypeError(message)
        return chosen

    return words


# -- permutation ---------------------------------------------------------------------------


def _permutation_options(parser: argparse.ArgumentParser) -> None:
    sizes = {"n": 8192, "repeats": 8, "seed": 0, "seq_len": 2048, "era_length": 1024}
    sizes |= {"window_blocks": 8, "lanes": 1, "batch_size": 2048}
    _add_orders(parser, ("full", "era", "block"), **sizes, io_block_size=None)
    parser.set_defaults(max_slowdown=None)


def _permutation(asked: argparse.Namespace) -> Run:
    block_size = asked.io_block_size or max(1, CHUNK_TOKENS // asked.seq_len)
    perm_types = ["levanter", "feistel"] if asked.lanes == 1 else ["feistel"]  # no published lanes
    chosen = ("n", "repeats", "seed", "seq_len", "era_length", "window_blocks", "lanes")
    settings = {name: getattr(asked, name) for name in (*chosen, "batch_size", "strategies")}
    settings |= {"io_block_size": block_size, "perm_types": asked.perm_types or perm_types}
    sizes = asked.n, block_size, asked.batch_size
    results = {
        perm_type: {
            strategy: _summary(settings, strategy, perm_type) for strategy in asked.strategies
        }
        for perm_type in settings["perm_types"]
    }
    return {
        "settings": settings,
        "fair": asdict(fair(*sizes)),
        "no_shuffle": asdict(measure(np.arange(asked.n), *sizes[1:])),
        "results": results,
    }


def _summary(settings: Mapping[str, Any], strategy: str, perm_type: str) -> dict[str, Any]:
    """Each measure of an order over its seeds."""
    qualities = []
    for seed in range(settings["seed"], settings["seed"] + settings["repeats"]):
        rows = _order(settings, strategy, perm_type, seed).map(np.arange(settings["n"]))
        qualities.append(measure(rows, settings["io_block_size"], settings["batch_size"]))
    summary = {}
    for name in MEASURES:
        values = np.array([getattr(quality, name) for quality in qualities])
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        mean = float(values.mean())
        summary[name] = {"mean": mean, "std": spread, "per_seed": values.tolist()}
    return summary


def _order(settings: Mapping[str, Any], strategy: str, perm_type: str, seed: int) -> order.Order:
    n = settings["n"]
    if strategy == "full":
        return order.full(n, seed=seed, perm_type=perm_type)
    if strategy == "era":
        return order.era(n, settings["era_length"], seed=seed, perm_type=perm_type)
    sizes = settings["io_block_size"], settings["window_blocks"]
    return order.block(n, *sizes, lanes=settings["lanes"], seed=seed, perm_type=perm_type)


def _permutation_lines(run: Run) -> Iterator[str]:
    settings, results, expected = run["settings"], run["results"], run["fair"]
    chosen = ("n", "seq_len", "io_block_size", "window_blocks", "lanes", "era_length", "batch_size")
    yield " ".join(f"{name}={settings[name]}" for name in chosen)
    seeds = f"{settings['repeats']} seed{'s' if settings['repeats'] > 1 else ''}"
    for perm_type, strategies in results.items():
        yield f"\nShuffle measures (perm_type={perm_type}, mean across {seeds})"
        rows = {
            strategy: [f"{summary[name]['mean']:.4f}" for name in TITLES]
            for strategy, summary in strategies.items()
        }
        yield from _table("Strategy", TITLES.values(), rows)
    random = ", ".join(f"{title} {expected[name]:.4f}" for name, title in TITLES.items())
    same = "same_block_transition_rate"
    yield (
        f"\nBaselines (n={settings['n']}, io_block_size={settings['io_block_size']}): random "
        f"{random}; no shuffle {same} {run['no_shuffle'][same]:.4f}"
    )
    for perm_type, strategies in results.items():
        yield f"\nMixing (perm_type={perm_type}): displacement over its random expectation"
        moved = "mean_abs_displacement_norm"
        yield from _bars(strategies, moved, MIXING_BAR / expected[moved], 1 / expected[moved])
        yield f"Locality (perm_type={perm_type}): {same}"
        yield from _bars(strategies, same, LOCALITY_BAR, 1.0)
    yield "\nMeasures that expose a weak shuffle (fair: a random order of all rows)"
    orders = {
        f"{perm_type} {strategy}": summary
        for perm_type, strategies in results.items()
        for strategy, summary in strategies.items()
    }
    rows = {
        name: [
            *(f"{summary[name]['mean']:.3f}" for summary in orders.values()),
            f"{expected[name]:.3f}",
        ]
        for name in MEASURES
        if name not in TITLES
    }
    yield from _table("measure", [*orders, "fair"], rows)
    yield (
        "Eras and shuffle windows are local on purpose: their block jumps, blocks per group and "
        "different steps are below fair, their runs above, and each era has its own fixed point."
    )


def _bars(
    strategies: Mapping[str, Any], name: str, characters: float, factor: float
) -> Iterator[str]:
    for strategy, summary in strategies.items():
        value = summary[name]["mean"]
        yield f"- `{strategy}`: {value * factor:.3f} `{'#' * math.ceil(value * characters)}`"


def _table(first: str, heads: Iterable[str], rows: Mapping[str, Sequence[str]]) -> Iterator[str]:
    titles = [first, *heads]
    yield f"| {' | '.join(titles)} |"
    yield "|---|" + "---:|" * (len(titles) - 1)
    for name, cells in rows.items():
        yield f"| `{name}` | {' | '.join(cells)} |"


# -- data-loading --------------------------------------------------------------------------


def _loading_options(parser: argparse.ArgumentParser) -> None:
    sizes = {"steps": 20, "batch_size": 128, "prefetch_batches": 16, "seq_len": 2048}
    sizes |= {"era_length": 1024, "window_blocks": 8, "seed": 0}
    _add_orders(parser, ("none", "full", "era", "block"), **sizes)
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--num-examples", type=_whole(1), default=ROWS, metavar="N")
    rows.add_argument("--store", metavar="PATH", help="measure this store, not a temporary one")
    parser.add_argument("--max-slowdown", type=float, metavar="X", help="of p50, with --compare")


def _loading(asked: argparse.Namespace) -> Run:
    results: Run = {}
    speeds: Run = {}
    loader: Run = {}
    perm_types = asked.perm_types or ["levanter", "feistel"]
    with tempfile.TemporaryDirectory(prefix="tokenloom-bench-") as folder:
        path = asked.store or f"{folder}/store"
        if asked.store is None:
            _write_store(path, asked.num_examples, asked.seq_len)
        store = tl.open(path, cache_bytes=0, verify="never")
        for perm_type in perm_types:
            for strategy in asked.strategies:
                counts, times = _requests(_rows(store, asked, strategy, perm_type), asked)
                results.setdefault(perm_type, {})[strategy] = counts
                speeds.setdefault(perm_type, {})[strategy] = times
                own = tl.open(path, cache_bytes=CACHE_BYTES)
                steps = _loader_steps(_rows(own, asked, strategy, perm_type), asked)
                loader.setdefault(perm_type, {})[strategy] = steps
        num_examples = len(store.windows(asked.seq_len))
    names = ("steps", "batch_size", "prefetch_batches", "seq_len", "era_length", "window_blocks")
    settings = {name: getattr(asked, name) for name in (*names, "seed", "store", "strategies")}
    settings |= {"num_examples": num_examples, "perm_types": perm_types}
    return {"settings": settings, "results": results, "speeds": speeds, "loader": loader}


def _write_store(path: str, rows: int, seq_len: int) -> None:
    """A store of random tokens in documents of one row."""
    ids = np.arange(rows * seq_len, dtype=np.uint32) * np.uint32(2_654_435_761) >> np.uint32(18)
    write_flat(path, ids.astype(np.uint16), np.full(rows, seq_len), vocab_size=1 << 14)


def _rows(store: tl.Store, asked: argparse.Namespace, strategy: str, perm_type: str) -> tl.Dataset:
    """The rows of a store in the order of a strategy."""
    shuffles = {
        "none": False,
        "full": FullShuffle(perm_type=perm_type),
        "era": EraShuffle(length=asked.era_length, perm_type=perm_type),
        "block": tl.BlockShuffle(window_blocks=asked.window_blocks, perm_type=perm_type),
    }
    return store.windows(asked.seq_len).seed(asked.seed).shuffle(shuffles[strategy])


def _requests(rows: tl.Dataset, asked: argparse.Namespace) -> tuple[Run, Run]:
    """(count → its mean, speed → its value) of requests of consecutive indices."""
    size = asked.batch_size * asked.prefetch_batches
    seconds, before = [], rows.counters()
    for step in range(asked.steps):
        begin = time.perf_counter()
        _ = rows.batch(np.arange(step * size, (step + 1) * size) % len(rows)).tokens
        seconds.append(time.perf_counter() - begin)
    reads, examples = rows.counters().read_ops - before.read_ops, asked.steps * size
    counts = dict(
        zip(COUNTS, (reads, examples, reads / examples, 1 - reads / examples), strict=True)
    )
    speeds = _speeds(seconds, examples, examples * asked.seq_len)
    times = {"elapsed_s": sum(seconds), **speeds, "reads_saved": examples - reads}
    return {name: {"mean": value} for name, value in counts.items()}, times


def _loader_steps(rows: tl.Dataset, asked: argparse.Namespace) -> Run:
    """What steps of a loader took and read; the run ends with them, so nothing is read ahead."""
    run = rows.epochs(None).take(asked.steps * asked.batch_size)
    options = {"rank": 0, "world_size": 1, "prefetch": asked.prefetch_batches}
    seconds = []
    with tl.Loader(run, asked.batch_size, **options) as loader:
        before = loader.stats()
        for _ in range(asked.steps):
            begin = time.perf_counter()
            _ = next(loader).tokens
            seconds.append(time.perf_counter() - begin)
        after = loader.stats()
    return {
        "examples": after.examples,
        **_speeds(seconds, after.examples, after.cells),  # windows have no filler
        "reads": after.reads.read_ops - before.reads.read_ops,
        "bytes": after.reads.bytes - before.reads.bytes,
        "cache_hits": after.cache.hits - before.cache.hits,
        "cache_misses": after.cache.misses - before.cache.misses,
    }


def _speeds(seconds: Sequence[float], examples: int, tokens: int) -> dict[str, float]:
    elapsed = sum(seconds)
    return {
        "examples/s": examples / elapsed,
        "tokens/s": tokens / elapsed,
        "p50_ms": float(np.percentile(seconds, 50)) * 1e3,
        "p95_ms": float(np.percentile(seconds, 95)) * 1e3,
    }


def _loading_lines(run: Run) -> Iterator[str]:
    settings = run["settings"]
    examples = settings["steps"] * settings["batch_size"] * settings["prefetch_batches"]
    yield (
        f"{settings['steps']} requests of {settings['batch_size']} x "
        f"{settings['prefetch_batches']} rows of {settings['seq_len']:,} tokens: {examples:,} "
        f"examples, {examples / settings['num_examples']:.1f} passes over the store"
    )
    for perm_type, strategies in run["results"].items():
        yield f"\nReads (perm_type={perm_type})"
        counts = {name: _counts(found) for name, found in strategies.items()}
        yield from _table("Strategy", COUNTS, counts)
        yield f"\nSpeed (perm_type={perm_type}; reads_saved against one read per example)"
        yield from _figures(SPEEDS, run["speeds"][perm_type])
        yield f"\nLoader (perm_type={perm_type}; p50 and p95 of one step, an empty block cache)"
        yield from _figures(LOADER, run["loader"][perm_type])


def _counts(found: Mapping[str, Any]) -> list[str]:
    reads, examples, per_example, reduction = (found[name]["mean"] for name in COUNTS)
    digits = 4 if per_example >= 0.1 else 5
    return [f"{reads:,}", f"{examples:,}", f"{per_example:.{digits}f}", f"{reduction:.2%}"]


def _figures(heads: Sequence[str], strategies: Mapping[str, Any]) -> Iterator[str]:
    rows = {
        strategy: [
            f"{found[head]:,}" if isinstance(found[head], int) else f"{found[head]:,.4g}"
            for head in heads
        ]
        for strategy, found in strategies.items()
    }
    return _table("Strategy", heads, rows)


WORKLOADS = {
    "permutation": Workload(_permutation_options, _permutation, _permutation_lines),
    "data-loading": Workload(_loading_options, _loading, _loading_lines),
}
