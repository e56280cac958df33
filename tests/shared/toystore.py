"""Small stores written straight through the writer, with the documents they hold."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

import tokenloom as tl
from tokenloom import testing


def write_store(root: Path, shards, *, inner=16, chunk_tokens=64, **options) -> tl.Store:
    """As `tokenloom.testing.write_store`, in chunks small enough that everything crosses some."""
    return testing.write_store(root, shards, inner=inner, chunk_tokens=chunk_tokens, **options)


def toy(root: Path, shards, **options) -> tl.Store:
    hints = {
        k: options.pop(k) for k in ("verify", "gap_bytes", "cap_bytes", "source") if k in options
    }
    write_store(root, shards, **options)
    return tl.open(root, cache_bytes=1 << 20, **hints)


def random_shards(seed: int, shards: int = 3, documents: int = 12, longest: int = 60, vocab=1000):
    rng = np.random.Generator(np.random.PCG64(seed))
    return [
        [rng.integers(0, vocab, rng.integers(0, longest)).tolist() for _ in range(documents)]
        for _ in range(shards)
    ]


@contextlib.contextmanager
def keep_plans(folder, **limits):
    """A cache folder of a test's own, where plans of the smallest stores are kept."""
    worth = ("min_cached_packing_documents", "min_cached_cost_items", "min_cached_trained_rows")
    with pytest.MonkeyPatch.context() as patch, testing.tiny(**dict.fromkeys(worth, 1), **limits):
        patch.setenv("TOKENLOOM_CACHE_DIR", str(folder))
        yield folder
