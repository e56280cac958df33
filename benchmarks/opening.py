"""Opening a store: what it costs before the first token, whatever the size of the store.

Every figure comes from a fresh process (`benchmarks/probe.py`), because a second opening would find
modules, memory and the allocator warm.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.clock import Row, Table, want
from benchmarks.stores import virtual_store, write_store

__all__ = ["SIZES", "run"]

# size → (shards, documents per shard, tokens of the small store, rounds)
SIZES = {
    "tiny": (3, 512, 1 << 16, 1),
    "small": (77, 131_072, 1 << 22, 3),
    "default": (763, 131_072, 1 << 22, 7),
    "full": (763, 131_072, 1 << 24, 15),
}
MB = 1e6


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of opening."""
    shards, shard_documents, tokens, rounds = SIZES[size]
    virtual_store(folder / "virtual", shards, shard_documents)
    write_store(folder / "real", tokens)
    documents = shards * shard_documents
    names = {
        "virtual": f"a store of {documents:,} documents in {shards} shards",
        "real": f"a real store of {tokens:,} tokens in one shard",
    }
    # the last document: its shard is the farthest one, and is really there
    last = {"virtual": documents - 1, "real": 0}
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    # the first round compiles modules and does not count
    for number in range(-int(rounds > 1), rounds):
        for name in names:
            answer = _ask(folder / name, last[name], folder / "bytecode")
            if number >= 0:
                seen[name].append(answer)
    rows = [
        _row(seen["real"], "numpy_cpu", "importing NumPy, CPU", "s"),
        _row(seen["real"], "import_cpu", "importing tokenloom after it, CPU", "s"),
        _row(seen["real"], "load_cpu", "  then the first use of tl.open, CPU", "s"),
    ]
    for name, words in names.items():
        opened = _row(seen[name], "open_cpu", f"opening {words}, CPU", "s")
        wall = _row(seen[name], "open_wall", "  the same, wall", "s")
        memory = _row(seen[name], "open_peak", "  the same, growth of the peak of memory", "MB")
        if name == "virtual":
            opened, wall = want(opened, "<=", 0.1), want(wall, "<=", 0.1)
            memory = want(memory, "<=", 100)
        rows += [opened, wall, memory]
        rows.append(_row(seen[name], "bounds_cpu", "  then the bounds of one document, CPU", "ms"))
    manifest = (folder / "virtual" / "manifest-000001.json").stat().st_size
    files = sum(len(found) for _, _, found in os.walk(folder / "virtual"))
    large = (
        f"The large store has {files:,} files, a manifest of {manifest / MB:.2f} MB; its shards "
        "are one and the same on disk."
    )
    turns = f"{rounds} fresh processes for each store, taking turns; directory entries are warm."
    return [Table(title="open", command=command, rows=rows, notes=[large, turns])]


def _row(samples: list[dict[str, float]], key: str, what: str, unit: str) -> Row:
    scale = {"s": 1.0, "ms": 1e3, "MB": 1 / MB}[unit]
    values = [sample[key] * scale for sample in samples]
    return Row(
        what=what,
        value=min(values),
        median=statistics.median(values),
        unit=unit,
        samples=tuple(values),
    )


def _ask(store: Path, document: int, bytecode: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.probe", str(store), str(document)]
    here = Path(__file__).resolve().parent.parent
    # compiled modules are kept, as in any installation, but in a place that is removed
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        command,
        cwd=here,
        env={**kept, "PYTHONPYCACHEPREFIX": str(bytecode)},
        check=True,
        capture_output=True,
        text=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer
