"""Finished shards of a conversion against the source as it is when the conversion is resumed.

One idea: a sample does not prove that the source is still the one that the finished shards were
copied from, and no identity knows metadata. So before a resumed conversion goes on, what nothing
else proves is read once more on both sides and compared; a store that is half of one source and
half of another is never published.

Cost: one read of the finished shards and of the same part of the source, a million tokens at a
time. Our own stores never change, so they are not compared.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tokenloom.api.store import Store
from tokenloom.errors import StoreCorrupt
from tokenloom.exchange.copied import Copying, document_lines
from tokenloom.exchange.portions import Portion, portions, values_of
from tokenloom.remote.source import source_of
from tokenloom.store import format as fmt
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import FetchRules
from tokenloom.store.reader import Reader

__all__ = ["refuse_mixture"]

CACHE_BYTES = 16 << 20  # of blocks of the finished shards


def refuse_mixture(job: Copying, finished: fmt.Manifest, tick: Callable[[int], None]) -> None:
    """Compare finished shards with the source, as far as its identity leaves them open.

    Args:
        job: the conversion.
        finished: a manifest of the finished shards alone.
        tick: told the tokens of each step.

    Raises:
        StoreCorrupt: the source is not what they were copied from.
    """
    # the digest of the copy is compared with a full identity when all is copied
    names = ["input_ids", *job.store.columns] if job.is_sample else []
    copy = _opened(job, finished)
    for portion in portions(copy.reader):
        if not _is_same(job, copy, portion, names):
            first, last = portion.numbers[[0, -1]].tolist()
            raise StoreCorrupt(
                f"{job.store.path}: it was changed after a part of it was copied: documents "
                f"{first:,} to {last:,} are not those in the finished shards of {job.root}. "
                "Nothing is published. Restore it, or remove those shards (`tokenloom gc "
                "--unfinished`) and convert it again."
            )
        tick(portion.stop - portion.start)


def _opened(job: Copying, finished: fmt.Manifest) -> Store:
    """The finished shards as a store, which nobody else sees."""
    cache, rules = BlockCache(CACHE_BYTES), FetchRules()
    reader = Reader(
        finished, source_of(job.root), path=str(job.root), cache=cache, identity="", rules=rules
    )
    return Store(reader, job.root)


def _is_same(job: Copying, copy: Store, portion: Portion, names: list[str]) -> bool:
    """Whether some documents are the same on both sides; either identity has their lengths."""
    sides = job.store, copy
    for name in names:
        read = (values_of(one.reader, portion, name) for one in sides)
        if not all(np.array_equal(ours, theirs) for ours, theirs in zip(*read, strict=True)):
            return False
    lines = [document_lines(one, portion.numbers) for one in sides] if job.described else [[], []]
    return lines[0] == lines[1]
