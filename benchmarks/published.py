"""`python -m benchmarks published [TABLE …] [--write]`: published tables beside ours.

Prints the tables of docs/published.md, all of them or those that are named; `--write` also puts
them into the page. `efficiency` needs `--histogram FILE`, and is left as it is without it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import published_learning as learning
from benchmarks import published_orders as orders
from benchmarks import published_packing as packing
from benchmarks import published_splices as splices
from benchmarks import published_times as times
from benchmarks.clock import machine
from benchmarks.figures import Section, printed, replaced

__all__ = ["EXACT", "PAGE", "TIMED", "main"]

PAGE = Path(__file__).parents[1] / "docs/published.md"

# each table from a folder for its stores; nothing here is a time
EXACT: dict[str, Callable[[Path], Section]] = {
    "quality": lambda _: orders.quality(),
    "mixing": lambda _: orders.mixing(),
    "reads": lambda _: orders.reads(),
    "splices": splices.splices,
    "balance": splices.balance,
    "boundaries": packing.boundaries,
    "packers": lambda _: packing.packers(),
    "scan": lambda _: packing.scanned(),
    "interleave": learning.interleave,
    "memorization": learning.memorization,
    "evaluation": learning.evaluation,
}
TIMED: dict[str, Callable[[Path, str], Section]] = {
    "scan_times": lambda _, size: times.scan_times(size),
    "position_times": lambda _, size: times.position_times(size),
    "splice_times": times.splice_times,
}
EFFICIENCY = "efficiency"


def main(words: Sequence[str]) -> int:
    """Print the tables, and write them into the page if that is asked for; 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks published", description=__doc__)
    known = [*EXACT, EFFICIENCY, *TIMED]
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"one of {', '.join(known)}")
    parser.add_argument("--write", action="store_true", help="put them into the page, too")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page")
    parser.add_argument("--histogram", type=Path, help="sequences of 1, 2, 3, … tokens")
    parser.add_argument("--size", default="default", choices=tuple(times.ROUNDS), help="of times")
    asked = parser.parse_args(words)
    for name in asked.tables:
        if name not in known:
            parser.error(f"TABLE: found {name!r}, allowed: {', '.join(known)}.")
    if EFFICIENCY in asked.tables and asked.histogram is None:
        parser.error(f"{EFFICIENCY}: found no --histogram FILE, which it is made from.")
    made = []
    with tempfile.TemporaryDirectory(prefix="tokenloom-bench-") as folder:
        for name in asked.tables or known:
            section = _made(name, Path(folder), asked)
            if section is None:
                print(f"## {name}\n\nLeft out: it needs --histogram FILE.\n", flush=True)
                continue
            made.append(section)
            print(f"{printed(section)}\n", flush=True)
    if asked.write:
        page = asked.page.read_text(encoding="utf-8")
        asked.page.write_text(replaced(page, made), encoding="utf-8")
    return 0


def _made(name: str, folder: Path, asked: argparse.Namespace) -> Section | None:
    if name in EXACT:
        return EXACT[name](folder)
    if name in TIMED:
        section = TIMED[name](folder, asked.size)
        return replace(section, notes=(*section.notes, f"{machine()}."))
    if asked.histogram is None:
        return None
    return packing.efficiency(packing.read_histogram(asked.histogram))
