"""A report of a run of 10^9 rows: CPU-seconds and memory, with kept plans and sums and without.

Every figure is that of a fresh process (`python -m benchmarks.report WHAT KIND STORE`). One makes
the plan of the run and a report while no sums are kept; one adds up the costs that the page shows;
the next ones find everything, with steps of 64 and of 1,024 rows. The plan of a packed run is made
before anybody can ask it anything, so it is a row of its own; the first report of all has to do
without it, and estimates rows from a sample.

Runs and the store are those of `benchmarks.looking`. Times are CPU-seconds of the report alone,
memory is the peak of the whole process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tokenloom as tl
from benchmarks.clock import Row, Table, want
from benchmarks.looking import DOCUMENTS, KINDS, ROUNDS, SHARD, SIZES, rows_of
from benchmarks.stores import virtual_store
from tokenloom.report import report_on
from tokenloom.report.subject import POINTS, Asked, RunSubject

__all__ = ["run"]

MIB = 1 << 20

LARGE = 1024  # rows of a large step


def opened(kind: str, store: str) -> tl.Dataset:
    """The run of a kind, with its plan."""
    found = KINDS[kind](tl.open(store))
    _ = found.run
    return found


def planned(kind: str, store: str) -> dict[str, float]:
    """What making the plan takes, in the process that makes it."""
    before = time.process_time()
    found = opened(kind, store)
    return {"rows": rows_of(found), "seconds": time.process_time() - before}


def reported(kind: str, store: str) -> dict[str, float]:
    """A report, from a process that has the plan and nothing else."""
    return _page(opened(kind, store), kind, time.process_time())


def large_steps(kind: str, store: str) -> dict[str, float]:
    """The same with many rows a step, each of another packed group."""
    return _page(opened(kind, store), kind, time.process_time(), batch_size=LARGE)


def _page(found: tl.Dataset, kind: str, before: float, **settings: Any) -> dict[str, float]:
    page = report_on(found, name=kind, **settings).html
    took = time.process_time() - before
    return {"seconds": took, "peak": _peak() / MIB, "bytes": len(page)}


def _peak() -> int:
    """Bytes that this process has had at most; not those of the process that started it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def summed(kind: str, store: str) -> dict[str, float]:
    """Add up the costs that the page shows, and keep them."""
    found = opened(kind, store)
    trained = RunSubject(found, Asked()).trained
    before = time.process_time()
    for part in range(POINTS + 1):
        found.consumed(part * trained // POINTS)
    return {"seconds": time.process_time() - before}


WHAT = {
    "planned": planned,
    "reported": reported,
    "large_steps": large_steps,
    "summed": summed,
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of reports."""
    documents = max(4000, int(DOCUMENTS * SIZES[size]))
    root = folder / "linked"
    shards = max(1, documents // SHARD)
    virtual_store(root, shards, min(SHARD, documents))
    rows: list[Row] = []
    for kind in KINDS:
        rows += _kind(kind, root, folder, size)
    note = f"{shards * min(SHARD, documents):,} documents of 64 tokens."
    return [Table(title="report", command=command, rows=rows, notes=[note])]


def _kind(kind: str, root: Path, folder: Path, size: str) -> list[Row]:
    """The rows of one kind of run."""

    def ask(what: str) -> dict[str, Any]:
        if size == "tiny":  # a process for each would take most of the time
            return WHAT[what](kind, str(root))
        return _asked(what, kind, root, folder)

    first = ask("planned")
    name = f"{kind}, {int(first['rows']):,} rows"
    rows = [_row(f"{name}: the plan", [first["seconds"]], "CPU-s")]
    rows += _reports(f"{name}: report, no sums kept", [ask("reported")])
    rows += _reports(f"{name}: report, {LARGE:,} rows a step", [ask("large_steps")])
    rows.append(_row(f"{name}: the sums it shows", [ask("summed")["seconds"]], "CPU-s"))
    rows += _reports(f"{name}: report, sums kept", [ask("reported") for _ in range(ROUNDS[size])])
    return rows


def _reports(what: str, found: list[dict[str, Any]]) -> list[Row]:
    return [
        want(_row(what, [one["seconds"] for one in found], "CPU-s"), "<=", 10),
        want(_row(f"{what}, memory", [one["peak"] for one in found], "MiB"), "<=", 300),
        want(_row(f"{what}, size", [one["bytes"] / MIB for one in found], "MiB"), "<=", 3),
    ]


def _row(what: str, values: list[float], unit: str) -> Row:
    return Row(
        what=what,
        value=min(values),
        median=sorted(values)[len(values) // 2],
        unit=unit,
        samples=tuple(values),
    )


def _asked(what: str, kind: str, store: Path, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.report", what, kind, str(store)],
        cwd=Path(__file__).resolve().parent.parent,
        env={**os.environ, "TOKENLOOM_CACHE_DIR": str(folder / "cache")},
        check=True,
        capture_output=True,
        text=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    print(json.dumps(WHAT[sys.argv[1]](*sys.argv[2:4])))
