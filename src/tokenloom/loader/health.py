"""What a loader has done: numbers for people, and a flat dict for loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenloom.store.cache import CacheStats
from tokenloom.store.fetch import ReadCounters

__all__ = ["LoaderStats", "epoch_of", "metrics_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderStats:
    """What a loader has done since it was made.

    Attributes:
        steps, examples: delivered to this rank.
        cells: of these examples, filler included: examples × seq_len.
        seconds: time since the first step was requested.
        wait_seconds: how much of that time the caller waited for a batch.
        untrained: steps found to have no trained token on any rank, with ``untrained="zero"``.
        reads: reads of the stores, by all their users.
        cache: use of the block cache, by all its users.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     with tl.Loader(store.windows(2), batch_size=2) as loader:
    ...         batch = next(loader)
    ...         stats = loader.stats()
    ...     stats.steps, stats.examples, stats.cells, stats.wait_seconds <= stats.seconds
    (1, 2, 4, True)
    """

    steps: int
    examples: int
    cells: int
    seconds: float
    wait_seconds: float
    untrained: int
    reads: ReadCounters
    cache: CacheStats

    @property
    def cells_per_second(self) -> float:
        """Cells delivered per second, filler included."""
        return self.cells / self.seconds if self.seconds else 0.0


def epoch_of(sources: Sequence[Mapping[str, Any]]) -> int:
    """Complete epochs of the source that has the fewest, of the `sources` of a state."""
    return min(int(one["epochs"]) for one in sources)


def metrics_of(prefix: str, state: Mapping[str, Any], stats: LoaderStats) -> dict[str, float]:
    """Position, rates and what each source has given, under one prefix.

    Tokens are those of documents; the cells of a frame, filler included, are counted as `cells`.

    Args:
        prefix: put before every name.
        state: the position, as `Loader.state_dict` tells it.
        stats: what the loader has done.
    """
    found: dict[str, float] = {
        "step": state["step"],
        "examples": state["examples"],
        "epoch": epoch_of(state["sources"]),
        "tokens": sum(one["tokens"] for one in state["sources"]),
        "cells": stats.cells,
        "cells_per_second": stats.cells_per_second,
        "wait_share": stats.wait_seconds / stats.seconds if stats.seconds else 0.0,
        "untrained_steps": stats.untrained,
        "read_bytes": stats.reads.bytes,
        "reads": stats.reads.read_ops,
    }
    for one in state["sources"]:
        for name in ("rows", "tokens", "epochs"):
            found[f"{one['name']}/{name}"] = one[name]
    return {prefix + name: value for name, value in found.items()}
