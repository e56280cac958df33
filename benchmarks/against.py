"""Is this tree slower than another one? `python -m benchmarks against OTHER_TREE`.

One idea: two processes that run one after the other on a shared machine see about the same load, so
their ratio is more informative than either time. Every pair is two fresh processes, one per tree,
which take turns in going first; a sample is the fastest pass of a process, in CPU-seconds. The
interval is that of the median of the pairs' ratios by order statistics (the sign test): it assumes
nothing about how times are distributed. A row fails if the whole interval is above the limit.

Memory that is freed stays with the process (`MALLOC_TRIM_THRESHOLD_`): whether glibc returns the
end of its heap depends on what happens to be there, which is the same in every process of a tree,
and an index of `order.full` took 29 ns instead of 13 in one of two equal trees.

Both trees run the workloads of this one (`benchmarks/workloads.py`) over stores that each has built
from the same ids. No file is written into either tree.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.clock import columns, machine, short
from benchmarks.workloads import SIZES, TOPICS, WORKLOADS, write_corpora

__all__ = ["Compared", "compare", "interval", "main"]

HERE = Path(__file__).resolve().parents[1]
WORKER = Path(__file__).with_name("workloads.py")
PAIRS, QUICK_PAIRS, LIMIT = 20, 2, 1.03
KEPT = 1 << 30  # bytes that glibc keeps for the next array instead of giving them back
HANGS = 900  # seconds after which a process is taken to hang
HEAD = (
    "what",
    "unit",
    "this: best",
    "median",
    "other: best",
    "median",
    "ratio",
    "interval",
    "slower?",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """A checkout, and where its stores, caches and compiled modules are kept meanwhile."""

    root: Path
    folder: Path

    @property
    def stores(self) -> Path:
        return self.folder / "stores"

    def ask(self, name: str, size: str, pair: int = 0) -> Any:
        """The answer of a fresh process of this tree.

        Raises:
            SystemExit: it failed; shows its output.
        """
        command = [sys.executable, "-P", str(WORKER), str(self.stores), size, name]
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        mine = {
            "PYTHONPATH": str(self.root / "src"),
            "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode"),
            "PYTHONHASHSEED": str(pair),
            "TOKENLOOM_CACHE_DIR": str(self.folder / "cache"),
            "MALLOC_TRIM_THRESHOLD_": str(KEPT),
        }
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**kept, **mine},
            capture_output=True,
            text=True,
            timeout=HANGS,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{self.root}: {name!r} failed.\n{done.stderr.strip()[-3000:]}")
        return json.loads(done.stdout) if done.stdout.strip() else None


# -- statistics ----------------------------------------------------------------------------


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The 95 % interval of the median: two of the values, and how sure it is.

    Fewer than six values have none of 95 %: then it is the smallest and the largest.

    >>> low, high, sure = interval(range(1, 21))
    >>> low, high, round(sure, 3)
    (6, 15, 0.959)
    >>> interval([2.0, 1.0])
    (1.0, 2.0, 0.5)
    """
    ordered, n = sorted(values), len(values)
    below = [math.comb(n, k) / 2**n for k in range(n)]
    rank = 0  # the largest one with at most 2.5 % on either side
    while sum(below[: rank + 2]) <= 0.025:
        rank += 1
    return ordered[rank], ordered[n - 1 - rank], 1 - 2 * sum(below[: rank + 1])


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """A row: CPU-seconds of one thing in every pair, here and there."""

    what: str
    each: str
    this: tuple[float, ...]
    other: tuple[float, ...]
    limit: float

    @property
    def ratios(self) -> list[float]:
        """This over the other, pair by pair."""
        return [a / b for a, b in zip(self.this, self.other, strict=True)]

    @property
    def is_slower(self) -> bool:
        """The whole interval is above the limit."""
        return interval(self.ratios)[0] > self.limit

    @property
    def is_faster(self) -> bool:
        """The whole interval is as far below."""
        return interval(self.ratios)[1] < 1 / self.limit

    def cells(self) -> tuple[str, ...]:
        """The row as text, times in the unit that suits them."""
        low, high, _ = interval(self.ratios)
        unit, scale = _unit(statistics.median(self.other))
        times = [
            short(pick(times) * scale)
            for times in (self.this, self.other)
            for pick in (min, statistics.median)
        ]
        verdict = "YES" if self.is_slower else "no, faster" if self.is_faster else "no"
        ratio = f"{statistics.median(self.ratios):.3f}"
        return (
            self.what,
            f"{unit} a {self.each}" if self.each[0] not in "aeio" else f"{unit} an {self.each}",
            *times,
            ratio,
            f"{low:.3f} to {high:.3f}",
            verdict,
        )


def _unit(seconds: float) -> tuple[str, float]:
    return next(
        (name, scale)
        for name, scale, least in (("ms", 1e3, 1e-3), ("µs", 1e6, 1e-6), ("ns", 1e9, 0.0))
        if seconds >= least
    )


# -- the comparison ------------------------------------------------------------------------


def compare(
    this: Tree, other: Tree, names: Sequence[str], *, size: str, pairs: int, limit: float
) -> list[Compared]:
    """Every row, its pairs one after another; the first processes of a row do not count."""
    found = []
    for row, name in enumerate(names):
        samples: dict[Path, list[float]] = {this.folder: [], other.folder: []}
        for pair in range(-1, pairs):
            place = f"row {row + 1} of {len(names)}, pair {pair + 1} of {pairs}"
            _progress(f"{place}: {name}", again=pair >= 0)
            for tree in (this, other) if pair % 2 else (other, this):
                answer = tree.ask(name, size, pair + 1)
                if pair >= 0:
                    samples[tree.folder].append(min(answer["cpu"]) / answer["things"])
        mine, theirs = samples.values()
        found.append(
            Compared(
                what=name,
                each=WORKLOADS[name].each,
                this=tuple(mine),
                other=tuple(theirs),
                limit=limit,
            )
        )
    _progress("")
    return found


def _progress(words: str, *, again: bool = False) -> None:
    """One line that is written over on a terminal; in a file, those that are not `again`."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{words}")
    elif words and not again:
        sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


def check_trees(this: Mapping[str, Any], other: Mapping[str, Any], *, mixed: bool) -> str:
    """What is compared, in a line.

    Args:
        this: what `workloads.where` says in this tree.
        other: and in the other one.
        mixed: compiled loops in one of them only are all right.

    Raises:
        SystemExit: compiled loops in one of them only.
    """
    has, had = this["native"] is not None, other["native"] is not None
    if has != had and not mixed:
        one, two = ("this", "the other") if has else ("the other", "this")
        raise SystemExit(
            f"{one} tree has compiled loops (tokenloom._native), {two} tree has none, so the times "
            "say nothing about a change. Compile them in both, set TOKENLOOM_NATIVE=0 for both, or "
            "pass --allow-mixed."
        )
    if has != had:
        return "compiled loops in one tree only (--allow-mixed)"
    return "compiled loops in both trees" if has else "no compiled loops in either tree"


def _located(tree: Tree) -> dict[str, Any]:
    """What the processes of a tree import; refused if it is not of that tree."""
    source = tree.root / "src"
    if not (source / "tokenloom/__init__.py").is_file():
        raise SystemExit(f"{tree.root}: found no src/tokenloom, allowed: a checkout of tokenloom.")
    found: dict[str, Any] = tree.ask("where", "quick")
    for path in filter(None, found.values()):
        if source.resolve() not in Path(path).resolve().parents:
            raise SystemExit(f"{tree.root}: its processes import {path}, which is not below it.")
    return found if os.environ.get("TOKENLOOM_NATIVE") != "0" else {**found, "native": None}


def selected(only: Sequence[str]) -> list[str]:
    """The rows of these topics or names, all by default; a part of a name will do.

    Raises:
        SystemExit: no row has that in its name.
    """
    for word in only:
        if word not in TOPICS and not any(word in name for name in WORKLOADS):
            near = difflib.get_close_matches(word, [*TOPICS, *WORKLOADS], 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise SystemExit(
                f"--only: found {word!r}, allowed: one of {', '.join(TOPICS)}, or a part of the "
                f"name of a row: {'; '.join(WORKLOADS)}.{hint}"
            )
    return [
        name
        for name, one in WORKLOADS.items()
        if not only or any(word == one.topic or word in name for word in only)
    ]


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks against",
        description="Compare the speed of this tree with another checkout, in pairs of processes.",
    )
    parser.add_argument("other", type=Path, metavar="OTHER_TREE", help="a checkout with src/")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help=f"a topic ({', '.join(TOPICS)}) or a part of a row's name; may be repeated",
    )
    parser.add_argument("--pairs", type=int, help=f"pairs of processes a row ({PAIRS})")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"allowed ratio ({LIMIT})")
    parser.add_argument("--quick", action="store_true", help="tiny, 2 pairs: only that it runs")
    parser.add_argument(
        "--allow-mixed", action="store_true", help="compiled loops in one tree only"
    )
    parser.add_argument("--json", type=Path, help="write every sample there, too")
    return parser


def main(words: Sequence[str]) -> int:
    """Print the table; 1 if a row is slower than allowed, else 0."""
    asked = arguments().parse_args(words)
    names = selected(asked.only)
    pairs = asked.pairs or (QUICK_PAIRS if asked.quick else PAIRS)
    size = "quick" if asked.quick else "default"
    with tempfile.TemporaryDirectory(prefix="tokenloom-against-") as kept:
        this, other = (
            Tree(root=root.resolve(), folder=Path(kept, name))
            for root, name in ((HERE, "this"), (asked.other, "other"))
        )
        corpora = Path(kept, "corpora")
        for folder in (this.stores, other.stores, corpora):
            folder.mkdir(parents=True)
        told = check_trees(_located(this), _located(other), mixed=asked.allow_mixed)
        _progress("writing the ids and building the stores of both trees")
        write_corpora(corpora, SIZES[size])
        for tree in (this, other):
            (tree.folder / "corpora").symlink_to(corpora)
            tree.ask("stores", size)
        found = compare(this, other, names, size=size, pairs=pairs, limit=asked.limit)
    print(f"{machine()}; {told}.")
    print(f"$ python -m benchmarks against {shlex.join(words)}")
    print(columns([HEAD, *(one.cells() for one in found)]))
    sure = interval(found[0].ratios)[2]
    print(
        f"- {pairs} pairs of fresh processes a row, in turns; CPU time of the fastest of their "
        f"passes. ratio = this / other, median of the pairs; interval of {sure:.0%}."
    )
    slower = [one.what for one in found if one.is_slower]
    verdict = f"slower: {'; '.join(slower)}" if slower else "nothing is slower"
    print(f"- {verdict} (an interval wholly above {asked.limit:g}).")
    if asked.json:
        rows = [asdict(one) for one in found]
        asked.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    return 1 if slower else 0
