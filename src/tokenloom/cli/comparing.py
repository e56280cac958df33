"""A benchmark run beside an earlier one: what was, what is, and whether that is a difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenloom.errors import InputError
from tokenloom.words import plural

__all__ = ["compare", "comparison_lines", "read_run"]


def read_run(path: str, bench: str) -> dict[str, Any]:
    """The run that `tokenloom bench <bench> --json` wrote to a file."""
    try:
        run: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read as JSON ({error}). "
            f"Write it with: tokenloom bench {bench} --json > FILE"
        ) from None
    known = isinstance(run, dict) and isinstance(run.get("results"), dict)
    if not known or run.get("bench") != bench:
        raise InputError(f"{path}: is no output of `tokenloom bench {bench} --json`.")
    return run


def compare(earlier: dict[str, Any], run: dict[str, Any], tolerance: float) -> dict[str, Any]:
    """Every mean of both runs; what only one of them has is a difference too.

    >>> old, new = ({"results": {"a": {"b": {"c": {"mean": x}}}}} for x in (1.0, 1.5))
    >>> compare(old, new, 0.1)["differs"], compare(old, new, 0.5)["differs"]
    (True, False)
    """
    before, after = dict(_means(earlier["results"])), dict(_means(run["results"]))
    rows = []
    for name in [*after, *[name for name in before if name not in after]]:
        old, new = before.get(name), after.get(name)
        difference = None if old is None or new is None else new - old
        near = difference is not None and abs(difference) <= tolerance
        rows.append(
            {"name": name, "old": old, "new": new, "difference": difference, "differs": not near}
        )
    old_settings, new_settings = earlier.get("settings", {}), run.get("settings", {})
    changed = {
        name: [old_settings.get(name), new_settings.get(name)]
        for name in {**old_settings, **new_settings}
        if old_settings.get(name) != new_settings.get(name)
    }
    return {
        "tolerance": tolerance,
        "settings_changed": changed,
        "differs": any(row["differs"] for row in rows),
        "rows": rows,
    }


def comparison_lines(path: str, found: dict[str, Any]) -> Iterator[str]:
    """The comparison as a table, and in one sentence."""
    for name, (old, new) in found["settings_changed"].items():
        yield f"other settings: {name} was {old}, is {new}"
    width = max([len(row["name"]) for row in found["rows"]], default=0)
    yield f"{'':<{width}} {'old':>14} {'new':>14} {'difference':>14}"
    for row in found["rows"]:
        values = (
            f"{'-' if row[name] is None else format(row[name], '.6g'):>14}"
            for name in ("old", "new", "difference")
        )
        yield f"{row['name']:<{width}} {' '.join(values)}{'  differs' * row['differs']}"
    count = sum(row["differs"] for row in found["rows"])
    total, near = len(found["rows"]), f"{found['tolerance']:g}"
    if count:
        yield f"{path}: {count} of {plural(total, 'measure')} differ by more than {near}"
    else:
        yield f"{path}: no difference above {near} in {plural(total, 'measure')}"


def _means(results: dict[str, Any], path: str = "") -> Iterator[tuple[str, float]]:
    """(path, mean) of every measure, however deep it stands."""
    for name, value in results.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, dict) and "mean" in value:
            yield here, float(value["mean"])
        elif isinstance(value, dict):
            yield from _means(value, here)
