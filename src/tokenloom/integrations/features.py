"""One feature → one row of a batch: what the collator reads, checked, and never changed.

Filler that a feature brings along is told apart from tokens here, once: by its `attention_mask`,
or else, where it has no boundaries either, as the run of PAD at its end. If PAD is also EOS, the
first of that run is a real EOS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import InputError
from tokenloom.words import near_miss

__all__ = ["Row", "read_rows"]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """One row of a batch to be.

    Attributes:
        tokens: without filler.
        cells: how many cells the feature had, filler included.
        starts: first cell of each document as given; None if the feature does not say.
        overlaps: tokens of each that an earlier row has, too; None if it does not say.
        labels: one for each token, as given; None if there are none.
    """

    tokens: Int64
    cells: int
    starts: Int64 | None
    overlaps: Int64 | None
    labels: Int64 | None

    def repeated(self) -> list[tuple[int, int]]:
        """First cell and number of the tokens that an earlier row has, too."""
        if self.starts is None or self.overlaps is None:
            return []
        some = self.overlaps > 0
        return list(zip(self.starts[some].tolist(), self.overlaps[some].tolist(), strict=True))

    def cut(self, most: int) -> Row:
        """The first `most` tokens; boundaries behind them count for nothing later."""
        labels = None if self.labels is None else self.labels[:most]
        return replace(self, tokens=self.tokens[:most], cells=min(self.cells, most), labels=labels)


def read_rows(
    features: Sequence[Mapping[str, Any]],
    *,
    input_name: str,
    labels_name: str,
    pad: int | None,
    eos: int | None,
) -> list[Row]:
    """The rows of some features.

    Args:
        features: one mapping for each row; a value of None is a missing one.
        input_name: key of the tokens.
        labels_name: key of labels.
        pad: what filler consists of, None if nobody knows.
        eos: what ends documents, None if there is no such token.

    Raises:
        InputError: names the feature and what is wrong with it.
    """
    if len(features) == 0:
        raise InputError("features: found none, allowed is one or more. Leave out empty batches.")
    return [
        _read(f"features[{place}]", feature, input_name, labels_name, pad, eos)
        for place, feature in enumerate(features)
    ]


def _read(
    path: str,
    feature: Mapping[str, Any],
    input_name: str,
    labels_name: str,
    pad: int | None,
    eos: int | None,
) -> Row:
    if not isinstance(feature, Mapping):
        raise InputError(
            f"{path}: found {type(feature).__name__}, allowed is a mapping with {input_name!r}."
        )
    tokens = _numbers(path, feature, input_name)
    if tokens is None:
        names = [str(name) for name in feature]
        raise InputError(
            f"{path}: there is no {input_name!r}; it has: {', '.join(names)}."
            f"{near_miss(input_name, names)} Say input_name=… to name the tokens."
        )
    starts = _numbers(path, feature, "document_starts")
    overlaps = _numbers(path, feature, "overlaps") if starts is not None else None
    labels = _numbers(path, feature, labels_name)
    mask = _numbers(path, feature, "attention_mask")
    for name, found, cells in (
        (labels_name, labels, len(tokens)),
        ("attention_mask", mask, len(tokens)),
        ("overlaps", overlaps, 0 if starts is None else len(starts)),
    ):
        if found is not None and len(found) != cells:
            other = "document_starts" if name == "overlaps" else input_name
            raise InputError(
                f"{path}.{name}: found {len(found)} values, allowed is one for each of the {cells} "
                f"of {other!r}. Change both together."
            )
    row = Row(tokens, len(tokens), starts, overlaps, labels)
    if mask is not None:
        return _by_mask(path, row, mask != 0)
    if starts is None and pad is not None:
        return replace(row.cut(_length(tokens, pad, eos)), cells=row.cells)
    return row


def _numbers(path: str, feature: Mapping[str, Any], name: str) -> Int64 | None:
    """The list of integers under a name, None if there is none."""
    value = feature.get(name)
    if value is None:
        return None
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iub"):
        raise InputError(
            f"{path}.{name}: found {array.dtype} of shape {list(array.shape)}, allowed is a list "
            "of integers. Give one row in each feature."
        )
    return array.astype(np.int64, copy=False)  # nobody writes to it


def _by_mask(path: str, row: Row, real: NDArray[np.bool_]) -> Row:
    """The row without the cells that its attention mask calls filler."""
    if row.starts is not None and (real[1:] > real[:-1]).any():
        raise InputError(
            f"{path}.attention_mask: found filler before tokens beside 'document_starts', allowed "
            "is filler at the end. Pad on the right, or not at all."
        )
    labels = None if row.labels is None else row.labels[real]
    return replace(row, tokens=row.tokens[real], labels=labels)


def _length(tokens: Int64, pad: int, eos: int | None) -> int:
    """Tokens up to the run of filler at the end.

    >>> _length(np.array([5, 9, 9, 9]), pad=9, eos=2), _length(np.array([5, 9, 9, 9]), pad=9, eos=9)
    (1, 2)
    """
    real = np.flatnonzero(tokens != pad)
    length = int(real[-1]) + 1 if len(real) else 0
    return min(len(tokens), length + 1) if pad == eos else length
