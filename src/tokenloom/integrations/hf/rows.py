"""One feature → one row of a batch: what the collator reads, checked and never changed.

Filler inside a feature is separated from tokens here, once: by its `attention_mask`, or, if it has
no boundaries either, as the trailing PAD tokens. If PAD is also EOS, the first of them is a real
EOS.

The width of a batch and its filler: the settings of a collator, checked, and the rule.

Filler is on the right. Its tokens are never read, so PAD may share its id with any token.
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
    """One future row of a batch.

    Attributes:
        tokens: tokens without filler.
        cells: number of cells of the feature, including filler.
        starts: first cell of each document as given; None if not given.
        overlaps: number of tokens of each that an earlier row also has; None if not given.
        labels: one per token, as given; None if there are none.
    """

    tokens: Int64
    cells: int
    starts: Int64 | None
    overlaps: Int64 | None
    labels: Int64 | None

    def repeated(self) -> list[tuple[int, int]]:
        """First cell and number of the tokens that an earlier row also has."""
        if self.starts is None or self.overlaps is None:
            return []
        some = self.overlaps > 0
        return list(zip(self.starts[some].tolist(), self.overlaps[some].tolist(), strict=True))

    def cut(self, most: int) -> Feature:
        """The first `most` tokens; boundaries after them are ignored later."""
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
        features: one mapping per row; a value of None counts as missing.
        input_name: key of the tokens.
        labels_name: key of the labels.
        pad: id of filler, None if unknown.
        eos: id of the token that ends documents, None if there is none.

    Raises:
        InputError: a feature is invalid; names the feature and what is wrong with it.
    """
    if len(features) == 0:
        raise InputError("features: found none, allowed: one or more. Leave out empty batches.")
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
            f"{path}: found {type(feature).__name__}, allowed: a mapping with {input_name!r}."
        )
    tokens = _numbers(path, feature, input_name)
    if tokens is None:
        raise InputError(
            f"{path}: there is no {input_name!r}; it has: {choices(input_name, feature)} Pass "
            "input_name=… for the key of the tokens."
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
                f"{path}.{name}: found {len(found)} values, allowed: one for each of the {cells} "
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
            f"{path}.{name}: found {array.dtype} of shape {list(array.shape)}, allowed: a list "
            "of integers. Pass one row in each feature."
        )
    return array.astype(np.int64, copy=False)  # never written to


def _by_mask(path: str, row: Feature, real: NDArray[np.bool_]) -> Feature:
    """The row without the cells that its attention mask marks as filler."""
    if row.starts is not None and (real[1:] > real[:-1]).any():
        raise InputError(
            f"{path}.attention_mask: found filler before tokens with 'document_starts', allowed: "
            "filler at the end. Pad on the right, or not at all."
        )
    labels = None if row.labels is None else row.labels[real]
    return replace(row, tokens=row.tokens[real], labels=labels)


def _length(tokens: Int64, pad: int, eos: int | None) -> int:
    """Number of tokens before the trailing filler.

    >>> _length(np.array([5, 9, 9, 9]), pad=9, eos=2), _length(np.array([5, 9, 9, 9]), pad=9, eos=9)
    (1, 2)
    """
    real = np.flatnonzero(tokens != pad)
    length = int(real[-1]) + 1 if len(real) else 0
    return min(len(tokens), length + 1) if pad == eos else length


PADDING = {"longest": "longest", True: "longest", "max_length": "max_length"}

PADDING |= {"none": "none", "do_not_pad": "none", False: "none"}

NO_LIMIT = 1 << 31  # a tokenizer without a limit has 10^30


def row_width(cells: Sequence[int], padding: str, max_length: int | None, multiple_of: int) -> int:
    """Cells of every row of a batch.

    Args:
        cells: cells of each row as given; `max_length` at most.
        padding: "longest", "max_length" or "none".
        max_length: the width, with padding="max_length".
        multiple_of: the width is rounded up to a multiple of this.

    >>> row_width([5, 3], "longest", None, 8), row_width([5, 3], "max_length", 6, 1)
    (8, 6)
    """
    longest = max(cells)
    if longest == 0:
        raise InputError("features: found no tokens at all. Leave out empty rows.")
    if padding == "none" and min(cells) < longest:
        raise InputError(
            f"features: found rows of {min(cells)} to {longest} tokens, allowed: one length with "
            "padding='none'. Pass padding='longest'."
        )
    fixed = max_length if padding == "max_length" else None
    width = longest if fixed is None else fixed
    return -(-width // multiple_of) * multiple_of


def checked_multiple(multiple_of: int | None, pad_to_multiple_of: int | None, padding: str) -> int:
    """The divisor of the width, given under either name."""
    found = multiple_of if pad_to_multiple_of is None else pad_to_multiple_of
    if found is None:
        return 1
    if multiple_of is not None and multiple_of != found:
        raise ConfigError(
            f"Collator.multiple_of: found {multiple_of} and pad_to_multiple_of={found}, allowed: "
            "one of the two. Leave one out."
        )
    if not isinstance(found, int) or found < 1 or (padding == "none" and found > 1):
        raise ConfigError(
            f"Collator.multiple_of: found {found!r} with padding={padding!r}, allowed: 1 or more, "
            "and only 1 without padding."
        )
    return found


def checked_limit(tokenizer: Any, max_length: int | None, needed: bool) -> int | None:
    """The largest number of tokens in a row, None for any."""
    limit = getattr(tokenizer, "model_max_length", None)
    if not isinstance(limit, int) or limit >= NO_LIMIT:
        limit = None
    if max_length is None:
        if needed and limit is None:
            raise ConfigError(
                "Collator.max_length: missing; truncation=True and padding='max_length' need it, "
                "and the tokenizer does not know its model's limit. Pass max_length."
            )
        return limit if needed else None
    if not isinstance(max_length, int) or max_length < 1:
        raise ConfigError(f"Collator.max_length: found {max_length!r}, allowed: 1 or more.")
    if limit is not None and max_length > limit:
        raise ConfigError(
            f"Collator.max_length: found {max_length}, allowed: up to {limit}, the "
            "model_max_length of the tokenizer. Pass less, or raise that if the model allows more."
        )
    return max_length


def pad_instead(tokenizer: Any, eos: int | None) -> int:
    """The id to pad with if there is no PAD token."""
    instead = "0" if eos is None else f"EOS ({eos})"
    warn(
        f"tokenizer: {type(tokenizer).__name__} has no PAD token, so rows are padded with "
        f"{instead}. Filler is neither seen nor trained; pass pad_id to choose another."
    )
    return 0 if eos is None else eos
