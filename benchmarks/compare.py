"""Is a run slower than an earlier one? `python -m benchmarks compare a.json b.json`.

Both files were written with `--json`. Rows are matched by the title of their table and by name.

The rule: a row is a *regression* if b is worse than a by more than the limit in its best round, and
still is after the noise has been taken off. Noise is what the rounds show: the ratios of every
round of b to every round of a are sorted, and of the worse side only the end counts that chance
exceeds in one of twenty pairs of equal runs (the Mann-Whitney test, which assumes nothing about how
times are distributed). A row with fewer than three rounds on a side has no such end and is not
judged, nor is a figure that is neither a time nor a rate.

Runs at different hours see different loads, which no spread inside a run shows: if a rival's row is
worse as well, the machine was busier. A regression found here is to be confirmed with
`python -m benchmarks against OTHER_TREE`, whose processes take turns.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clock import columns, short

__all__ = ["Pair", "main", "pairs_of", "ratios"]

LIMIT = 1.03
CHANCE = 0.05  # how often equal runs may exceed the end of the interval
TIMES = ("s", "ms", "µs", "ns", "CPU-s")  # less is better; of a rate (…/s, …/CPU-s) more is
HEAD = ("what", "unit", "a: best", "median", "b: best", "median", "b / a", "noise", "worse?")

Key = tuple[str, str]
"""(title of the table, name of the row)"""


@functools.cache
def left_out(a: int, b: int) -> int | None:
    """How many of the a x b ratios are left out at each end; None for too few rounds.

    Of all ways to sort a + b equal rounds, the share that has at most that many ratios on the
    wrong side is within `CHANCE`.

    >>> left_out(5, 5), left_out(3, 3), left_out(2, 9), left_out(11, 11)
    (4, 0, None, 34)
    """
    if min(a, b) < 3:
        return None
    # ways[i][u]: i rounds of a placed, u ratios on the wrong side, over the rounds of b so far
    ways = np.zeros((a + 1, a * b + 1))
    ways[0, 0] = 1
    for place in range(1, a + b + 1):
        for i in range(min(place, a), 0, -1):
            earlier = place - i  # rounds of b that come before this round of a
            if earlier <= b:
                ways[i, earlier:] += ways[i - 1, : a * b + 1 - earlier]
    chances = np.cumsum(ways[a]) / math.comb(a + b, a)
    return int(np.searchsorted(chances, CHANCE, side="right")) - 1


def ratios(a: Sequence[float], b: Sequence[float]) -> tuple[float, float] | None:
    """The ends of b / a that chance allows; None for too few rounds, or one of no time at all.

    >>> ratios([1.0, 1.0, 1.0], [1.1, 1.2, 1.3])
    (1.1, 1.3)
    >>> ratios([1.0], [1.1]) is None
    True
    """
    out = left_out(len(a), len(b))
    if out is None or min(*a, *b) <= 0:
        return None
    found = np.sort(np.divide.outer(np.asarray(b, float), np.asarray(a, float)), axis=None)
    return float(found[out]), float(found[-1 - out])


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A row that both files have."""

    what: str
    a: Mapping[str, Any]
    b: Mapping[str, Any]
    limit: float

    @property
    def is_rate(self) -> bool:
        """More of it is better."""
        return str(self.a["unit"]).endswith(("/s", "/CPU-s"))

    @property
    def noise(self) -> tuple[float, float] | None:
        """The ends of b / a that the rounds allow."""
        return ratios(self.a.get("samples") or (), self.b.get("samples") or ())

    @property
    def verdict(self) -> str:
        """YES for a regression, otherwise why not."""
        if not self.is_rate and str(self.a["unit"]).partition(" ")[0] not in TIMES:
            return "not judged: no time or rate"
        noise = self.noise
        if noise is None:
            return "not judged: noise unknown"
        low, high = noise
        best = self.b["value"] / self.a["value"]
        if self.is_rate:  # as times: how many times as long
            low, high, best = 1 / high, 1 / low, 1 / best
        if min(low, best) > self.limit:
            return "YES"
        if max(high, best) < 1 / self.limit:
            return "no, better"
        return "no, within noise" if best > self.limit else "no"

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        both = [
            "" if one[name] is None else short(one[name])
            for one in (self.a, self.b)
            for name in ("value", "median")
        ]
        ratio = f"{self.b['value'] / self.a['value']:.3f}" if self.a["value"] else ""
        noise = self.noise
        told = "" if noise is None else f"{noise[0]:.3f} to {noise[1]:.3f}"
        return self.what, str(self.a["unit"]), *both, ratio, told, self.verdict


# -- files -----------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any]:
    """What a benchmark wrote with `--json`.

    Raises:
        ValueError: it is something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read as JSON ({error}).") from None
    if isinstance(found, dict) and "rows" in found and "tables" not in found:
        raise ValueError(
            f"{path}: found an output of `benchmarks against`, which is a comparison itself; "
            "allowed: outputs of `python -m benchmarks JOB --json FILE`."
        )
    if not isinstance(found, dict) or not isinstance(found.get("tables"), list):
        raise ValueError(
            f"{path}: found no tables; write it with `python -m benchmarks JOB --json FILE`."
        )
    return found


def rows_of(found: Mapping[str, Any]) -> dict[Key, dict[str, Any]]:
    """Every row under a name of its own.

    An indented row belongs to the one above it, and a row that is printed again for another goal is
    the same row.

    >>> row = {"unit": "ms", "value": 1.0, "samples": []}
    >>> table = {"title": "t", "rows": [row | {"what": what} for what in ("x", "  y", "x", "z")]}
    >>> [name for _, name in rows_of({"tables": [table]})]
    ['x', 'x, y', 'z']
    """
    rows: dict[Key, dict[str, Any]] = {}
    for table in found["tables"]:
        above = ""
        for row in table["rows"]:
            what = str(row["what"])
            name = f"{above}, {what.strip()}" if what.startswith(" ") else what
            above = above if what.startswith(" ") else what
            number, key = 1, (table["title"], name)
            while key in rows and _figures(rows[key]) != _figures(row):
                number += 1
                key = table["title"], f"{name} ({number})"
            rows.setdefault(key, row)
    return rows


def _figures(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["unit"], row["value"], row.get("samples")


def pairs_of(
    a: Mapping[str, Any], b: Mapping[str, Any], limit: float
) -> tuple[dict[str, list[Pair]], list[str]]:
    """(title → rows that both have, in words what only one has)."""
    old, new = rows_of(a), rows_of(b)
    found: dict[str, list[Pair]] = {}
    for key in old:
        if key in new and old[key]["unit"] == new[key]["unit"]:
            pair = Pair(what=key[1], a=old[key], b=new[key], limit=limit)
            found.setdefault(key[0], []).append(pair)
    lone = [
        f"only in {name}: {title}: {what}"
        for name, these, others in (("a", old, new), ("b", new, old))
        for title, what in these
        if (title, what) not in others
    ]
    lone += [
        f"in other units: {title}: {what}"
        for title, what in old
        if (title, what) in new and old[title, what]["unit"] != new[title, what]["unit"]
    ]
    return found, lone


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """What makes the figures hard to compare: another machine, another size."""
    one, two = (_machine(str(found.get("machine", ""))) for found in (a, b))
    if one != two:
        yield f"other machines: a on {one or 'an unknown one'}, b on {two or 'an unknown one'}"
    commands = {table["title"]: table.get("command") for table in a["tables"]}
    told = set()
    for table in b["tables"]:
        both = commands.get(table["title"]), table.get("command")
        if table["title"] in commands and both[0] != both[1] and both not in told:
            told.add(both)
            yield f"other commands: a `{both[0]}`, b `{both[1]}`"


def _machine(told: str) -> str:
    return ", ".join(part for part in told.split(", ") if not part.startswith("load "))


# -- the command -----------------------------------------------------------------------------


def main(words: Sequence[str]) -> int:
    """Print the tables; 1 if a row is a regression, 2 if nothing can be compared, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description="Compare two runs of benchmarks, written with --json, row by row.",
    )
    parser.add_argument("a", type=Path, help="the earlier run")
    parser.add_argument("b", type=Path, help="the later run")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"allowed ratio ({LIMIT})")
    asked = parser.parse_args(words)
    try:
        a, b = read(asked.a), read(asked.b)
        found, lone = pairs_of(a, b, asked.limit)
        if not found:
            raise ValueError(f"{asked.a} and {asked.b} have no row in common.")
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    except (KeyError, TypeError) as problem:
        print(f"{asked.a} or {asked.b}: a table or row lacks {problem}.", file=sys.stderr)
        return 2
    for title, pairs in found.items():
        print(f"## {title}\n{columns([HEAD, *(pair.cells() for pair in pairs)])}\n")
    for line in (*differences(a, b), *lone):
        print(f"- {line}")
    worse = [
        f"{title}: {pair.what}"
        for title, pairs in found.items()
        for pair in pairs
        if pair.verdict == "YES"
    ]
    verdict = f"worse: {'; '.join(worse)}" if worse else "nothing is worse"
    print(f"- {verdict} (by more than {asked.limit:g} beyond the noise of the rounds).")
    return 1 if worse else 0
