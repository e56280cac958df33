"""Opening a store: what it costs before the first token, however large the store is.

Every figure comes from a fresh process (`python -m benchmarks.opening STORE DOCUMENT` is that
process), because a second opening would find modules, memory and the allocator warm.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
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
    for _ in range(rounds):
        for name in names:
            seen[name].append(_ask(folder / name, last[name]))
    rows = [_row(seen["real"], "import_cpu", "importing tokenloom, CPU", "s")]
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
    notes = [
        f"The large store has {files:,} files and a manifest of {manifest / MB:.2f} MB; all but the "
        "first and last shard are holes of the right size.",
        f"{rounds} fresh processes for each store, taking turns; directory entries are warm.",
    ]
    return [Table(title="open", command=command, rows=rows, notes=notes)]


def _row(samples: list[dict[str, float]], key: str, what: str, unit: str) -> Row:
    scale = {"s": 1.0, "ms": 1e3, "MB": 1 / MB}[unit]
    values = [sample[key] * scale for sample in samples]
    return Row(what=what, value=min(values), median=statistics.median(values), unit=unit)


def _ask(store: Path, document: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.opening", str(store), str(document)]
    here = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=here, check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _probe(path: str, document: int) -> dict[str, float]:
    """What the fresh process measures, in seconds and bytes."""
    start = time.process_time()
    import numpy as np

    import tokenloom as tl

    imported, memory = time.process_time(), _peak()
    wall, cpu = time.perf_counter(), time.process_time()
    store = tl.open(path)
    opened_wall, opened = time.perf_counter() - wall, time.process_time() - cpu
    grown = _peak() - memory
    cpu = time.process_time()
    store.reader.bounds(np.array([document]))
    return {
        "import_cpu": imported - start,
        "open_cpu": opened,
        "open_wall": opened_wall,
        "open_peak": grown,
        "bounds_cpu": time.process_time() - cpu,
    }


def _peak() -> int:
    """The most memory that this process has held so far, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:  # not Linux: the unit is bytes on macOS
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(_probe(sys.argv[1], int(sys.argv[2]))))
