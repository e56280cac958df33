"""Whether documents that share a row stay apart inside a model: change one, watch the others.

One idea: a leak is a dependence, and a dependence shows when its cause is changed. `leak_probe`
replaces all tokens of one document, runs the model before and after, and requires that the logits
of all other documents stay the same, in its row and in the others. It detects anything that lets
documents meet: a missing mask, an edge that is off by one, a kernel that ignores its mask, a
convolution or a state that crosses the boundary. Filler is changed as well, and must not move any
document.

A probe must be able to fail, so it also requires that the changed document's own logits move, that
logits depend on earlier tokens, and that a row with two documents was tried. Otherwise it has
*proved nothing*, and says so; a model that ignores its input does not pass.

`alone_probe` checks the same from the other side: a document in a row has the logits, and so the
losses, that it has on its own.

Both take any ``model(tokens, batch) -> logits [B, S, V]``, of NumPy or torch, without dropout. Each
change costs one pass of the model over the batch, and logits are compared in memory. A few rows are
enough even with a real vocabulary: leaks do not depend on sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import check_between
from tokenloom.batch.attention import stretches, to_numpy
from tokenloom.errors import ConfigError
from tokenloom.random.keys import draws, key

Array = NDArray[Any]

Int64 = NDArray[np.int64]

Model = Callable[[Any, Any], Any]


class Seen(NamedTuple):
    """How far the logits of one document moved: the largest difference of any logit."""

    row: int
    document: int
    difference: float

    def __str__(self) -> str:
        return f"row {self.row}, document {self.document} by {self.difference:.3g}"


@dataclass(frozen=True, slots=True)
class Probe:
    """One document, or one stretch of filler, with replaced tokens.

    Attributes:
        row: its row.
        document: its segment id; 0 is filler.
        first, stop: its cells [first, stop).
        own: how far its own logits moved.
        others: how far those of every other document of its row moved.
        elsewhere: the document of another row that moved most; None if there is only one row.
    """

    row: int
    document: int
    first: int
    stop: int
    own: float
    others: tuple[Seen, ...]
    elsewhere: Seen | None

    def __str__(self) -> str:
        name = f"document {self.document}" if self.document else "filler"
        return f"row {self.row}, {name} (cells {self.first} to {self.stop - 1})"


@dataclass(frozen=True, slots=True)
class LeakReport:
    """What `leak_probe` saw; `print` it for a verdict with reasons.

    Attributes:
        changes: what was changed, and what moved.
        context: how far the logits after the first token of each document moved when only first
            tokens were changed; NaN if no document has two tokens.
        paired: whether a changed document has another document after it in its row.
        tolerance: differences up to this are ignored.

    >>> batch = {"tokens": np.array([[5, 6, 7, 8]]), "segment_ids": np.array([[1, 1, 2, 2]])}
    >>> constant = lambda tokens, batch: np.zeros((*tokens.shape, 1))
    >>> report = leak_probe(constant, batch)
    >>> report.ok, report.leaks, report.doubts[-1]
    (False, (), 'no logit depends on an earlier token of its document')
    """

    changes: tuple[Probe, ...]
    context: float
    paired: bool
    tolerance: float

    @property
    def leaks(self) -> tuple[tuple[Probe, Seen], ...]:
        """Every change, with each document that it moved but must not move; NaN is also a leak."""
        return tuple(
            (change, seen)
            for change in self.changes
            for seen in (*change.others, *([change.elsewhere] if change.elsewhere else []))
            if not seen.difference <= self.tolerance
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why finding no leak would prove nothing; empty if it is proof."""
        found = [
            f"the logits of {change} do not depend on its own tokens"
            for change in self.changes
            if change.document and not change.own > self.tolerance
        ]
        if not self.context > self.tolerance:
            found.append("no logit depends on an earlier token of its document")
        if not self.paired:
            found.append("no changed document has another document after it in its row")
        return tuple(found)

    @property
    def ok(self) -> bool:
        """Whether nothing leaked, and a leak would have been detected."""
        return not self.leaks and not self.doubts

    def __str__(self) -> str:
        verdict = "leak" if self.leaks else "proved nothing" if self.doubts else "no leak"
        lines = [f"{verdict}: {len(self.changes)} changes, tolerance {self.tolerance:g}."]
        lines += [f"  changing {change} moved {seen}" for change, seen in self.leaks[:8]]
        lines += [f"  … {len(self.leaks) - 8:,} more"] if len(self.leaks) > 8 else []
        lines += [f"  {doubt}" for doubt in self.doubts[:8]]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class AloneReport:
    """What `alone_probe` saw.

    Attributes:
        documents: how far the logits of each document in its row are from those it has alone.
        spread: largest difference between the logits of different cells; 0 is a constant model.
        shared: whether a compared document shares its row with another one.
        tolerance: differences up to this are ignored.
    """

    documents: tuple[Seen, ...]
    spread: float
    shared: bool
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether all are the same, and could have been different."""
        same = all(one.difference <= self.tolerance for one in self.documents)
        return same and self.shared and self.spread > self.tolerance

    def __str__(self) -> str:
        other = [one for one in self.documents if not one.difference <= self.tolerance]
        proved = self.shared and self.spread > self.tolerance
        verdict = "same alone" if self.ok else "proved nothing" if not other else "other alone"
        lines = [f"{verdict}: {len(self.documents)} documents, tolerance {self.tolerance:g}."]
        lines += [f"  {one}" for one in other[:8]]
        lines += [] if proved else ["  no document shares a row, or all cells have the same logits"]
        return "\n".join(lines)


class _Cells(NamedTuple):
    """Tokens of a batch, and its stretches in reading order."""

    given: Any  # tokens as passed
    tokens: Int64  # [B, S]
    segment: Int64  # of each stretch; 0 is filler [stretches]
    row: Int64
    first: Int64  # its first cell, counted over all rows
    stop: Int64
    followed: NDArray[np.bool_]  # a document with another one after it in its row


def leak_probe(
    model: Model,
    batch: Any,
    *,
    trials: int = 16,
    seed: int = 0,
    vocab_size: int | None = None,
    tolerance: float = 1e-5,
) -> LeakReport:
    """Whether changing one document moves the logits of another.

    Args:
        model: called with tokens, of the same type and shape as the batch's, and the batch itself,
            for masks and positions. It must take the tokens from the first argument.
        batch: a `tokenloom.Batch`, or a mapping with `tokens` (or `input_ids`) and `segment_ids`.
        trials: largest number of documents and stretches of filler to change, one at a time.
        seed: seed for the choice of documents and new tokens.
        vocab_size: new tokens are below this; default: the largest token of the batch plus 1.
        tolerance: differences of logits up to this are ignored.

    >>> from tokenloom.batch.attention import dense_mask
    >>> batch = {"tokens": np.array([[5, 6, 7, 8]]), "segment_ids": np.array([[1, 1, 2, 2]])}
    >>> masked = lambda tokens, batch: dense_mask(batch["segment_ids"]) @ tokens[..., None]
    >>> print(leak_probe(masked, batch))
    no leak: 2 changes, tolerance 1e-05.
    >>> causal = lambda tokens, batch: np.cumsum(tokens, axis=1)[..., None]  # ignores documents
    >>> print(leak_probe(causal, batch))
    leak: 2 changes, tolerance 1e-05.
      changing row 0, document 1 (cells 0 to 1) moved row 0, document 2 by 9
    """
    _check(trials=(trials, 1), tolerance=(tolerance, 0))
    cells = _cells(batch)
    vocab = max(2, int(cells.tokens.max(initial=0)) + 1) if vocab_size is None else vocab_size
    _check(vocab_size=(vocab, max(2, int(cells.tokens[_real(cells)].max(initial=0)) + 1)))
    before = _logits(model, cells, cells.tokens, batch)

    def moved(places: Int64, name: int) -> Array:
        """The largest difference at every cell [B S] when these get other tokens."""
        tokens = cells.tokens.reshape(-1).copy()
        random = draws(key(seed, "leak probe", "token", name), places.astype(np.uint64))
        # never the same token: at least one step further, and less than once around
        step = 1 + (random % np.uint64(vocab - 1)).astype(np.int64)
        tokens[places] = (tokens[places] + step) % vocab
        return _apart(before, _logits(model, cells, tokens.reshape(before.shape[:2]), batch))

    chosen = _chosen(cells, seed, trials)
    changes = [
        _seen(cells, one, moved(np.arange(cells.first[one], cells.stop[one]), one))
        for one in chosen.tolist()
    ]
    begins = cells.first[cells.segment > 0]
    later = _real(cells).reshape(-1)
    later[begins] = False
    context = moved(begins, len(cells.first))[later].max() if later.any() else np.nan
    paired = bool(cells.followed[chosen].any())
    return LeakReport(tuple(changes), float(context), paired, tolerance)


def alone_probe(
    model: Model, batch: Any, *, trials: int = 16, seed: int = 0, tolerance: float = 1e-5
) -> AloneReport:
    """Whether documents have the same logits in their row as alone in a row of their own length.

    A loss is a function of the logits of its cell, so the losses are then also the same.

    Args:
        model: as for `leak_probe`. For a document alone it gets a batch of one row, a mapping or an
            object like the given batch, with tokens, segment_ids, position_ids, attention_mask,
            cu_seqlens and max_seqlen. Positions are those of the document in its row.
        batch: as for `leak_probe`.
        trials: largest number of documents to try.
        seed: seed for the choice of documents.
        tolerance: differences of logits up to this are ignored.

    >>> batch = {"tokens": np.array([[5, 6, 7, 8]]), "segment_ids": np.array([[1, 1, 2, 2]])}
    >>> causal = lambda tokens, batch: np.cumsum(tokens, axis=1)[..., None]  # ignores documents
    >>> print(alone_probe(causal, batch))
    other alone: 2 documents, tolerance 1e-05.
      row 0, document 2 by 11
    """
    _check(trials=(trials, 1), tolerance=(tolerance, 0))
    cells = _cells(batch)
    together = _logits(model, cells, cells.tokens, batch)
    flat = together.reshape(-1, together.shape[-1])
    positions = _field(batch, "position_ids")
    found = []
    chosen = [one for one in _chosen(cells, seed, len(cells.first)) if cells.segment[one] > 0]
    for one in chosen[:trials]:
        place = slice(int(cells.first[one]), int(cells.stop[one]))
        tokens = cells.tokens.reshape(1, -1)[:, place]
        size = tokens.shape[1]
        at = np.arange(size) if positions is None else to_numpy(positions).reshape(-1)[place]
        fields: dict[str, Any] = {
            "tokens": _like(cells.given, tokens),
            "segment_ids": _like(cells.given, np.ones_like(tokens)),
            "position_ids": _like(cells.given, at[None]),
            "attention_mask": _like(cells.given, np.ones_like(tokens)) > 0,
            "cu_seqlens": _like(cells.given, np.array([0, size])),
            "max_seqlen": size,
        }
        fields["input_ids"] = fields["tokens"]
        view = fields if isinstance(batch, Mapping) else SimpleNamespace(**fields)
        alone = _logits(model, cells, tokens, view)
        difference = _apart(flat[place], alone[0]).max()
        row, document = int(cells.row[one]), int(cells.segment[one])
        found.append(Seen(row, document, float(difference)))
    real = flat[_real(cells).reshape(-1)]
    spread = _apart(real, real[:1]).max() if len(real) else 0.0
    in_row = np.bincount(cells.row[cells.segment > 0], minlength=len(together))
    shared = any(in_row[cells.row[one]] > 1 for one in chosen[:trials])
    return AloneReport(tuple(found), float(spread), shared, tolerance)


def _cells(batch: Any) -> _Cells:
    """What a batch holds, as stretches."""
    given = _field(batch, "tokens")
    given = _field(batch, "input_ids") if given is None else given
    ids = _field(batch, "segment_ids")
    tokens, ids = (None if one is None else to_numpy(one) for one in (given, ids))
    if tokens is None or ids is None or tokens.ndim != 2 or tokens.shape != ids.shape:
        found = [None if one is None else list(one.shape) for one in (tokens, ids)]
        raise ConfigError(
            f"batch: found tokens {found[0]} and segment_ids {found[1]}, allowed: both as "
            "[B, S]. `segment_ids` separate the documents; pass them with the tokens."
        )
    rows, seq_len = ids.shape
    number = stretches(ids) + np.arange(rows)[:, None] * seq_len
    first = np.flatnonzero(np.diff(number.reshape(-1), prepend=-1))
    segment, row = ids.reshape(-1)[first].astype(np.int64), first // seq_len
    last = np.full(rows, -1)  # first cell of the last document of each row
    np.maximum.at(last, row[segment > 0], first[segment > 0])
    followed = (segment > 0) & (first < last[row])
    stop = np.append(first[1:], ids.size)
    return _Cells(given, tokens.astype(np.int64), segment, row, first, stop, followed)


def _real(cells: _Cells) -> NDArray[np.bool_]:
    """Cells that hold a document [B, S]."""
    return np.repeat(cells.segment > 0, cells.stop - cells.first).reshape(cells.tokens.shape)


def _chosen(cells: _Cells, seed: int, trials: int) -> Int64:
    """Stretches to change, by hash, each kind in turn: the most likely leaks first."""
    kind = np.where(cells.followed, 0, np.where(cells.segment > 0, 1, 2))
    number = np.arange(len(kind))
    random = draws(key(seed, "leak probe", "order"), number.astype(np.uint64))
    by_kind = np.lexsort((random, kind))
    turn = np.empty_like(number)
    turn[by_kind] = number - np.searchsorted(kind[by_kind], kind[by_kind])  # place in its kind
    return np.lexsort((kind, turn))[:trials]


def _seen(cells: _Cells, one: int, moved: Array) -> Probe:
    """What moved when stretch `one` was changed."""
    most = np.maximum.reduceat(moved, cells.first)
    row, seq_len = int(cells.row[one]), cells.tokens.shape[1]

    def seen(other: int) -> Seen:
        return Seen(int(cells.row[other]), int(cells.segment[other]), float(most[other]))

    documents = cells.segment > 0
    here = np.flatnonzero(documents & (cells.row == row) & (np.arange(len(most)) != one))
    away = np.flatnonzero(documents & (cells.row != row))
    first, stop = int(cells.first[one]), int(cells.stop[one])
    return Probe(
        row,
        int(cells.segment[one]),
        first - row * seq_len,
        stop - row * seq_len,
        float(most[one]),
        tuple(seen(other) for other in here.tolist()),
        seen(int(away[np.argmax(most[away])])) if len(away) else None,
    )


def _logits(model: Model, cells: _Cells, tokens: Int64, batch: Any) -> Array:
    """The logits of the model for some tokens [B, S, V]."""
    found = to_numpy(model(_like(cells.given, tokens), batch))
    if found.ndim != 3 or found.shape[:2] != tokens.shape:
        raise ConfigError(
            f"model: found a result of shape {list(found.shape)}, allowed: "
            f"[{', '.join(map(str, tokens.shape))}, V]. Wrap it so that it returns its logits."
        )
    return found


def _apart(one: Array, other: Array) -> Array:
    """The largest difference at every cell [B S]; equal infinities are equal."""
    with np.errstate(invalid="ignore"):
        apart = np.where(one == other, 0, np.abs(one - other))
    most: Array = apart.reshape(-1, apart.shape[-1]).max(axis=1)
    return most


def _like(given: Any, values: Array) -> Any:
    """Values as an array, or as a tensor if the tokens are one."""
    if hasattr(given, "new_tensor"):
        return given.new_tensor(values)
    return values.astype(np.asarray(given).dtype)


def _field(batch: Any, name: str) -> Any:
    return batch.get(name) if isinstance(batch, Mapping) else getattr(batch, name, None)


def _check(**values: tuple[float, float]) -> None:
    """Refuse values below their minimum."""
    for name, (found, least) in values.items():
        check_between(name, found, least)
