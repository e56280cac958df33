"""Small stores whose runs are audited, as they are or spoiled."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

import tokenloom as tl
from tokenloom.testing import write_store

SEQ_LEN = 8


def documents(seed: int, count: int, longest: int = 20) -> list[list[int]]:
    """Documents of 0 to `longest` tokens; 3 is the EOS of some of them."""
    rng = np.random.Generator(np.random.PCG64(seed))
    made = [rng.integers(4, 1000, int(rng.integers(0, longest + 1))).tolist() for _ in range(count)]
    return [one if number % 3 else [*one, 3] for number, one in enumerate(made)]


def store_of(root: Path, seed: int = 0, count: int = 40) -> tl.Store:
    """A store of two shards whose inner chunks hold 16 tokens."""
    made = documents(seed, count)
    half = count // 2
    shards = [made[:half], made[half:]]
    write_store(root, shards, inner=16, chunk_tokens=32)
    return tl.open(root, cache_bytes=1 << 20)


def quietly(make, *arguments):
    """What is made, without the warnings about small toys."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(*arguments)


def mixed(folder: Path) -> tl.Dataset:
    """A mix with an edit."""
    a, b = store_of(folder / "a", 0), store_of(folder / "b", 1)
    sources = {"a": a.windows(SEQ_LEN).shuffle(), "b": b.pack(SEQ_LEN).block_shuffle()}
    mix = quietly(lambda: tl.mix(sources, weights={"a": 2, "b": 1}).seed(5))
    return quietly(lambda: mix.edit(at=40, weights={"b": 3}, quarantine=[("a", 2)]).take(150))
