"""Which documents of a store the sources of a run choose together.

One idea: two sources may share a store, so what is left out, and what comes twice, is a question to
all of them at once. Documents are marked in one array for each store that several sources choose
from; a store that one source shows, or any source shows whole, needs no such array.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.documents.line import Line
from tokenloom.store.reader import Reader

__all__ = ["StoreUse", "store_uses"]

MARKED = 1 << 26  # documents of a store that are marked one by one, a byte each


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class StoreUse:
    """What some sources choose of one store, or of stores with the same content.

    Attributes:
        reader: the store.
        sources: names of the sources.
        paths: where their stores are; several for copies of a store.
        chosen: whether each document is chosen [documents]; None: all of them, or not looked at.
        documents, tokens: of the store, chosen by at least one source.
        shared: documents that more than one of them choose.
        is_exact: whether documents were marked; if not, `shared` is the least that it can be.
    """

    reader: Reader
    sources: tuple[str, ...]
    paths: tuple[str, ...]
    chosen: NDArray[np.bool_] | None
    documents: int
    tokens: int
    shared: int
    is_exact: bool = True

    @property
    def left_documents(self) -> int:
        """Documents that no source chooses."""
        return max(0, self.reader.manifest.documents - self.documents)

    @property
    def left_tokens(self) -> int:
        """Tokens of these."""
        return max(0, self.reader.manifest.tokens - self.tokens)


def store_uses(run: Dataset) -> list[StoreUse]:
    """What the sources of a run choose of each of their stores, in the order of the sources."""
    lines: dict[str, dict[str, Line]] = defaultdict(dict)
    for one in run.run.sources:
        line = one.layout.line
        lines[line.reader.manifest.digest][one.name] = line
    return [
        _use(some, tuple(dict.fromkeys(run.sources[name].path for name in some)))
        for some in lines.values()
    ]


def _use(lines: dict[str, Line], paths: tuple[str, ...]) -> StoreUse:
    every = list(lines.values())
    reader, names = every[0].reader, tuple(lines)
    documents, tokens = reader.manifest.documents, reader.manifest.tokens
    whole = [line for line in every if line.documents == documents and line.tokens == tokens]
    if len(every) == 1 and (whole or documents > MARKED):
        (line,) = every
        chosen, held = min(documents, line.documents), min(tokens, line.tokens)
        return StoreUse(
            reader=reader,
            sources=names,
            paths=paths,
            chosen=None,
            documents=chosen,
            tokens=held,
            shared=0,
        )
    if documents > MARKED or (len(whole) > 1 and len(whole) == len(every)):
        total = sum(line.documents for line in every)
        return StoreUse(
            reader=reader,
            sources=names,
            paths=paths,
            chosen=None,
            documents=documents if whole else min(documents, total),
            tokens=tokens if whole else min(tokens, sum(line.tokens for line in every)),
            shared=documents if len(whole) > 1 else max(0, total - documents),
            is_exact=len(whole) > 1,
        )
    times, held = _marked(every, documents)
    return StoreUse(
        reader=reader,
        sources=names,
        paths=paths,
        chosen=times > 0,
        documents=int((times > 0).sum()),
        tokens=held,
        shared=int((times > 1).sum()),
    )


def _marked(lines: Sequence[Line], documents: int) -> tuple[NDArray[np.uint8], int]:
    """How many of the lines have each document, at most 255, and tokens of those that one has."""
    times, tokens = np.zeros(documents, np.uint8), 0
    for line in lines:
        numbers, edges = line.bounds(0, line.documents)
        own, first = np.unique(numbers, return_index=True)
        tokens += int(np.diff(edges)[first][times[own] == 0].sum())
        times[own] = np.minimum(times[own], 254) + 1
    return times, tokens
