"""Starting: what `import tokenloom` costs, and what the first use of a name adds.

Every figure comes from a fresh process, because a second import would find everything loaded. NumPy
is imported first and is the rival: every training process loads it anyway.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.clock import Row, Table, want

__all__ = ["SIZES", "run"]

SIZES = {"tiny": 1, "small": 5, "default": 15, "full": 31}  # size → rounds
LIMIT = 50  # milliseconds of CPU beyond NumPy

STEPS = {
    "importing NumPy": ("", "import numpy"),
    "importing tokenloom after it": ("import numpy", "import tokenloom"),
    "  then the first use of tl.open": ("import numpy, tokenloom", "tokenloom.open"),
    "  or of tl.build": ("import numpy, tokenloom", "tokenloom.build"),
    "  or of every name": (
        "import numpy, tokenloom",
        "[getattr(tokenloom, name) for name in tokenloom.__all__]",
    ),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of starting."""
    rounds = SIZES[size]
    seen: dict[str, list[float]] = {name: [] for name in STEPS}
    # the first round compiles modules and does not count
    for number in range(-int(rounds > 1), rounds):
        for name, (before, measured) in STEPS.items():
            milliseconds = 1e3 * _cpu(before, measured, folder / "bytecode")
            if number >= 0:
                seen[name].append(milliseconds)
    rows = [
        Row(
            what=f"{name}, CPU",
            value=min(found),
            median=statistics.median(found),
            unit="ms",
            samples=tuple(found),
        )
        for name, found in seen.items()
    ]
    rows[1] = want(rows[1], "<=", LIMIT)
    turns = f"{rounds} fresh processes for each line, taking turns; compiled modules are kept."
    return [Table(title="start", command=command, rows=rows, notes=[turns])]


def _cpu(before: str, measured: str, bytecode: Path) -> float:
    """CPU-seconds of some code in a fresh process, after some other code."""
    code = f"{before}\nimport time\nt = time.process_time()\n{measured}\n"
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code + "print(time.process_time() - t)"],
        env={**kept, "PYTHONPYCACHEPREFIX": str(bytecode)},
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout)
