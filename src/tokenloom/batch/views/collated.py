"""A batch as a list of rows, for loaders that collate: a plain ``DataLoader(run, batch_size=8)``.

One idea: torch asks a dataset for several items at once (`__getitems__`) and gives the list to a
collate function. `Rows` is such a list, and it still is the batch that it was made from. So
`default_collate`, which looks up how to join the type of the first item, finds `joined` and gets
all rows in one piece; any other collate function sees a list of mappings, one for each row.

The dict also holds what the contract "hf" puts beside its arrays (`use_cache=False`), so that
``model(**batch)`` of transformers keeps the documents of a row apart: with a cache it ignores the
positions that tell them apart.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from tokenloom.batch.batch import Batch
from tokenloom.batch.views.contracts import contract_of, to_torch
from tokenloom.batch.views.named import KEYS, WIDE


class RowOf(Mapping[str, Any]):
    """One row of a batch: `input_ids`, `labels`, … as arrays of cells [S]."""

    def __init__(self, batch: Batch, number: int) -> None:
        self._batch, self._number = batch, number

    def __getitem__(self, name: str) -> Any:
        value = self._batch[name][self._number]
        return value.astype(np.int64) if name in WIDE else value

    def __iter__(self) -> Iterator[str]:
        return iter(KEYS)

    def __len__(self) -> int:
        return len(KEYS)

    def __repr__(self) -> str:
        return f"RowOf({', '.join(KEYS)}; index {self._batch.index[self._number]})"


class Rows(Sequence[RowOf]):
    """The rows of a batch, one by one or together."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        _register()

    @overload
    def __getitem__(self, number: int) -> RowOf: ...

    @overload
    def __getitem__(self, number: slice) -> list[RowOf]: ...

    def __getitem__(self, number: int | slice) -> RowOf | list[RowOf]:
        every = range(len(self.batch))[number]
        if isinstance(every, range):
            return [RowOf(self.batch, one) for one in every]
        return RowOf(self.batch, every)

    def __len__(self) -> int:
        return len(self.batch)


def joined(rows: Sequence[RowOf], *, collate_fn_map: Any = None) -> dict[str, Any]:
    """Rows as one dict of torch tensors and `use_cache`; `default_collate` calls it."""
    if isinstance(rows, Rows):
        made = rows.batch.to_numpy()
        arrays = {name: _wide(name, made[name]) for name in KEYS}
    else:
        arrays = {name: np.stack([row[name] for row in rows]) for name in KEYS}
    return contract_of("hf").complete(to_torch(arrays))


def _wide(name: str, value: Any) -> Any:
    return np.asarray(value, np.int64) if name in WIDE else value


def _register() -> None:
    """Tell torch's `default_collate` how rows are joined, if torch is there to ask."""
    collate = sys.modules.get("torch.utils.data._utils.collate")
    if collate is not None:
        collate.default_collate_fn_map.setdefault(RowOf, joined)
