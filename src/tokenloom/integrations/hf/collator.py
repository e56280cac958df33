"""`Collator`: features → one batch of arrays, with documents kept apart.

One idea: tokens fill the cells, and everything else follows from boundaries. Boundaries come from
`document_starts`; they are guessed from tokens only on request, and only for rows that have none.
Each row is treated separately: the other rows of a batch change nothing but its width.

===================  ================================  ===========================================
`packed_sequences`   `position_ids`                    a row without `document_starts`
===================  ================================  ===========================================
None                 if any row has boundaries         is one document
True                 always                            ends documents after EOS (before BOS where
                                                       there is no EOS)
False                never                             is one document
===================  ================================  ===========================================

Labels are aligned, as transformers models expect: label i is token i, and the model shifts. The
first token of a document that follows another one in its row is not trained (`mask_boundary_loss`).

Where positions are given, `attention_mask` is left out by default. Transformers models separate
documents by their positions, but only without that mask and with ``use_cache=False`` (a Trainer
passes it by itself, your own loop must). ``attention_mask="segments"`` depends on neither, at S
bytes per cell.

A feature is read and checked once, and never changed. Filler inside it is separated from tokens by
its `attention_mask`, or, if it has no boundaries either, as the trailing PAD tokens; if PAD is also
EOS, the first of them is a real EOS. Filler of a batch is on the right, and its tokens are never
read, so PAD may share its id with any token.

64 rows of 4,096 tokens with 200 documents each take 13 ms of processor time from lists (8 of them
to convert lists to arrays), 5 ms from arrays; guessing from tokens instead takes 15 and 8 ms.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import near_misses, one_of
from tokenloom.batch import attention, boundaries, paint
from tokenloom.batch.cells import new_array
from tokenloom.errors import ConfigError, InputError, MissingExtra, choices, warn
from tokenloom.integrations.hf.tokenize import log_once, special_ids


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


def _read(
    path: str,
    feature: Mapping[str, Any],
    input_name: str,
    labels_name: str,
    pad: int | None,
    eos: int | None,
) -> Feature:
    """The row of a feature; `pad` is the id of filler, `eos` that of the end of documents."""
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


Int64 = NDArray[np.int64]

Array = NDArray[Any]


class Collator:
    """A callable, features → batch; it keeps settings and a few ids, not the tokenizer.

    Args:
        tokenizer: source of PAD, EOS, BOS and the longest input of its model.
        packed_sequences: whether to give positions, see the module.
        padding: "longest" (or True), "max_length", or "none" (or False: rows are of one length).
            Filler is on the right.
        multiple_of: cells of a row are a multiple of this; `pad_to_multiple_of` is an alias.
        max_length: largest number of tokens in a row; None: the tokenizer's limit, where needed.
        truncation: cut longer rows; else they are refused.
        return_tensors: "pt" for PyTorch, "np" for NumPy.
        ignore_index: the label of a cell that is not trained.
        input_name: key of the tokens, in features and batch.
        labels_name: key of the labels, in features and batch. Labels of a feature are padded and
            otherwise unchanged. None: a call gives (batch, labels).
        label_layout: "aligned", or "shifted": label i is token i + 1.
        mask_boundary_loss: do not train the first token of a document on the document before it.
        mask_overlap: do not train tokens that an earlier row also has (column `overlaps`).
        ignore_id: a token that is never trained.
        position_scheme: positions restart in every document ("reset") or row ("absolute").
        attention_mask: True for [B, S], "segments" for [B, 1, S, S] (causal, inside documents),
            False for none; None: [B, S] unless there are positions that reset.
        segment_ids: give the segment of each cell, 0 for filler [B, S].
        cu_seqlens: give `cu_seqlens` and `max_seqlen` over the flattened cells.
        document_starts: give the first cells of documents, padded with -1 [B, D].
        pad_id: the id of PAD; None: the tokenizer's own, or its EOS, or 0.
        eos_id: the id of EOS; None: the tokenizer's own.
        bos_id: the id of BOS; None: the tokenizer's own.

    >>> collate = Collator(None, return_tensors="np", pad_id=0)
    >>> batch = collate([{"input_ids": [5, 6, 7], "document_starts": [0, 2]}, {"input_ids": [8]}])
    >>> batch["position_ids"].tolist()
    [[0, 1, 0], [0, 0, 1]]
    >>> batch["labels"].tolist()
    [[5, 6, -100], [8, -100, -100]]
    """

    @near_misses("Collator")
    def __init__(
        self,
        tokenizer: Any,
        *,
        packed_sequences: bool | None = None,
        padding: str | bool = "longest",
        multiple_of: int | None = None,
        pad_to_multiple_of: int | None = None,
        max_length: int | None = None,
        truncation: bool = False,
        return_tensors: str = "pt",
        ignore_index: int = paint.IGNORE,
        input_name: str = "input_ids",
        labels_name: str | None = "labels",
        label_layout: str = "aligned",
        mask_boundary_loss: bool = True,
        mask_overlap: bool = True,
        ignore_id: int | None = None,
        position_scheme: str = "reset",
        attention_mask: bool | str | None = None,
        segment_ids: bool = False,
        cu_seqlens: bool = False,
        document_starts: bool = False,
        pad_id: int | None = None,
        eos_id: int | None = None,
        bos_id: int | None = None,
    ) -> None:
        one_of("Collator.packed_sequences", packed_sequences, (None, True, False))
        one_of("Collator.padding", padding, tuple(PADDING))
        one_of("Collator.return_tensors", return_tensors, ("pt", "np"))
        one_of("Collator.label_layout", label_layout, ("aligned", "shifted"))
        one_of("Collator.position_scheme", position_scheme, ("reset", "absolute"))
        one_of("Collator.attention_mask", attention_mask, (None, True, False, "segments"))
        self.packed_sequences, self.padding = packed_sequences, PADDING[padding]
        self.multiple_of = checked_multiple(multiple_of, pad_to_multiple_of, self.padding)
        self.max_length = checked_limit(
            tokenizer, max_length, truncation or self.padding == "max_length"
        )
        self.truncation, self.return_tensors = truncation, return_tensors
        self.ignore_index, self.ignore_id = ignore_index, ignore_id
        self.input_name, self.labels_name = input_name, labels_name
        self.label_layout = label_layout
        self.mask_boundary_loss, self.mask_overlap = mask_boundary_loss, mask_overlap
        self.position_scheme, self.attention_mask = position_scheme, attention_mask
        self.segment_ids, self.cu_seqlens = segment_ids, cu_seqlens
        self.document_starts = document_starts
        known = special_ids(tokenizer)
        self.eos_id = known.eos if eos_id is None else eos_id
        self.bos_id = known.bos if bos_id is None else bos_id
        told = known.pad if pad_id is None else pad_id
        self.pad_id = pad_instead(tokenizer, self.eos_id) if told is None else told
        # a 0 used for a missing PAD may also be a real token
        self._filler_id = self.eos_id if told is None else told

    def __repr__(self) -> str:
        said = (f"{name}={value!r}" for name, value in vars(self).items() if name[0] != "_")
        return f"Collator({', '.join(said)})"

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> Any:
        """A dict of arrays [B, S]; a pair (dict, labels) if `labels_name` is None."""
        rows = self._read(features)
        width = row_width(
            [row.cells for row in rows], self.padding, self.max_length, self.multiple_of
        )
        lengths = np.array([len(row.tokens) for row in rows], np.int64)
        tokens: Int64 = new_array((len(rows), width), np.int64)
        tokens.fill(self.pad_id)
        for place, row in enumerate(rows):
            tokens[place, : len(row.tokens)] = row.tokens
        tiles = self._tiles(rows, tokens, lengths)
        labels = self._labels(rows, tokens, tiles)
        batch = {self.input_name: tokens, **self._others(rows, tiles)}
        if self.labels_name is None:
            return self._given(batch), self._given({"labels": labels})["labels"]
        return self._given({**batch, self.labels_name: labels})

    # -- rows ------------------------------------------------------------------------------------

    def _read(self, features: Sequence[Mapping[str, Any]]) -> list[Feature]:
        if len(features) == 0:
            raise InputError("features: found none, allowed: one or more. Leave out empty batches.")
        names = self.input_name, self.labels_name or "labels"
        rows = [
            _read(f"features[{place}]", feature, *names, self._filler_id, self.eos_id)
            for place, feature in enumerate(features)
        ]
        most = self.max_length
        if most is None:
            return rows
        for place, row in enumerate(rows):
            if len(row.tokens) > most and not self.truncation:
                raise InputError(
                    f"features[{place}]: found {len(row.tokens)} tokens, allowed: up to "
                    f"max_length={most}. Pass truncation=True to cut longer rows."
                )
        return [row.cut(most) if row.cells > most else row for row in rows]

    # -- what follows from boundaries ------------------------------------------------------------

    def _tiles(self, rows: Sequence[Feature], tokens: Int64, lengths: Int64) -> paint.Tiles:
        nothing = np.empty(0, np.int64)
        row, cell = boundaries.marks_from_starts(
            [nothing if one.starts is None else one.starts for one in rows],
            "features.document_starts",
        )
        blank = np.array([one.starts is None for one in rows])
        if blank.any() and self.packed_sequences:
            log_once(self._guess(), logging.WARNING)  # it changes positions
            at, guessed = boundaries.marks_from_tokens(
                tokens[blank], lengths[blank], self.eos_id, self.bos_id
            )
            row = np.concatenate([row, np.flatnonzero(blank)[at]])
            cell = np.concatenate([cell, guessed])
        return boundaries.tiles_from_marks(boundaries.Marks(row, cell), lengths, tokens.shape[1])

    def _guess(self) -> str:
        how = "are one document each: there is neither EOS nor BOS"
        if self.bos_id is not None:
            how = f"start a document at each BOS ({self.bos_id})"
        if self.eos_id is not None:
            how = f"end a document after each EOS ({self.eos_id})"
        return f"Collator: rows without 'document_starts' {how}. {_SURVIVED}"

    def _others(self, rows: Sequence[Feature], tiles: paint.Tiles) -> dict[str, Any]:
        """Everything in a batch except tokens and labels."""
        packed = self.packed_sequences
        if packed is None:
            packed = any(row.starts is not None for row in rows)
            if not packed:
                log_once(f"Collator: no row has 'document_starts': one document each. {_SURVIVED}")
        resets = packed and self.position_scheme == "reset"
        mask = not resets if self.attention_mask is None else self.attention_mask
        made = paint.paint(tiles, ["segment_ids", "position_ids"])
        segments, positions = made["segment_ids"], made["position_ids"]
        batch: dict[str, Any] = {}
        if packed:
            batch["position_ids"] = new_array(positions.shape, np.int64)
            batch["position_ids"][:] = positions if resets else np.arange(positions.shape[1])
        if mask == "segments":
            batch["attention_mask"] = attention.dense_mask(segments)[:, None]
        elif mask:
            batch["attention_mask"] = (segments > 0).astype(np.int64)
        if self.segment_ids:
            batch["segment_ids"] = segments
        if self.cu_seqlens:
            batch["cu_seqlens"] = tiles.cu_seqlens()
            batch["max_seqlen"] = int(tiles.length.max())
        if self.document_starts:
            batch["document_starts"] = paint.document_starts(tiles)[0]
        return batch

    # -- labels ----------------------------------------------------------------------------------

    def _labels(self, rows: Sequence[Feature], tokens: Int64, tiles: paint.Tiles) -> Int64:
        labels: Int64 = new_array(tokens.shape, np.int64)
        labels[:] = tokens
        if self.ignore_id is not None:
            labels[tokens == self.ignore_id] = self.ignore_index
        if self.mask_boundary_loss:
            labels.reshape(-1)[tiles.first[tiles.segment > 1]] = self.ignore_index
        for place, row in enumerate(rows):
            if row.labels is not None:
                labels[place, : len(row.labels)] = row.labels
            elif self.mask_overlap:
                for start, repeated in row.repeated():
                    labels[place, start : start + repeated] = self.ignore_index
            labels[place, len(row.tokens) :] = self.ignore_index
        if self.label_layout == "shifted":
            labels[:, :-1] = labels[:, 1:]
            labels[:, -1] = self.ignore_index
        return labels

    def _given(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays of a batch in the requested library."""
        if self.return_tensors == "np":
            return dict(batch)
        try:
            torch = importlib.import_module("torch")
        except ModuleNotFoundError as problem:
            raise MissingExtra("Collator(return_tensors='pt')", "torch", "hf") from problem
        return {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in batch.items()
        }


_SURVIVED = (
    "If they were packed, check that this column survived remove_columns, and pass "
    "remove_unused_columns=False to a Trainer."
)
