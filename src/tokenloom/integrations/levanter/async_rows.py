"""A run as a dataset of Levanter: ``await dataset.get_batch(indices)``.

One idea: Levanter's loader keeps no state but a step and asks a dataset for indices, and an index
is all that a run needs. So a run whose order is Levanter's (``shuffle(perm_type="levanter")``, with
the seed of its key) goes on where a run of Levanter stopped, at the same index.

Nothing of Levanter is imported: its datasets are told by their methods. `make` turns a row into its
example::

    from levanter.data.text import GrugLmExample

    def make(row):
        return GrugLmExample.causal(
            row.tokens, loss_weight=row.loss_weight, segment_ids=row.segment_ids
        )

    loader = DataLoader(async_dataset(run, make), batch_size)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.api.origin import settings_of_file
from tokenloom.errors import ConfigError


class LmRow(NamedTuple):
    """An example for Levanter.

    Attributes:
        tokens: int32 [S].
        loss_weight: weight of predicting token i + 1 at cell i, 0 at the last cell; float32 [S].
        segment_ids: 0, 1, … for the documents of the row, -1 for filler; int32 [S].
        example: its index in the run.
    """

    tokens: NDArray[np.int32]
    loss_weight: NDArray[np.float32]
    segment_ids: NDArray[np.int32]
    example: int


class AsyncRows:
    """What Levanter calls an `AsyncDataset`; made by `async_dataset`.

    Args:
        dataset: the run.
        make: makes an item of a row.
    """

    def __init__(self, dataset: Dataset, make: Callable[[LmRow], Any]) -> None:
        self.dataset, self._make = dataset, make

    def rows(self, indices: Sequence[int]) -> list[Any]:
        """The items of these indices, in this order, read together."""
        batch = self.dataset.batch(indices)
        segment_ids = batch.segment_ids - np.int32(1)
        rows = zip(batch.tokens, batch.loss_weights, segment_ids, batch.index.tolist(), strict=True)
        return [self._make(LmRow(*row)) for row in rows]

    async def get_batch(self, indices: Sequence[int]) -> list[Any]:
        """The same without blocking other tasks."""
        return await asyncio.to_thread(self.rows, indices)

    async def getitem_async(self, index: int) -> Any:
        """One item."""
        return (await self.get_batch([index]))[0]

    def is_finite(self) -> bool:
        """Whether the run has an end."""
        return self.dataset.is_finite

    async def async_len(self) -> int:
        """Examples of the run."""
        return len(self.dataset)

    def __repr__(self) -> str:
        return f"AsyncRows({self.dataset.fingerprint[:12]})"


@settings_of_file("async_dataset", instead={"batch_size": "Levanter's loader has its own"})
def async_dataset(dataset: Dataset, make: Callable[[LmRow], Any] | None = None) -> AsyncRows:
    """A run as Levanter's datasets are: `get_batch`, `async_len`, `is_finite`.

    Args:
        dataset: the run.
        make: makes Levanter's example of a row; None: items are the rows themselves.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defg"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     (row,) = asyncio.run(async_dataset(store.pack(8)).get_batch([0]))
    ...     row.segment_ids.tolist(), row.loss_weight.tolist()
    ([0, 0, 0, 0, 1, 1, 1, -1], [1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    """
    dataset = dataset_of("async_dataset", dataset)
    for name, source in dataset.sources.items():
        if source.render.label_layout != "aligned":
            raise ConfigError(
                f"async_dataset: source {name!r} has label_layout "
                f"{source.render.label_layout!r}; Levanter takes the next token of a row for the "
                "target of each cell and has none for the last. Use layouts without lookahead, or "
                "run.render(label_layout='aligned')."
            )
    return AsyncRows(dataset, _itself if make is None else make)


def _itself(row: LmRow) -> LmRow:
    return row
