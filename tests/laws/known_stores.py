"""Stores whose documents are known: lists of ids, and values of a loss column."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import tokenloom as tl
from tokenloom.testing import numpy_alone

SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 12, 16, 17, 23, 30)
SMALL = {"chunk_tokens": 64, "shard_tokens": 90, "inner": 16}  # several shards, many checksums


@dataclass(frozen=True, repr=False)
class Known:
    """A store, its documents, and the loss weights of their tokens if it stores any."""

    store: tl.Store
    documents: list[list[int]]
    weights: list[list[float]] | None = None

    @property
    def tokens(self) -> int:
        return sum(map(len, self.documents))


class Stores(dict[str, Known]):
    """Name → store; a failure prints the names only. Tests may write into `folder`.

    `numpy` are the same stores, to be opened and read without the compiled loops.
    """

    folder: Path
    numpy: Stores

    def __repr__(self) -> str:
        return f"Stores({', '.join(self)})"


def drawn_documents(seed: int, count: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(1, 900) for _ in range(draw.choice(SIZES))] for _ in range(count)]


def build(folder: Path, documents, *, weights=None, first=0, **options) -> tl.Store:
    records = [{"input_ids": ids, "id": i % 9} for i, ids in enumerate(documents, first)]
    for record, values in zip(records, weights or [], strict=False):
        record["loss_weights"] = values
    settings = {"tokenizer": None, "vocab_size": 1000, "id_key": "id", "progress": False}
    return tl.build(records, folder, **{**settings, **SMALL, **options})


def make_known(folder: Path) -> Stores:
    """All stores, and once more without the compiled loops."""
    known = _made(folder / "usual")
    with numpy_alone():
        known.numpy = _made(folder / "numpy")
    return known


def _made(folder: Path) -> Stores:
    """Name → store. `first`, `second`, `third` are one store that grew twice."""
    grown = drawn_documents(5, 25)
    known = Stores()
    known.folder = folder
    folder.mkdir()
    for name, start, stop in (("first", 0, 14), ("second", 14, 19), ("third", 19, 25)):
        store = build(folder / "grown", grown[start:stop], first=start, append=start > 0)
        known[name] = Known(store, grown[:stop])
    other = drawn_documents(6, 11)
    known["other"] = Known(build(folder / "other", other), other)
    weighted = drawn_documents(7, 17)
    weights = [[(token % 4) / 2 for token in ids] for ids in weighted]
    store = build(folder / "weighted", weighted, weights=weights)
    known["weighted"] = Known(store, weighted, weights)
    return known
