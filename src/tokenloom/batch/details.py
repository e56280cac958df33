"""What is known about the rows of a batch in addition to their tokens.

One idea: a batch asks its `Details` for spans, tiles and stored weights when a field needs them. A
fresh batch has the rows of a plan (`tokenloom.batch.render.RowsOf`), which may have to be read; the
rows of one kind have some of these (`SomeRows`), and a copy has them in memory (`KnownRows`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.batch.tiles import Tiles, tile
from tokenloom.errors import ConfigError
from tokenloom.layout.spans import Spans
from tokenloom.store.handles import lazy
from tokenloom.store.reader import Reader

__all__ = ["Details", "KnownRows", "OfBatch", "SomeRows"]

Int64 = NDArray[np.int64]

Float32 = NDArray[np.float32]


class _Facts(Protocol):
    """The part of `Details` that is looked up; all else follows from it."""

    def spans(self) -> Spans:
        """Which part of which document is where."""

    def weights(self) -> Float32 | None:
        """The stored loss weight of every cell [B, width]; None if the store has none."""

    def metadata(self) -> list[list[dict[str, Any]]]:
        """The metadata of the documents of each row."""

    def readers(self) -> Mapping[str, Reader]:
        """The store of each source, by name; none of a copy that came without its stores."""


class Details(_Facts, Protocol):
    """What is known about the rows of a batch in addition to their tokens."""

    def tiles(self, width: int) -> Tiles:
        """The first `width` cells of every row, as tiles."""


class KnownRows(NamedTuple):
    """The `Details` of a copied batch, without a store."""

    known_spans: Spans
    known_weights: Float32 | None

    def spans(self) -> Spans:
        """See `Details`."""
        return self.known_spans

    def tiles(self, width: int) -> Tiles:
        """See `Details`."""
        return tile(self.known_spans, width)

    def weights(self) -> Float32 | None:
        """See `Details`."""
        return self.known_weights

    def metadata(self) -> list[list[dict[str, Any]]]:
        """See `Details`."""
        raise ConfigError(
            "metadata: this batch is a copy without its store. Read batch.metadata before it is "
            "copied or pickled, or ask the store: store.metadata(document)."
        )

    def readers(self) -> Mapping[str, Reader]:
        """See `Details`."""
        return {}


class OfBatch(NamedTuple):
    """What a batch knows of which some rows are taken: what it has looked up is kept."""

    batch: Any

    def spans(self) -> Spans:
        """See `Details`."""
        spans: Spans = self.batch.spans
        return spans

    def weights(self) -> Float32 | None:
        """See `Details`."""
        weights: Float32 | None = self.batch._stored_weights
        return weights

    def metadata(self) -> list[list[dict[str, Any]]]:
        """See `Details`."""
        found: list[list[dict[str, Any]]] = self.batch.metadata
        return found

    def readers(self) -> Mapping[str, Reader]:
        """See `Details`."""
        found: Mapping[str, Reader] = self.batch._details.readers()
        return found


class SomeRows:
    """The `Details` of some rows of a batch."""

    def __init__(self, details: _Facts, rows: Int64) -> None:
        self._details, self._rows = details, rows

    @lazy
    def _spans(self) -> Spans:
        return self._details.spans().take(self._rows)

    def spans(self) -> Spans:
        """See `Details`."""
        return self._spans

    def tiles(self, width: int) -> Tiles:
        """See `Details`."""
        return tile(self._spans, width)

    def weights(self) -> Float32 | None:
        """See `Details`."""
        found = self._details.weights()
        return None if found is None else found[self._rows]

    def metadata(self) -> list[list[dict[str, Any]]]:
        """See `Details`."""
        every = self._details.metadata()
        return [every[row] for row in self._rows.tolist()]

    def readers(self) -> Mapping[str, Reader]:
        """See `Details`."""
        return self._details.readers()
