"""One feature → one row of a batch: what the collator reads, checked, and never changed.

Filler that a feature brings along is told apart from tokens here, once: by its `attention_mask`,
or else, where it has no boundaries either, as the run of PAD at its end. If PAD is also EOS, the
first of that run is a real EOS.

How wide a batch is and what fills it: the settings of a collator, checked, and the rule.

Filler stands on the right. It is never looked at, so PAD may share its id with anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, InputError, choices, warn

__all__ = [
    "PADDING",
    "Feature",
    "checked_limit",
    "checked_multiple",
    "pad_instead",
    "read_rows",
    "row_width",
]

Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Feature:
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

    def cut(self, most: int) -> Feature:
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
) -> list[Feature]:
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
) -> Feature:
    if not isinstance(feature, Mapping):
        raise InputError(
            f"{path}: found {type(feature).__name__}, allowed is a mapping with {input_name!r}."
        )
    tokens = _numbers(path, feature, input_name)
    if tokens is None:
        raise InputError(
            f"{path}: there is no {input_name!r}; it has: {choices(input_name, feature)} Pass "
            "input_name=… to name the tokens."
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
    row = Feature(tokens, len(tokens), starts, overlaps, labels)
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


def _by_mask(path: str, row: Feature, real: NDArray[np.bool_]) -> Feature:
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


PADDING = {"longest": "longest", True: "longest", "max_length": "max_length"}

PADDING |= {"none": "none", "do_not_pad": "none", False: "none"}

NO_LIMIT = 1 << 31  # a tokenizer without a limit says 10^30


def row_width(cells: Sequence[int], padding: str, max_length: int | None, multiple_of: int) -> int:
    """Cells of every row of a batch.

    Args:
        cells: of each row as it came; `max_length` at most.
        padding: "longest", "max_length" or "none".
        max_length: the width, with padding="max_length".
        multiple_of: the width is rounded up to one.

    >>> row_width([5, 3], "longest", None, 8), row_width([5, 3], "max_length", 6, 1)
    (8, 6)
    """
    longest = max(cells)
    if longest == 0:
        raise InputError("features: found no token at all. Leave out empty rows.")
    if padding == "none" and min(cells) < longest:
        raise InputError(
            f"features: found rows of {min(cells)} to {longest} tokens, allowed is one length with "
            "padding='none'. Say padding='longest'."
        )
    fixed = max_length if padding == "max_length" else None
    width = longest if fixed is None else fixed
    return -(-width // multiple_of) * multiple_of


def checked_multiple(multiple_of: int | None, pad_to_multiple_of: int | None, padding: str) -> int:
    """What the width is a multiple of, under either name."""
    found = multiple_of if pad_to_multiple_of is None else pad_to_multiple_of
    if found is None:
        return 1
    if multiple_of is not None and multiple_of != found:
        raise ConfigError(
            f"Collator.multiple_of: found {multiple_of} beside pad_to_multiple_of={found}, allowed "
            "is one of the two. Leave one out."
        )
    if not isinstance(found, int) or found < 1 or (padding == "none" and found > 1):
        raise ConfigError(
            f"Collator.multiple_of: found {found!r} with padding={padding!r}, allowed is 1 or more,"
            " and nothing but 1 without padding."
        )
    return found


def checked_limit(tokenizer: Any, max_length: int | None, needed: bool) -> int | None:
    """Tokens that a row may have, None for any number."""
    limit = getattr(tokenizer, "model_max_length", None)
    if not isinstance(limit, int) or limit >= NO_LIMIT:
        limit = None
    if max_length is None:
        if needed and limit is None:
            raise ConfigError(
                "Collator.max_length: missing; truncation=True and padding='max_length' need it, "
                "and the tokenizer tells no limit of its model. Give max_length."
            )
        return limit if needed else None
    if not isinstance(max_length, int) or max_length < 1:
        raise ConfigError(f"Collator.max_length: found {max_length!r}, allowed is 1 or more.")
    if limit is not None and max_length > limit:
        raise ConfigError(
            f"Collator.max_length: found {max_length}, allowed is up to {limit}, the "
            "model_max_length of the tokenizer. Give less, or raise that if the model can do more."
        )
    return max_length


def pad_instead(tokenizer: Any, eos: int | None) -> int:
    """What stands in for a PAD that does not exist."""
    instead = "0" if eos is None else f"EOS ({eos})"
    warn(
        f"tokenizer: {type(tokenizer).__name__} has no PAD token, so rows are padded with "
        f"{instead}. Filler is neither seen nor trained; give pad_id to choose another."
    )
    return 0 if eos is None else eos
