"""Run files: what reading, checking and loading one of a hundred sources costs.

`tokenloom check` should answer before anyone loses patience, whatever it is asked about: it opens a
hundred stores and plans a hundred packings, and reads no token.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tokenloom as tl
from benchmarks.clock import Table, amount, cost, interleave, want
from tokenloom.config import check
from tokenloom.runfiles.text import read_settings
from tokenloom.testing import write_store

__all__ = ["SIZES", "run"]

# size → (sources, documents of each, rounds)
SIZES = {
    "tiny": (3, 20, 1),
    "small": (100, 200, 5),
    "default": (100, 1_000, 15),
    "full": (100, 5_000, 31),
}
LIMIT = 0.5  # seconds


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of run files."""
    sources, documents, rounds = SIZES[size]
    path = _written(folder, sources, documents)
    done: dict[str, Callable[[], object]] = {
        "reading the YAML": lambda: read_settings(path),
        "`tokenloom check`, without starting Python": lambda: check(path),
        "`tl.load`": lambda: tl.load(path),
    }
    timings = interleave(done, rounds)
    rows = [cost(f"{name}, CPU", timings[name], 1, "s") for name in done]
    rows[1] = want(rows[1], "<=", LIMIT)
    found = check(path).run
    assert found is not None
    rows.append(amount("tokens that it reads", found.counters().bytes, "bytes"))
    notes = [f"{sources} sources, packed and shuffled by blocks, of {documents:,} documents each."]
    return [Table(title="run files", command=command, rows=rows, notes=notes)]


def _written(folder: Path, sources: int, documents: int) -> Path:
    """A run file and its stores."""
    texts = [[7] * (1 + n % 300) for n in range(documents)]
    lines = ["seed: 7", "seq_len: 512", "sources:"]
    for number in range(sources):
        write_store(folder / f"stores/s{number}", [[*texts, [number % 1000]]])
        lines.append(
            f"  s{number}: {{store: stores/s{number}, pack: {{}}, shuffle: block, epochs: endless}}"
        )
    weights = ", ".join(f"s{number}: {1 + number % 7}" for number in range(sources))
    lines += [f"mix: {{rule: weights, weights: {{{weights}}}}}", "loader: {batch_size: 64}"]
    path = folder / "run.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path
