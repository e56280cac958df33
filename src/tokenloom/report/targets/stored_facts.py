"""What a report says about a store, found out once, at a bounded cost for a store of any size.

One idea: lengths, duplicates and packing are exact where that takes less than a second, and come
from keyed stretches of documents where it would not; what comes from a sample says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.plan_packing import plan_packing
from tokenloom.api.store import Store
from tokenloom.errors import TokenloomError
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.foreign.guarded import foreign_bytes, guard_lines
from tokenloom.layout.pack.compare import PackingChoice
from tokenloom.random.keys import key
from tokenloom.random.permute import permutations
from tokenloom.store.derived.length_counts import LengthCounts, count_lengths
from tokenloom.store.handles import lazy

__all__ = ["FRAME", "StoreFacts"]

Int64 = NDArray[np.int64]

FRAME = 2048  # tokens of the rows that a store is judged by

EXACT_LENGTHS = 1 << 25  # documents whose lengths are all counted

EXACT_PACKING = 1 << 18  # documents that are packed to see what packing costs

EXACT_HASHES = 1 << 22  # documents whose hashes are compared

STRETCHES, STRETCH = 64, 1 << 12  # of a sample: how many, and documents of each


class StoreFacts:
    """A store, and what is known about it.

    Args:
        store: the store.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def foreign(self) -> str | None:
        """The format of files that are not ours."""
        reader = self.store.reader
        return reader.inside.described.kind if isinstance(reader, ForeignReader) else None

    @property
    def is_sealed(self) -> bool:
        """Whether every chunk has a checksum."""
        reader = self.store.reader
        return not isinstance(reader, ForeignReader) or reader.inside.is_sealed

    @property
    def guards(self) -> list[str]:
        """What guards its bytes, a sentence each."""
        reader = self.store.reader
        if isinstance(reader, ForeignReader):
            return guard_lines(reader)
        return ["sealed: every chunk is compared with its crc32c when it is first read"]

    @property
    def bytes(self) -> int:
        """Bytes of its files."""
        reader, manifest = self.store.reader, self.store.reader.manifest
        if isinstance(reader, ForeignReader):
            return foreign_bytes(reader)
        shards = sum(sum(shard.files.values()) for shard in manifest.shards)
        return shards + sum(file.bytes for file in manifest.files.values())

    @lazy
    def metadata_keys(self) -> list[str]:
        """What is kept about a document, beside its tokens: names only."""
        if not self.store.num_documents:
            return []
        return sorted(self.store.reader.metadata(0))

    @property
    def is_sampled(self) -> bool:
        """Whether lengths come from a sample."""
        return self.store.num_documents > EXACT_LENGTHS

    @lazy
    def lengths(self) -> LengthCounts:
        """Lengths of its documents, or of a sample of them."""
        if not self.is_sampled:
            return count_lengths(self.store.reader)
        length, documents = np.unique(self.some_lengths, return_counts=True)
        return LengthCounts(length, documents)

    @lazy
    def some_lengths(self) -> Int64:
        """The lengths of keyed stretches of documents, in their order; of all if there are few."""
        total = self.store.num_documents
        if total <= STRETCHES * STRETCH:
            return np.asarray(self.store.lengths)
        stretches = total // STRETCH
        order = permutations(stretches, [key(0, "report", "lengths")])
        chosen = np.sort(order.forward(np.arange(STRETCHES, dtype=np.uint64)).astype(np.int64))
        found = []
        for first in (chosen * STRETCH).tolist():
            start, stop = self.store.reader.bounds(np.arange(first, first + STRETCH))
            found.append(stop - start)
        return np.concatenate(found)

    @lazy
    def duplicates(self) -> list[int] | str:
        """Documents in each group of equal ones; or why that is not known."""
        documents = self.store.num_documents
        if documents > EXACT_HASHES:
            return (
                f"The hashes of {documents:,} documents take longer to compare than a report may. "
                "store.duplicates() lists equal documents."
            )
        try:
            return [len(group) for group in self.store.duplicates()]
        except TokenloomError as error:
            return str(error)

    @property
    def packs_all(self) -> bool:
        """Whether packing was planned for all documents."""
        return self.store.num_documents <= EXACT_PACKING

    @lazy
    def packings(self) -> dict[int, tuple[PackingChoice, ...]]:
        """What packing costs, by the length of rows; of a sample for a large store."""
        if not self.store.num_tokens:
            return {}
        source: Any = self.store if self.packs_all else self.some_lengths
        return {length: tuple(_plan(source, length)) for length in (FRAME // 4, FRAME, 4 * FRAME)}

    @property
    def windows(self) -> int:
        """Rows of FRAME tokens that are cut without regard to documents."""
        return self.store.num_tokens // FRAME


def _plan(source: Any, length: int) -> tuple[PackingChoice, ...]:
    strategies = ("one_doc", "sequential", "greedy", "best_fit_decreasing")
    plan = plan_packing(source, seq_len=[length], strategy=strategies)
    found: tuple[PackingChoice, ...] = tuple(plan.choices)  # type: ignore[union-attr]
    return found
