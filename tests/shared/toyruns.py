"""Small runs of every kind over one small store, and what is in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tokenloom as tl
from tokenloom.testing import write_store

SEQ_LEN = 8
FIELDS = (
    "tokens",
    "labels",
    "loss_mask",
    "loss_weights",
    "segment_ids",
    "position_ids",
    "attention_mask",
    "document_starts",
    "continues",
    "cu_seqlens",
)


def toy_store(root: Path, *, rows: int = 37, weights: bool = False, **hints) -> tl.Store:
    """A store of that many rows of 8 tokens and 3 tokens more, in documents of 0 to 20 tokens."""
    rng = np.random.Generator(np.random.PCG64(rows))
    left, documents = rows * SEQ_LEN + 3, []
    while left:
        documents.append(rng.integers(1, 1000, min(left, int(rng.integers(0, 21)))).tolist())
        left -= len(documents[-1])
    half = len(documents) // 2
    columns = {"loss_weights": ("float32", lambda ids: ids % 3 / 2)} if weights else None
    write_store(
        root, [documents[:half], documents[half:]], inner=16, chunk_tokens=32, columns=columns
    )
    return tl.open(root, **({"cache_bytes": 1 << 20} | hints))


KINDS = {
    "stored": lambda ds: ds,
    "full": lambda ds: ds.shuffle(),
    "linear": lambda ds: ds.shuffle(perm_type="linear"),
    "levanter": lambda ds: ds.shuffle(perm_type="levanter"),
    "era": lambda ds: ds.shuffle(10),
    "block": lambda ds: ds.block_shuffle(window_blocks=2),
    "lanes 2": lambda ds: ds.block_shuffle(window_blocks=2, lanes=2),
    "lanes 3": lambda ds: ds.block_shuffle(window_blocks=1, lanes=3),
    "lanes 5": lambda ds: ds.block_shuffle(io_block_size=3, window_blocks=1, lanes=5),
}


def toy_run(store: tl.Store, kind: str = "full", epochs: int | None = 3, **layout) -> tl.Dataset:
    """A run of one of the `KINDS`, seed 7."""
    return KINDS[kind](store.windows(SEQ_LEN, **layout)).seed(7).epochs(epochs)


def mixed_run(folder: Path) -> tl.Dataset:
    """A mix of packed rows with filler and windows, both with loss weights; endless."""
    web, chat = (
        toy_store(folder / name, rows=n, weights=True) for name, n in (("a", 37), ("b", 23))
    )
    packed = web.pack(SEQ_LEN).shuffle().epochs(None)
    windows = chat.windows(SEQ_LEN).block_shuffle(window_blocks=2).epochs(None)
    return tl.mix({"web": packed, "chat": windows}, weights={"web": 2, "chat": 1}).seed(7)


def ranks_of(dataset: tl.Dataset, batch_size, world: int, **options) -> list[tl.Loader]:
    return [tl.Loader(dataset, batch_size, rank, world, **options) for rank in range(world)]


def joined(ranks: list[tl.Loader]) -> tuple[list[int], np.ndarray] | None:
    """(index of each row, tokens) of the next step of all ranks; None when all have ended."""
    batches = [next(rank, None) for rank in ranks]
    if all(batch is None for batch in batches):
        return None
    index = [i for batch in batches for i in batch.index.reshape(-1).tolist()]
    return index, np.concatenate([batch.tokens for batch in batches])


def same(a: tl.Batch, b: tl.Batch) -> bool:
    """Whether two batches agree in every array."""
    if a.index.tolist() != b.index.tolist():
        return False
    pairs = [(getattr(a, name), getattr(b, name)) for name in FIELDS]
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


def close_all(loaders) -> None:
    for loader in loaders:
        loader.close()
