"""The loader itself, for `tokenloom bench data-loading`: steps as a training loop takes them.

A run of ``steps x batch_size`` examples ends exactly there, so nothing is read ahead for later
steps. The store is opened for each measurement, with a block cache of its own: what one shuffle has
read does not help the next. Files stay in the page cache of the system.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.loader.loader import Loader

__all__ = ["LOADER", "loader_lines", "measure_loader"]

LOADER = (
    "examples",
    "examples/s",
    "tokens/s",
    "p50_ms",
    "p95_ms",
    "reads",
    "bytes",
    "cache_hits",
    "cache_misses",
)


def measure_loader(
    dataset: Dataset, *, steps: int, batch_size: int, prefetch: int
) -> dict[str, float]:
    """What some steps of a loader took and read.

    Args:
        dataset: of one epoch; more follow if the steps need them.
        steps: number of steps.
        batch_size: examples of a step.
        prefetch: batches that the loader keeps ready.

    Returns:
        A value for each name of `LOADER`. The quantiles are of the time of one step.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     found = measure_loader(store.windows(2).shuffle(), steps=3, batch_size=2, prefetch=0)
    >>> found["examples"], found["p50_ms"] <= found["p95_ms"]
    (6, True)
    """
    run = dataset.epochs(None).take(steps * batch_size)
    took = []
    with Loader(run, batch_size, rank=0, world_size=1, prefetch=prefetch) as loader:
        before = loader.stats()
        for _ in range(steps):
            begin = time.perf_counter()
            _ = next(loader).tokens
            took.append(time.perf_counter() - begin)
        after = loader.stats()
    elapsed = sum(took)
    return {
        "examples": after.examples,
        "examples/s": after.examples / elapsed,
        "tokens/s": after.cells / elapsed,  # windows have no filler
        "p50_ms": float(np.percentile(took, 50)) * 1e3,
        "p95_ms": float(np.percentile(took, 95)) * 1e3,
        "reads": after.reads.read_ops - before.reads.read_ops,
        "bytes": after.reads.bytes - before.reads.bytes,
        "cache_hits": after.cache.hits - before.cache.hits,
        "cache_misses": after.cache.misses - before.cache.misses,
    }


def loader_lines(perm_type: str, strategies: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The table of one perm_type, strategy by strategy."""
    yield f"Loader (perm_type={perm_type}; p50 and p95 of one step, an empty block cache)"
    yield f"| Strategy | {' | '.join(LOADER)} |"
    yield "|---|" + "---:|" * len(LOADER)
    for strategy, found in strategies.items():
        values = (
            f"{found[name]:,}" if isinstance(found[name], int) else f"{found[name]:,.4g}"
            for name in LOADER
        )
        yield f"| `{strategy}` | {' | '.join(values)} |"
