"""The documents that every writer writes, and what they print of them."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "consumers"))
from told import tell

__all__ = ["documents", "tell"]


def documents(vocab=50_000, eos=0):
    """Thirty documents that end with EOS, which is nowhere else in them."""
    rng = np.random.Generator(np.random.PCG64(11))
    lengths = rng.integers(1, 200, 30)
    return [[*rng.integers(1, vocab, length).tolist(), eos] for length in lengths]
