"""`tokenloom bench`: reproducible measurements, as tables or as JSON for comparison.

`bench permutation` prints the shuffle table of the published block shuffle note: with perm_type
`levanter` the published figures, with `feistel` those of a fair shuffle, and below them the
measures that distinguish the two.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, fields
from itertools import product
from typing import Any

import numpy as np

from tokenloom.arguments import check_between
from tokenloom.cli.printing import compare, comparison_lines, named_in, option, read_run, write
from tokenloom.errors import plural
from tokenloom.order import Order, block, era, full
from tokenloom.progress import Progress
from tokenloom.quality.shuffle import ShuffleQuality, fair, measure
from tokenloom.random.permute import PERM_TYPES

__all__ = ["permutation"]

STRATEGIES = ("full", "era", "block")

CHUNK_TOKENS = 262_144

PATIENCE = 2.0  # seconds before a progress bar is shown

TITLES = {
    "mean_abs_displacement_norm": "mean_abs_displacement_norm",
    "inversion_fraction": "inversion_fraction",
    "spearman_rho": "Spearman rho",
    "same_block_transition_rate": "same_block_transition_rate",
}

MORE = [field.name for field in fields(ShuffleQuality) if field.name not in TITLES]

MIXING_BAR, LOCALITY_BAR = 20, 48  # characters that 1.0 takes

Results = dict[str, dict[str, dict[str, Any]]]

"""perm type → strategy → measure → {mean, std, per_seed}"""


def permutation(arguments: argparse.Namespace) -> int:
    """Measure orders: `tokenloom bench permutation`."""
    settings = _settings(arguments)
    earlier = read_run(arguments.compare, "permutation") if arguments.compare else None
    sizes = settings["n"], settings["io_block_size"], settings["batch_size"]
    run: dict[str, Any] = {
        "bench": "permutation",
        "settings": settings,
        "fair": asdict(fair(*sizes)),
        "no_shuffle": asdict(measure(np.arange(settings["n"]), *sizes[1:])),
        "results": _measure_all(settings, quiet=arguments.quiet),
    }
    if earlier is None:
        write(arguments, run, _lines(run))
        return 0
    run["compare"] = compare(earlier, run, arguments.tolerance)
    write(arguments, run, comparison_lines(arguments.compare, run["compare"]))
    return 1 if run["compare"]["differs"] else 0


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """The requested settings, with all defaults filled in."""
    check_between("--n", arguments.n, 2)
    check_between("--seed", arguments.seed, 0)
    for name in ("repeats", "seq_len", "era_length", "window_blocks", "lanes", "batch_size"):
        check_between(option(name), getattr(arguments, name), 1)
    block_size = arguments.io_block_size
    if block_size is None:
        block_size = max(1, CHUNK_TOKENS // arguments.seq_len)
    check_between("--io-block-size", block_size, 1)
    strategies = named_in("strategies", arguments.strategies, STRATEGIES)
    both = "levanter,feistel" if arguments.lanes == 1 else "feistel"  # Levanter has no lanes
    perm_types = named_in("perm_type", arguments.perm_type or both, PERM_TYPES)
    return {
        "n": arguments.n,
        "repeats": arguments.repeats,
        "seed": arguments.seed,
        "seq_len": arguments.seq_len,
        "io_block_size": block_size,
        "era_length": arguments.era_length,
        "window_blocks": arguments.window_blocks,
        "lanes": arguments.lanes,
        "batch_size": arguments.batch_size,
        "strategies": strategies,
        "perm_types": perm_types,
    }


def _measure_all(settings: dict[str, Any], *, quiet: bool) -> Results:
    seeds = range(settings["seed"], settings["seed"] + settings["repeats"])
    wanted = list(product(settings["perm_types"], settings["strategies"], seeds))
    results: Results = {}
    found: list[ShuffleQuality] = []
    start = time.monotonic()
    with ExitStack() as stack:
        bar = None
        for done, (perm_type, strategy, seed) in enumerate(wanted, 1):
            rows = _order(settings, strategy, perm_type, seed).map(np.arange(settings["n"]))
            found.append(measure(rows, settings["io_block_size"], settings["batch_size"]))
            if seed == seeds[-1]:
                results.setdefault(perm_type, {})[strategy] = _summary(found)
                found = []
            if bar is None and not quiet and time.monotonic() - start > PATIENCE:
                bar = stack.enter_context(Progress("measuring", total=len(wanted), unit=" orders"))
            if bar is not None:
                bar.reach(done)
    return results


def _order(settings: dict[str, Any], strategy: str, perm_type: str, seed: int) -> Order:
    n = settings["n"]
    if strategy == "full":
        return full(n, seed=seed, perm_type=perm_type)
    if strategy == "era":
        return era(n, settings["era_length"], seed=seed, perm_type=perm_type)
    return block(
        n,
        settings["io_block_size"],
        settings["window_blocks"],
        lanes=settings["lanes"],
        seed=seed,
        perm_type=perm_type,
    )


def _summary(found: list[ShuffleQuality]) -> dict[str, Any]:
    summary = {}
    for field in fields(ShuffleQuality):
        values = np.array([getattr(quality, field.name) for quality in found])
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        summary[field.name] = {
            "mean": float(values.mean()),
            "std": spread,
            "per_seed": values.tolist(),
        }
    return summary


def _lines(run: dict[str, Any]) -> Iterator[str]:
    settings, results, expected = run["settings"], run["results"], run["fair"]
    chosen = ("n", "seq_len", "io_block_size", "window_blocks", "lanes", "era_length", "batch_size")
    yield " ".join(f"{name}={settings[name]}" for name in chosen)
    yield ""
    seeds = plural(settings["repeats"], "seed")
    for perm_type, strategies in results.items():
        yield f"Shuffle measures (perm_type={perm_type}, mean across {seeds})"
        yield from _table(strategies)
        yield ""
    yield (
        f"Baselines (n={settings['n']}, io_block_size={settings['io_block_size']}): random "
        + ", ".join(f"{title} {expected[name]:.4f}" for name, title in TITLES.items())
        + "; no shuffle same_block_transition_rate "
        + f"{run['no_shuffle']['same_block_transition_rate']:.4f}"
    )
    for perm_type, strategies in results.items():
        yield ""
        yield f"Mixing (perm_type={perm_type}): displacement over its random expectation"
        moved = "mean_abs_displacement_norm"
        shares = {name: s[moved]["mean"] / expected[moved] for name, s in strategies.items()}
        yield from _bars(shares, MIXING_BAR)
        yield f"Locality (perm_type={perm_type}): same_block_transition_rate"
        rates = {n: s["same_block_transition_rate"]["mean"] for n, s in strategies.items()}
        yield from _bars(rates, LOCALITY_BAR)
    yield ""
    yield "Measures that expose a weak shuffle (fair: a random order of all rows)"
    yield from _more(results, expected)
    yield (
        "Eras and shuffle windows are local on purpose: their block jumps, blocks per group and "
        "different steps are below fair, their runs above, and each era has its own fixed point."
    )


def _table(strategies: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield f"| Strategy | {' | '.join(TITLES.values())} |"
    yield "|---|" + "---:|" * len(TITLES)
    for strategy, found in strategies.items():
        values = " | ".join(f"{found[name]['mean']:.4f}" for name in TITLES)
        yield f"| `{strategy}` | {values} |"


def _bars(values: dict[str, float], scale: int) -> Iterator[str]:
    for name, value in values.items():
        yield f"- `{name}`: {value:.3f} `{'#' * math.ceil(value * scale)}`"


def _more(results: Results, expected: dict[str, float]) -> Iterator[str]:
    columns = [(perm_type, strategy) for perm_type in results for strategy in results[perm_type]]
    yield f"| measure | {' | '.join(' '.join(column) for column in columns)} | fair |"
    yield "|---|" + "---:|" * (len(columns) + 1)
    for name in MORE:
        values = [results[perm_type][strategy][name]["mean"] for perm_type, strategy in columns]
        yield f"| {name} | {' | '.join(f'{v:.3f}' for v in [*values, expected[name]])} |"
