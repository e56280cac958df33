"""`audit_batches`: judges the batches of any loader by what they tell about themselves.

A batch that names its rows (`index`) or its stretches of documents (`spans`) can be counted, and a
batch that has arrays can be held to the laws of arrays. What a batch does not tell is not judged,
and the verdict says so: without provenance nothing is known about rows that were lost, repeated or
out of order.

With ``run=`` the batches must be those of a run of tokenloom, cell by cell: that judges what a
trainer really got.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.api.dataset import Dataset, dataset_of
from tokenloom.arguments import integer
from tokenloom.arrays import Int64
from tokenloom.batch.attention import to_numpy
from tokenloom.batch.batch import Batch
from tokenloom.batch.check import LAWS, check_batch
from tokenloom.batch.views.digest import digest_of, row_hashes
from tokenloom.bind import unbind
from tokenloom.errors import ConfigError, NoTrainedTokens
from tokenloom.inspect.audit.counts import (
    INDEX_LAWS,
    SPAN_LAWS,
    SpanCounts,
    judge_indices,
    order_digest,
    stretches_of,
)
from tokenloom.inspect.audit.laws import Findings, LawVerdict

Array = NDArray[Any]

MAX_EPOCHS = 1 << 20  # each is judged by itself, in tens of microseconds

OF_BATCHES = (*LAWS, "shape", "dtype", "eos")

COMPARED = ("tokens", "labels", "loss_mask", "loss_weights", "segment_ids", "position_ids")

NO_PROVENANCE = (
    "lost, repeated and replayed rows: no batch has an index or spans, so only the laws of arrays "
    "and digests are judged"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchAudit:
    """What `audit_batches` found; `print` it for a table.

    Attributes:
        provenance: what the batches tell: "index", "spans", "index and spans" or "none".
        laws: the verdict on every law that could be looked at.
        counts: rows, epochs, tokens, for people.
        digests: of the order ("order") and of the arrays ("arrays"), where they are known.
        not_looked_at: what the verdicts say nothing about.

    >>> found = audit_batches(np.array([0, 1, 2, 1]), rows=3, epochs=1)
    >>> found.ok, found.provenance, found.laws["repeated"].examples
    (False, 'index', ('epoch 0: row 1 comes 2 times',))
    """

    provenance: str
    laws: dict[str, LawVerdict]
    counts: dict[str, Any]
    digests: dict[str, str]
    not_looked_at: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether no law that was looked at is broken."""
        return not any(law.broken for law in self.laws.values())

    def as_json(self) -> dict[str, Any]:
        """The findings as plain JSON."""
        plain: dict[str, Any] = unbind(self)
        return {"ok": self.ok, **plain}

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The findings as lines of text."""
        verdict = "every law that was looked at holds" if self.ok else "BROKEN"
        yield f"batches: {self.counts['batches']:,}, provenance {self.provenance}: {verdict}"
        for name, law in self.laws.items():
            told = f"{law.broken:,} broken" if law.broken else "holds"
            yield f"  {name:<16} {told:<12} {law.looked_at:>14,} {law.unit}"
            yield from (f"    {one}" for one in law.examples)
        others = {name: value for name, value in self.counts.items() if name != "batches"}
        yield from (f"  {name}: {value}" for name, value in others.items())
        yield from (f"  not looked at: {one}" for one in self.not_looked_at)


def audit_batches(
    *streams: Any,
    run: Dataset | None = None,
    rows: int | None = None,
    epochs: int | None = None,
    lengths: ArrayLike | None = None,
    label_layout: str | None = None,
    strict: bool = False,
    eos_id: int | None = None,
) -> BatchAudit:
    """What is wrong with batches, tokenloom's or anybody's; nothing is raised.

    Args:
        streams: for each rank, its batches in order, or all its indices as an array. A batch is a
            mapping or an object with any of ``index`` (row numbers), ``spans`` (objects or triples
            of document, start, length), and the arrays that `tokenloom.check_batch` takes.
        run: the batches must be those of this run: every cell is compared with it.
        rows: rows of an epoch; default: those of the run. Without them nothing is known to be lost.
        epochs: how many epochs the batches are, judged one by one; default: all as one
            collection, in which every row comes at least once, and equally often up to one.
        lengths: tokens of each document, to find lost tokens and documents that never come.
        label_layout: "aligned" or "shifted"; default: that of each batch.
        strict: hold batches to our conventions as well; see `tokenloom.check_batch`.
        eos_id: the token that ends documents: is its prediction trained anywhere?

    Raises:
        ConfigError: there is nothing to judge.

    >>> lost = audit_batches(np.array([[2, 0], [1, 4]]), rows=5)
    >>> lost.ok, lost.laws["lost"].examples
    (False, ('epoch 0: row 3 comes 0 times',))
    """
    if not streams:
        raise ConfigError("audit: found no batches. Give the batches of each rank, or indices.")
    if run is not None:
        rows = dataset_of("audit.run", run).run.n if rows is None else rows
    if rows is not None:
        integer("rows", rows, least=1)
    if epochs is not None:
        integer("epochs", epochs, least=1, most=MAX_EPOCHS)
    audit = _BatchAudit(run, epochs, lengths, label_layout, strict, eos_id)
    found = [audit.stream(stream) for stream in streams]
    return audit.finish(found, rows)


class _BatchAudit:
    """One audit under way."""

    def __init__(
        self,
        run: Dataset | None,
        epochs: int | None,
        lengths: ArrayLike | None,
        label_layout: str | None,
        strict: bool,
        eos_id: int | None,
    ) -> None:
        self._findings = Findings((*INDEX_LAWS, *SPAN_LAWS, *OF_BATCHES))
        self._run, self._epochs, self._eos = run, epochs, eos_id
        self._options: dict[str, Any] = {"label_layout": label_layout, "strict": strict}
        self._spans = None
        if lengths is not None:
            self._spans = SpanCounts(np.asarray(lengths, np.int64), epochs, self._findings)
        self._counted = self._batches = self._with_arrays = 0
        self._hashes: list[tuple[int, bytes]] = []
        self._can_hash = True
        self._eos_seen = self._eos_trained = self._trained = 0

    # -- one stream after the other --------------------------------------------------------

    def stream(self, stream: Iterable[Any]) -> Int64 | None:
        """Look at the batches of a rank; its indices, or None if they are not told."""
        if isinstance(stream, np.ndarray):
            self._batches += 1
            return _indices(stream)
        found, complete = [np.empty(0, np.int64)], True
        for batch in [stream] if isinstance(stream, (Mapping, Batch)) else stream:
            self._batches += 1
            if isinstance(batch, (np.ndarray, list, tuple)):
                found.append(_indices(np.asarray(batch)))
                continue
            index = field_of(batch, "index")
            complete &= index is not None
            if index is not None:
                found.append(_indices(index))
            self._look(batch, None if index is None else found[-1])
        return np.concatenate(found) if complete and len(found) > 1 else None

    def _look(self, batch: Any, index: Int64 | None) -> None:
        told = batch.get("spans") if isinstance(batch, dict) else getattr(batch, "spans", None)
        stretches = stretches_of(told)
        if stretches is not None and self._spans is not None:
            self._spans.add(stretches)
        self._counted += 0 if stretches is None else len(stretches)
        if field_of(batch, "tokens") is None and field_of(batch, "labels") is None:
            return
        self._with_arrays += 1
        self._judge_eos(batch)
        self._hash(batch, index)
        if index is None or not self._compare(batch, index):
            self._judge_laws(batch)

    def _judge_laws(self, batch: Any) -> None:
        report = check_batch(batch, **self._options)
        for law in (*report.checked, "shape", "dtype"):
            problems = [one for one in report.problems if one.law == law]
            self._findings.record(
                law,
                "rows",
                report.facts.rows,
                np.arange(len(problems)),
                [f"batch {self._batches - 1}, {one}" for one in problems].__getitem__,
                broken=report.totals.get(law, 0),
            )

    def _judge_eos(self, batch: Any) -> None:
        """Count the EOS that end documents, and those of them that are trained on."""
        tokens, labels = field_of(batch, "tokens"), field_of(batch, "labels")
        if self._eos is None or tokens is None or labels is None or tokens.ndim != 2:
            return
        segment, mask = field_of(batch, "segment_ids"), field_of(batch, "attention_mask")
        real = segment if segment is not None else mask
        if real is None:
            return
        layout = self._options["label_layout"] or field_word(batch, "label_layout")
        target = labels[:, 1:] != -100 if layout != "shifted" else labels[:, :-1] != -100
        ends = (tokens[:, 1:] == self._eos) & (real[:, 1:] != 0) & (real[:, :-1] != 0)
        self._eos_seen += int(ends.sum())
        self._eos_trained += int((ends & target).sum())
        self._trained += int(target.sum())

    def _hash(self, batch: Any, index: Int64 | None) -> None:
        try:
            hashes = row_hashes(batch)
        except (ConfigError, TypeError):
            self._can_hash = False
            return
        first = len(self._hashes)
        places = range(first, first + len(hashes)) if index is None else index.tolist()
        self._hashes += list(zip(places, hashes, strict=False))

    def _compare(self, batch: Any, index: Int64) -> bool:
        """Compare every cell with the run; whether that could be done."""
        n = None if self._run is None else self._run.run.n
        if self._run is None or (index < 0).any() or (n is not None and (index >= n).any()):
            return False  # filler, or rows that `in_range` reports
        wanted = self._run.batch(index)
        for name in COMPARED:
            found, right = field_of(batch, name), field_of(wanted, name)
            if found is not None and right is not None:
                self._findings.record_cells(name, found, right, index)
        return True

    # -- the end ------------------------------------------------------------------------------

    def finish(self, streams: list[Int64 | None], rows: int | None) -> BatchAudit:
        """Judge what only the whole shows."""
        counts: dict[str, Any] = {"batches": self._batches}
        known = [stream for stream in streams if stream is not None]
        indexed = len(known) == len(streams)
        digests = {}
        if indexed:
            counts |= judge_indices(known, rows, self._epochs, self._findings)
            digests["order"] = order_digest(known)
        spanned = self._counted > 0
        if self._spans is not None and spanned:
            counts |= self._spans.finish()
        if self._eos_seen:
            told = (
                f"none of {self._eos_seen:,} EOS is trained on, though other tokens are: a mask "
                "made from token values where PAD is EOS?"
            )
            is_wrong = self._trained and not self._eos_trained
            self._findings.record_whole("eos", "EOS", self._eos_seen, told if is_wrong else "")
        if self._hashes and self._can_hash:
            order = sorted(self._hashes, key=lambda one: one[0])
            digests["arrays"] = digest_of(one for _, one in order)
        told = " and ".join([*["index"] * indexed, *["spans"] * spanned]) or "none"
        return BatchAudit(
            provenance=told,
            laws={name: law for name, law in self._findings.verdicts.items() if law.looked_at},
            counts=counts,
            digests=digests,
            not_looked_at=tuple(self._left_out(indexed, spanned, rows)),
        )

    def _left_out(self, indexed: bool, spanned: bool, rows: int | None) -> Iterator[str]:
        if not indexed and not spanned:
            yield NO_PROVENANCE
        elif not indexed:
            yield "rows: not every batch has an index"
        if indexed and rows is None:
            yield "lost rows: rows= is not given, so nobody knows how many there are"
        if indexed and self._epochs is None:
            yield "each epoch by itself: epochs= is not given"
        if spanned and self._spans is None:
            yield "lost tokens and documents: lengths= is not given"
        if not self._with_arrays:
            yield "arrays: no batch has any"
        if self._run is None and self._with_arrays:
            yield "whether tokens are those of a store: run= is not given"


def field_of(batch: Any, name: str) -> Array | None:
    """An array of a batch, or None; `input_ids` is another name of `tokens`."""
    names = (name, "input_ids") if name == "tokens" else (name,)
    for one in names:
        try:
            found = field_word(batch, one)
        except NoTrainedTokens:
            return batch.trained() if one == "loss_mask" else None
        if found is not None:
            return to_numpy(found)
    return None


def field_word(batch: Any, name: str) -> Any:
    """A field of a batch that is a word."""
    return batch.get(name) if isinstance(batch, dict) else getattr(batch, name, None)


def _indices(found: NDArray[Any]) -> Int64:
    """Indices as one axis; floats and the like are refused."""
    if found.dtype.kind not in "iu":
        raise ConfigError(f"index: found {found.dtype}, allowed: integers.")
    flat: Int64 = found.reshape(-1).astype(np.int64)
    return flat
