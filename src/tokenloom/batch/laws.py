"""The laws of a batch: for each, which cells break it.

One idea: a law is a function from the arrays of a batch to the cells that break it, and `LAWS`
lists which arrays each law needs. So a batch is judged by what it has, and every law is tested by
breaking it alone. `tokenloom.batch.check` runs them all and reports what they found.

==================  ===============================================================================
tokens              no id is negative, except in filler
segment_ids         0 is filler, documents are 1, 2, 3, … in every row
attention_mask      True where the segment is not 0
position_ids        count from 0 in every document and stretch of filler, or in every row
labels              the token to predict, or -100
loss_mask           True at cell i where a label asks for token i + 1
loss_weights        finite, above 0 where the loss counts and 0 elsewhere
filler              is neither predicted nor predicts
boundary            no document is predicted from the one before it
trained             at least one token is trained
document_starts     first cell of each document, in order, padded with -1
continues           same shape as document_starts, False in the padding, consistent with the spans
cu_seqlens          first cell of each document and stretch of filler, over all rows, and the end
max_seqlen          the longest sequence of cu_seqlens
spans               start where documents start, and leave filler free
==================  ===============================================================================

A law only sees arrays of the right shape and dtype: `tokenloom.batch.check` checks those first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tokenloom.arrays import Array, Bool
from tokenloom.batch import attention
from tokenloom.batch.paint import IGNORE
from tokenloom.errors import plural
from tokenloom.layout.spans import JOINED
from tokenloom.store.handles import lazy

SHOWN = 3  # cells reported per law; the rest are only counted


class Breach(NamedTuple):
    """How many cells break a law, and (row, cell, found, right) of the first few."""

    total: int = 0
    examples: tuple[tuple[int | None, int | None, str, str], ...] = ()


@dataclass(frozen=True)
class Given:
    """What a law sees.

    Attributes:
        arrays: by name, those that have the right shape and dtype, with masks as bool; and those
            that `derived` adds.
        spans: `Spans`, or None.
        shape: (B, S).
        shifted: whether a label is one cell before its token.
        strict: whether our conventions count as laws.
        guessed: rows whose segments come from token values, so that spans do not describe them
            [B].
        share: whether this is a part of a step that was judged as a whole.
    """

    arrays: Mapping[str, Array]
    spans: Any
    shape: tuple[int, int]
    shifted: bool
    strict: bool
    guessed: Bool
    share: bool

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    def has(self, *names: str) -> bool:
        """Whether all of these are given."""
        return all(
            self.spans is not None if name == "spans" else name in self.arrays for name in names
        )

    @lazy
    def starts(self) -> Bool:
        """Cells where a document or a stretch of filler starts."""
        starts: Bool = np.diff(attention.stretches(self["segment_ids"]), axis=1, prepend=-1) > 0
        return starts

    @lazy
    def offset(self) -> Array:
        """Cells since the last of `starts`."""
        cell = np.arange(self.shape[1])
        return cell - np.maximum.accumulate(np.where(self.starts, cell, 0), axis=1)

    @lazy
    def crossing(self) -> Bool:
        """Trained cells whose target belongs to another document."""
        ids = self["segment_ids"]
        after = _ahead(ids, 0)
        crossing: Bool = self["trained"] & (ids != after) & (ids != 0) & (after != 0)
        return crossing


def derived(arrays: Mapping[str, Array], shifted: bool) -> dict[str, Array]:
    """The arrays, and those that can be derived from them.

    real: cells that hold tokens. asked: cells at which a label asks for the next token. trained:
    cells whose prediction counts, according to the mask, else the labels, else the weights.
    Segments are derived from document starts if only those are given.
    """
    out = dict(arrays)
    shape = next((a.shape for n, a in out.items() if n in ("tokens", "labels")), None)
    if "segment_ids" not in out and "document_starts" in out and shape is not None:
        out["segment_ids"] = _from_starts(out["document_starts"], shape)
        if "attention_mask" in out:
            out["segment_ids"] *= out["attention_mask"]
    if "segment_ids" in out:
        out["real"] = out["segment_ids"] != 0
    elif "attention_mask" in out:
        out["real"] = out["attention_mask"]
    if "labels" in out:
        asked = out["labels"] != IGNORE
        out["asked"] = asked if shifted else _ahead(asked, False)
    if "loss_weights" in out:
        out["trained"] = out["loss_weights"] > 0
    for name in ("asked", "loss_mask"):  # the last one decides
        if name in out:
            out["trained"] = out[name]
    return out


def _from_starts(starts: Array, shape: tuple[int, ...]) -> Array:
    """Segments 1, 2, … from document starts [B, D], padded with -1; the first cell starts one."""
    begins = np.zeros(shape, np.int64)
    row, column = np.nonzero((starts >= 0) & (starts < shape[1]))
    np.add.at(begins, (row, starts[row, column]), 1)
    begins[:, :1] = 1
    return np.cumsum(begins, axis=1)


def _told(wrong: Bool, found: Any, right: Any) -> Breach:
    """Wrong cells [B, S] as a breach; `found`, `right`: text, an array, or a function of a cell."""
    if not wrong.any():  # much faster than listing no cells
        return Breach()
    rows, cells = np.nonzero(wrong)

    def text(what: Any, at: tuple[int, int]) -> str:
        return what if isinstance(what, str) else str(what(*at) if callable(what) else what[at])

    some = list(zip(rows[:SHOWN].tolist(), cells[:SHOWN].tolist(), strict=True))
    return Breach(len(rows), tuple((*at, text(found, at), text(right, at)) for at in some))


def _alone(found: str, right: str) -> Breach:
    """A breach of the whole batch."""
    return Breach(1, ((None, None, found, right),))


def _ahead(values: Array, last: Any) -> Array:
    """The value one cell later [B, S]; `last` where there is none."""
    out = np.full_like(values, last)
    out[:, :-1] = values[:, 1:]
    return out


def _behind(values: Array, first: Any) -> Array:
    """The value one cell earlier [B, S]; `first` where there is none."""
    out = np.full_like(values, first)
    out[:, 1:] = values[:, :-1]
    return out


def _tokens(given: Given) -> Breach:
    tokens = given["tokens"]
    return _told((tokens < 0) & given.arrays.get("real", np.True_), tokens, "0 or more")


def _segments(given: Given) -> Breach:
    ids = given["segment_ids"].astype(np.int64)
    before = _behind(ids, 0)
    next_one = np.maximum.accumulate(np.maximum(before, 0), axis=1) + 1
    wrong = (ids != 0) & (ids != before) & (ids != next_one)
    return _told(wrong, ids, lambda *at: f"0, the same as before, or {next_one[at]}")


def _positions(given: Given) -> Breach:
    reset, absolute = _misplaced(given)
    by_row = reset.sum(axis=1) <= absolute.sum(axis=1)  # the scheme each row is closer to
    right = np.where(by_row[:, None], given.offset, np.arange(given.shape[1]))
    return _told(np.where(by_row[:, None], reset, absolute), given["position_ids"], right)


def scheme(given: Given) -> str:
    """The position scheme; see `tokenloom.batch.check.Facts`."""
    reset, absolute = (~wrong.any(axis=1) for wrong in _misplaced(given))
    if not (reset | absolute).all():
        return "neither"
    if reset.all():
        return "reset or absolute" if absolute.all() else "reset"
    return "absolute" if absolute.all() else "mixed"


def _misplaced(given: Given) -> tuple[Bool, Bool]:
    """Cells whose position does not match the scheme "reset", and those not matching "absolute"."""
    at = given["position_ids"]
    judged = np.True_ if given.strict else given["segment_ids"] != 0
    return (at != given.offset) & judged, (at != np.arange(given.shape[1])) & judged


def _labels(given: Given) -> Breach:
    labels, shifted = given["labels"], given.shifted
    target = _ahead(given["tokens"], 0) if shifted else given["tokens"]
    trained = labels != IGNORE
    wrong = trained & (labels != target)
    if shifted:  # the target of the last cell is not in the batch
        wrong[:, -1:] = trained[:, -1:] & (labels[:, -1:] < 0)
    last = given.shape[1] - 1 if shifted else -1
    return _told(wrong, labels, lambda r, c: "an id" if c == last else f"-100 or {target[r, c]}")


def _loss_mask(given: Given) -> Breach:
    mask = given["loss_mask"]
    right = given.arrays.get("asked", mask).copy()
    if not given.shifted:
        right[:, -1:] = False  # the last cell has no target
    return _told(mask != right, mask, right)


def _loss_weights(given: Given) -> Breach:
    weights, trained = given["loss_weights"], given["trained"]
    wrong = (weights > 0) != trained
    wrong |= ~(np.isfinite(weights) & (weights >= 0))
    return _told(wrong, weights, lambda *at: "above 0, finite" if trained[at] else "0")


def _filler(given: Given) -> Breach:
    predicts = given["trained"] & ~given["real"]
    predicted = given["trained"] & given["real"] & ~_ahead(given["real"], True)
    names = "filler as a target", "filler that predicts"
    return _told(predicts | predicted, lambda *at: names[int(predicts[at])], "no loss there")


def _boundary(given: Given) -> Breach:
    ids = given["segment_ids"]
    wrong = given.crossing if given.strict else np.zeros(given.shape, np.bool_)
    return _told(
        wrong, lambda r, c: f"a loss from document {ids[r, c]} to {ids[r, c + 1]}", "no loss there"
    )


def _trained(given: Given) -> Breach:
    if given.share or given["trained"].any():
        return Breach()
    return _alone("no trained token", "one or more")


def _attention(given: Given) -> Breach:
    mask, right = given["attention_mask"], given["segment_ids"] != 0
    return _told(mask != right, mask, right)


def _document_starts(given: Given) -> Breach:
    found, begins = given["document_starts"], given.starts & (given["segment_ids"] != 0)
    count = begins.sum(axis=1)
    width = max(found.shape[1], int(count.max(initial=0)))
    right = np.full((len(begins), width), -1, np.int64)
    # the starts of a row fill its slots from the left, so [row, slot] ascends with the cells
    right[np.arange(width) < count[:, None]] = np.nonzero(begins)[1]
    padded = np.full_like(right, -1)
    padded[:, : found.shape[1]] = found
    return _told(padded != right, padded, right)


def _continues(given: Given) -> Breach:
    found, starts = given["continues"], given["document_starts"]
    if found.shape != starts.shape:
        return _alone(f"shape {list(found.shape)}", f"{list(starts.shape)} as document_starts")
    right = found & (starts >= 0)
    if given.spans is not None and len(given.spans) == len(starts):
        heads = np.flatnonzero((given.spans.flags & JOINED) == 0)  # spans that start a segment
        frame = np.searchsorted(heads, given.spans.frame)
        span = frame[:-1, None] + np.arange(starts.shape[1])
        there = (starts >= 0) & (span < frame[1:, None]) & ~given.guessed[:, None]
        right[there] = given.spans.continues[heads[span[there]]]
    return _told(found != right, found, right)


def _cu_seqlens(given: Given) -> Breach:
    found, right = given["cu_seqlens"], attention.cu_seqlens(given["segment_ids"])
    if len(found) != len(right):
        return _alone(plural(len(found), "edge"), f"{len(right):,}")
    total, examples = _told((found != right)[None], found[None], right[None])
    return Breach(total, tuple((None, edge, seen, fine) for _, edge, seen, fine in examples))


def _max_seqlen(given: Given) -> Breach:
    found, right = int(given["max_seqlen"]), attention.max_seqlen(given["segment_ids"])
    if found == right or (found > right and not given.strict):
        return Breach()
    return _alone(str(found), str(right))


def _spans(given: Given) -> Breach:
    spans, (rows, cells) = given.spans, given.shape
    try:
        spans.check()
    except ValueError as error:
        return _alone(str(error).partition(", allowed:")[0], "what `Spans.check` allows")
    if len(spans) != rows or spans.width < cells:
        found = f"spans of {len(spans)} frames of {spans.width} cells"
        return _alone(found, f"{rows} of {cells} or more")
    keep = spans.at < cells  # the look-ahead cell is not in the batch
    row, first = spans.row[keep], spans.at[keep]
    begins = np.zeros((rows, cells), np.bool_)
    begins[row, first] = (spans.flags[keep] & JOINED) == 0
    edge = np.zeros((rows, cells + 1), np.int64)
    edge[row, first] += 1
    edge[row, np.minimum(first + spans.cells[keep], cells)] -= 1
    held = edge[:, :cells].cumsum(axis=1)
    real = (given["segment_ids"] != 0).astype(np.int64)
    documents = given.starts & (real > 0)
    wrong = (held != real) | ((begins != documents) & ~given.guessed[:, None])
    return _told(
        wrong,
        lambda *at: ("no span", "a span that continues", "a span's start")[held[at] + begins[at]],
        lambda *at: ("filler", "a document that continues", "its start")[real[at] + documents[at]],
    )


Law = Callable[[Given], Breach]

LAWS: Mapping[str, tuple[tuple[str, ...], Law]] = {
    "tokens": (("tokens",), _tokens),
    "segment_ids": (("segment_ids",), _segments),
    "attention_mask": (("attention_mask", "segment_ids"), _attention),
    "position_ids": (("position_ids", "segment_ids"), _positions),
    "labels": (("labels", "tokens"), _labels),
    "loss_mask": (("loss_mask",), _loss_mask),
    "loss_weights": (("loss_weights",), _loss_weights),
    "filler": (("trained", "real"), _filler),
    "boundary": (("trained", "segment_ids"), _boundary),
    "trained": (("trained",), _trained),
    "document_starts": (("document_starts", "segment_ids"), _document_starts),
    "continues": (("continues", "document_starts"), _continues),
    "cu_seqlens": (("cu_seqlens", "segment_ids"), _cu_seqlens),
    "max_seqlen": (("max_seqlen", "segment_ids"), _max_seqlen),
    "spans": (("spans", "segment_ids"), _spans),
}
