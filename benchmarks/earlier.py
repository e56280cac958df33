"""A run of `permutation` or `data-loading` compared with an earlier one, mean by mean.

Means are counts and measures of orders, which are equal on every machine, so any difference counts.
Times are compared as the ratio of the medians of one step, which fails only above a given bound.
`benchmarks.compare` judges tables of times instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenloom import InputError

__all__ = ["compare", "comparison_lines", "is_worse", "read_run"]

TIMED = {"speeds": "", "loader": ", loader"}  # parts of a run with a p50_ms → suffix of their names


def read_run(path: Path, bench: str) -> dict[str, Any]:
    """The run that `python -m benchmarks BENCH --json` printed into a file.

    Raises:
        InputError: the file is something else.
    """
    command = f"python -m benchmarks {bench} --json"
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as JSON ({error}). Write it with: {command} > FILE"
        ) from None
    is_run = isinstance(run, dict) and isinstance(run.get("results"), dict)
    if not is_run or run.get("bench") != bench:
        raise InputError(f"{path}: not an output of `{command}`.")
    return dict(run)


def compare(earlier: dict[str, Any], run: dict[str, Any], tolerance: float) -> dict[str, Any]:
    """Every mean of both runs; a measure that only one run has also counts as a difference.

    >>> old, new = ({"results": {"a": {"b": {"c": {"mean": x}}}}} for x in (1.0, 1.5))
    >>> compare(old, new, 0.1)["differs"], compare(old, new, 0.5)["differs"]
    (True, False)
    """
    before, after = dict(_means(earlier["results"])), dict(_means(run["results"]))
    rows = []
    for name in dict.fromkeys([*after, *before]):
        old, new = before.get(name), after.get(name)
        difference = None if old is None or new is None else new - old
        differs = difference is None or abs(difference) > tolerance
        row = {"name": name, "old": old, "new": new, "difference": difference, "differs": differs}
        rows.append(row)
    settings = earlier.get("settings", {}), run.get("settings", {})
    changed = {
        name: [one.get(name) for one in settings]
        for name in {**settings[0], **settings[1]}
        if settings[0].get(name) != settings[1].get(name)
    }
    return {
        "tolerance": tolerance,
        "settings_changed": changed,
        "differs": any(row["differs"] for row in rows),
        "rows": rows,
        "p50_ratio": dict(_slowdowns(earlier, run)),
    }


def is_worse(comparison: dict[str, Any], max_slowdown: float | None) -> bool:
    """Whether a mean differs, or a step takes more than `max_slowdown` times as long."""
    ratios = comparison["p50_ratio"].values()
    too_slow = max_slowdown is not None and any(ratio > max_slowdown for ratio in ratios)
    return comparison["differs"] or too_slow


def comparison_lines(path: Path, comparison: dict[str, Any]) -> Iterator[str]:
    """The comparison as a table, a summary line, and ratios of times."""
    for name, (old, new) in comparison["settings_changed"].items():
        yield f"other settings: {name} was {old}, is {new}"
    rows, columns = comparison["rows"], ("old", "new", "difference")
    width = max([len(row["name"]) for row in rows], default=0)
    yield " ".join([" " * width, *(f"{column:>14}" for column in columns)])
    for row in rows:
        cells = ["-" if row[column] is None else f"{row[column]:.6g}" for column in columns]
        line = " ".join([f"{row['name']:<{width}}", *(f"{cell:>14}" for cell in cells)])
        yield line + "  differs" * row["differs"]
    count, tolerance = sum(row["differs"] for row in rows), comparison["tolerance"]
    if count:
        yield f"{path}: {count} of {len(rows)} measures differ by more than {tolerance:g}"
    else:
        yield f"{path}: no difference above {tolerance:g} in {len(rows)} measures"
    for name, ratio in comparison["p50_ratio"].items():
        yield f"p50 of {name}: {ratio:.2f} times as long"


def _means(results: dict[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """(path, mean) of every measure, at any depth."""
    for name, value in results.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, dict) and "mean" in value:
            yield here, float(value["mean"])
        elif isinstance(value, dict):
            yield from _means(value, here)


def _slowdowns(earlier: dict[str, Any], run: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """(order, how many times as long its median step takes) of what both runs timed."""
    for part, suffix in TIMED.items():
        for perm_type, strategies in run.get(part, {}).items():
            for strategy, speeds in strategies.items():
                before = earlier.get(part, {}).get(perm_type, {}).get(strategy)
                if before is not None:
                    ratio = speeds["p50_ms"] / before["p50_ms"]
                    yield f"{perm_type} {strategy}{suffix}", ratio
