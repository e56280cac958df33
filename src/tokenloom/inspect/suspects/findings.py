"""What `blame` answers, as frozen records: for people as text, for programs as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tokenloom.errors import plural

__all__ = ["Blame", "BlamedDocument", "BlamedPosition", "BlamedSource", "SpikeStep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpikeStep:
    """A step whose loss is far above those around it.

    Attributes:
        step: its number.
        loss: its loss.
        usual: the running median there.
        score: how far above it, in running standard deviations (1.4826 MAD).
        named: named documents in it, as (source, document).
    """

    step: int
    loss: float
    usual: float
    score: float
    named: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlamedDocument:
    """A document, and what its presence adds to the loss.

    Attributes:
        source, document: which one.
        shown: rows, or steps, of the given losses that hold it.
        tokens: its tokens in them.
        effect: loss that its own tokens have above the usual, estimated.
        error: standard error of the effect.
        score: effect over error; documents are named by it.
        is_named: whether the score is above the threshold.
        needed: how many rows, or steps, that hold only one of two documents tell an effect of this
            size from none, at three standard errors.
        same: documents that the given losses do not tell apart from this one, at three standard
            errors, as (source, document, how many rows, or steps, hold only one of the two).
    """

    source: str
    document: int
    shown: int
    tokens: int
    effect: float
    error: float
    score: float
    is_named: bool
    needed: int
    same: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlamedSource:
    """What a source adds: losses of its rows (of its tokens) above the running median.

    Attributes:
        source: its name.
        count: rows, or tokens, of it.
        above: mean of their losses less the running median.
        error: standard error of that mean.
    """

    source: str
    count: int
    above: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BlamedPosition:
    """Losses of predictions made at positions [first, last): mean, standard error and count."""

    first: int
    last: int
    loss: float
    error: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Blame:
    """Which documents the losses of a run blame.

    Attributes:
        per: what a loss was given for: "step", "row" or "token".
        losses: how many were used.
        first, last: the examples they are about.
        window: steps of the running median and MAD.
        spikes: steps that stand out, highest first.
        documents: by score, highest first; all that are named come first.
        looked_at: documents that the losses are about.
        threshold: the score above which a document is named.
        false_positives: the probability that anybody is named if no document matters.
        sources: by source.
        frame, inside: by position in the frame, and in the document; from token losses only.
        edit: the quarantine, ready to paste; empty if nobody is named.
        notes: what to know about these tables.

    >>> import tempfile, numpy as np, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": f"document {n:07d}"} for n in range(40)]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     run = store.windows(16).shuffle()
    ...     found = tl.blame(run, np.sin(np.arange(40)), index=np.arange(40))  # one a row
    ...     found.per, found.losses, found.edit
    ('row', 40, '')
    """

    per: str
    losses: int
    first: int
    last: int
    window: int
    spikes: tuple[SpikeStep, ...]
    documents: tuple[BlamedDocument, ...]
    looked_at: int
    threshold: float
    false_positives: float
    sources: tuple[BlamedSource, ...]
    frame: tuple[BlamedPosition, ...]
    inside: tuple[BlamedPosition, ...]
    edit: str
    notes: tuple[str, ...]

    @property
    def named(self) -> tuple[tuple[str, int], ...]:
        """The named documents, as (source, document)."""
        return tuple((one.source, one.document) for one in self.documents if one.is_named)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain JSON."""
        plain: dict[str, Any] = _plain(asdict(self) | {"named": self.named})
        return plain

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        found = plural(len(self.named), "document")
        about = f"{self.losses:,} losses per {self.per}, examples {self.first:,} to {self.last:,}"
        lines = [f"Blame: {about}: {found} of {self.looked_at:,} named"]
        lines += [f"├─ spike   {_spike_in_words(one)}" for one in self.spikes[:5]]
        lines += [f"├─ {_in_words(one)}" for one in self.documents[:10]]
        lines += [
            f"├─ source  {one.source}: {one.above:+.4f} ± {one.error:.4f} ({one.count:,})"
            for one in self.sources
        ]
        lines += [f"├─ note    {note}" for note in self.notes]
        chance = f"named above a score of {self.threshold:.1f}: somebody by chance in "
        lines.append(f"{'├─' if self.edit else '└─'} {chance}{self.false_positives:.0%} of runs")
        lines += [f"└─ {self.edit}"] if self.edit else []
        return lines


def _spike_in_words(one: SpikeStep) -> str:
    losses = f"loss {one.loss:.4g}, usually {one.usual:.4g}"
    return f"step {one.step:,}: {losses}, {one.score:.1f} deviations"


def _in_words(one: BlamedDocument) -> str:
    word = "named  " if one.is_named else "not    "
    told = (
        f"{word} {one.source} {one.document}: {one.effect:+.3g} ± {one.error:.2g}, score "
        f"{one.score:.1f}, shown {one.shown:,} times; {one.needed:,} tell such a one apart"
    )
    if one.same:
        others = ", ".join(f"{source} {document}" for source, document, _ in one.same[:3])
        more = f" and {len(one.same) - 3:,} more" if len(one.same) > 3 else ""
        told += f"; not told apart from {others}{more}"
    return told


def _plain(value: Any) -> Any:
    """Tuples as lists, at any depth."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
