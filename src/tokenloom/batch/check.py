"""Whether a batch, ours or any other, is correct; and if not, which cell breaks which law.

One idea: a batch is judged by the arrays it has, and the report lists the laws that were checked,
so a law that could not be checked never passes silently. The laws are those of
`tokenloom.batch.check` plus two more: arrays of cells are [B, S] ("shape"); ids are integers and
masks are True and False, or 1 and 0 ("dtype").

Everything is vectorised: 64 x 2,048 cells with all fields take about 15 ms.

The laws of a batch: for each, which cells break it.

A law is a function from the arrays of a batch to the cells that break it, and `LAWS`
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

from tokenloom.arguments import one_of
from tokenloom.arrays import Array, Bool
from tokenloom.batch import attention
from tokenloom.batch.paint import IGNORE
from tokenloom.errors import ConfigError, InputError, NoTrainedTokens, plural
from tokenloom.layout.spans import JOINED
from tokenloom.store.handles import lazy

CELLS = (
    "tokens",
    "segment_ids",
    "position_ids",
    "labels",
    "attention_mask",
    "loss_mask",
    "loss_weights",
)

SHAPES = {
    "document_starts": "[B, documents]",
    "continues": "[B, documents]",
    "cu_seqlens": "[edges]",
    "max_seqlen": "one number",
}

KIND = {"attention_mask": "mask", "loss_mask": "mask", "continues": "mask", "loss_weights": "real"}

KINDS = {"ids": "iu", "mask": "biuf", "real": "biuf"}

ALLOWED = {"ids": "integers", "mask": "True and False, or 1 and 0", "real": "numbers"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One place where a batch breaks a law.

    Attributes:
        law: one of `tokenloom.batch.check.LAWS`, "shape" or "dtype".
        row: the row; None if it is not in a single row.
        cell: the cell of that row (for some laws, the document or the edge); None if it is not in a
            single cell.
        found: the value found there.
        right: what is allowed there.
    """

    law: str
    row: int | None
    cell: int | None
    found: str
    right: str

    def __str__(self) -> str:
        unit = {"document_starts": "document", "continues": "document", "cu_seqlens": "edge"}
        place = [] if self.row is None else [f"row {self.row}"]
        place += [] if self.cell is None else [f"{unit.get(self.law, 'cell')} {self.cell}"]
        return f"{', '.join(place) or 'batch'}: found {self.found}, right is {self.right}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a batch contains, correct or not; None where no array of the batch shows it.

    Attributes:
        rows: B.
        seq_len: S, in cells.
        label_layout: "aligned" or "shifted".
        positions: "reset", "absolute", "mixed" (some rows of each), "reset or absolute" (both are
            the same here: one document fills each row) or "neither".
        documents: the number of documents, counted once per row.
        fill: the fraction of cells that hold tokens.
        trained_tokens: the number of predictions that count.
        boundary_trained: how many of those cross from one document to the next.
    """

    rows: int
    seq_len: int
    label_layout: str
    positions: str | None
    documents: int | None
    fill: float | None
    trained_tokens: int | None
    boundary_trained: int | None

    def __str__(self) -> str:
        told = {name: getattr(self, name) for name in self.__slots__}
        if self.fill is not None:
            told["fill"] = f"{self.fill:.1%}"
        return ", ".join(f"{name} {value}" for name, value in told.items() if value is not None)


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What `check_batch` found.

    Attributes:
        problems: the first few of each law.
        totals: the number of problems of each broken law.
        checked: laws that could be checked with the available arrays.
        facts: what the batch contains.
    """

    problems: tuple[Problem, ...]
    totals: Mapping[str, int]
    checked: tuple[str, ...]
    facts: Facts

    @property
    def ok(self) -> bool:
        """Whether no checked law is broken."""
        return not self.problems

    def raise_if_wrong(self) -> BatchReport:
        """This report, or ValueError with its text."""
        if not self.ok:
            raise InputError(str(self))
        return self

    def __str__(self) -> str:
        skipped = [law for law in LAWS if law not in self.checked]
        verdict = "all laws hold" if self.ok else plural(sum(self.totals.values()), "problem")
        lines = [f"batch of {self.facts.rows} x {self.facts.seq_len}: {verdict}."]
        for law, total in self.totals.items():
            lines.append(f"  {law}: {total:,}")
            lines += [f"    {one}" for one in self.problems if one.law == law]
        lines.append(f"  facts: {self.facts}")
        lines += [f"  not checked, arrays are missing: {', '.join(skipped)}"] if skipped else []
        return "\n".join(lines)


def check_batch(
    batch: Any, *, seq_len: int | None = None, strict: bool = True, label_layout: str | None = None
) -> BatchReport:
    """Which laws a batch breaks, and where. A broken law is reported, never raised.

    Args:
        batch: a `tokenloom.Batch`, or a mapping (or an object with attributes) of NumPy or torch
            arrays, named like the fields of a batch; `input_ids` is an alias of `tokens`.
        seq_len: the expected S; default: the S of the arrays.
        strict: hold the batch to our conventions as well. If False, what trains no wrong token is
            accepted: positions of filler and a `max_seqlen` that is too large. So is a loss across
            documents, which `facts` still counts.
        label_layout: "aligned" (a label is at its own token) or "shifted" (one cell earlier).
            Default: that of the batch, else "aligned".

    Raises:
        ConfigError: the label layout is unknown, or the batch has no array of cells.

    >>> report = check_batch({"tokens": [[5, 6, 7]], "labels": [[-100, 6, 8]]})
    >>> report.ok, str(report.problems[0])
    (False, 'row 0, cell 2: found 8, right is -100 or 7')
    """
    batch = getattr(batch, "plain", batch)  # filler with a document's segment is still filler
    layout = label_layout or _fetch(batch, "label_layout") or "aligned"
    one_of("label_layout", layout, ("aligned", "shifted"))
    arrays, breaches, shape = _arrays(batch, seq_len)
    given = Given(
        derived(arrays, layout == "shifted"),
        _fetch(batch, "spans"),
        shape,
        layout == "shifted",
        strict,
        _guessed(batch, shape[0]),
        _is_share(batch),
    )
    checked = tuple(law for law, (needs, _) in LAWS.items() if given.has(*needs))
    breaches |= {law: LAWS[law][1](given) for law in checked}
    problems = (
        Problem(law, *example) for law, breach in breaches.items() for example in breach.examples
    )
    totals = {law: breach.total for law, breach in breaches.items() if breach.total}
    return BatchReport(tuple(problems), totals, checked, _facts(given, layout))


def _fetch(batch: Any, name: str) -> Any:
    """A field of a batch; None if the batch does not have it."""
    if isinstance(batch, Mapping):
        return batch.get(name, batch.get("input_ids") if name == "tokens" else None)
    try:
        value = getattr(batch, name, None)
    except NoTrainedTokens:
        return batch.trained() if name == "loss_mask" else None
    return getattr(batch, "input_ids", None) if value is None and name == "tokens" else value


def _guessed(batch: Any, rows: int) -> Array:
    """Which rows have segments that come from token values [rows]."""
    guessed = np.zeros(rows, np.bool_)
    for kind in getattr(batch, "_kinds", ()):
        here = slice(None) if kind.rows is None else kind.rows
        guessed[here] = kind.render.segments == "eos"
    return guessed


def _is_share(batch: Any) -> bool:
    """Whether this is a share of a step whose other shares have trained tokens."""
    try:
        return getattr(batch, "_step", None) is not None and batch.loss_mask is not None
    except NoTrainedTokens:
        return False


def _arrays(
    batch: Any, seq_len: int | None
) -> tuple[dict[str, Array], dict[str, Breach], tuple[int, int]]:
    """The arrays that can be judged, what is wrong with the others, and (B, S)."""
    fetched = {name: _fetch(batch, name) for name in (*CELLS, *SHAPES)}
    found = {name: attention.to_numpy(a) for name, a in fetched.items() if a is not None}
    lead = next((a.shape for n, a in found.items() if n in CELLS and a.ndim >= 2), None)
    if lead is None:
        raise ConfigError(
            f"batch: found {', '.join(found) or 'no field of a batch'}; to check it, one of "
            f"{', '.join(CELLS)} must be given as [B, S]."
        )
    wrong: dict[str, list[tuple[str, str]]] = {"shape": [], "dtype": []}
    if seq_len not in (None, lead[-1]):
        wrong["shape"].append((f"rows of {lead[-1]:,} cells", f"seq_len {seq_len:,}"))
    arrays = {}
    rows = int(np.prod(lead[:-1]))  # a batch in groups is judged row by row
    for name, array in found.items():
        kind = KIND.get(name, "ids")
        if not _fits(name, array, lead):
            right = f"{list(lead)}" if name in CELLS else SHAPES[name]
            wrong["shape"].append((f"{name} of shape {list(array.shape)}", right))
        elif array.dtype.kind not in KINDS[kind]:
            wrong["dtype"].append((f"{name} of {array.dtype}", ALLOWED[kind]))
        elif kind == "mask" and (odd := array[(array != 0) & (array != 1)]).size:
            wrong["dtype"].append((f"{name} with {odd[0]}", ALLOWED[kind]))
        else:
            array = array != 0 if kind == "mask" else array
            arrays[name] = array.reshape(rows, array.shape[-1]) if array.ndim >= 2 else array
    breaches = {
        law: Breach(len(some), tuple((None, None, *one) for one in some))
        for law, some in wrong.items()
    }
    return arrays, breaches, (rows, lead[-1])


def _fits(name: str, array: Array, lead: tuple[int, ...]) -> bool:
    """Whether an array has the shape its name requires, next to cells of shape `lead`."""
    if name in CELLS:
        return array.shape == lead
    if name in ("document_starts", "continues"):
        return array.shape[:-1] == lead[:-1]
    return array.ndim == (name == "cu_seqlens")


def _facts(given: Given, layout: str) -> Facts:
    """What the batch contains."""
    segments, trains = given.has("segment_ids"), given.has("trained")
    cells = given.shape[0] * given.shape[1]
    return Facts(
        *given.shape,
        label_layout=layout,
        positions=scheme(given) if given.has("position_ids", "segment_ids") else None,
        documents=int((given.starts & given["real"]).sum()) if segments else None,
        fill=int(given["real"].sum()) / max(cells, 1) if given.has("real") else None,
        trained_tokens=int(given["trained"].sum()) if trains else None,
        boundary_trained=int(given.crossing.sum()) if segments and trains else None,
    )


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
        return np.diff(attention.stretches(self["segment_ids"]), axis=1, prepend=-1) > 0

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
        return self["trained"] & (ids != after) & (ids != 0) & (after != 0)


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
