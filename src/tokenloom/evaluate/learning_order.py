"""Which documents a model learns first.

One idea: an evaluation at every checkpoint gives each document a curve, and where a curve crosses a
line is when the document was learned. Those that never cross it are told, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tokenloom.errors import ConfigError


class LearnedDocument(NamedTuple):
    """The curve of one document.

    Attributes:
        document: its number, or "source/number" in a mix.
        step: where its figure crosses the line, between two checkpoints by a straight line; None
            if it never stays beyond it.
        first: the figure at the first checkpoint.
        last: the same at the last one.
        mean: over all checkpoints, each weighted by the steps around it.
    """

    document: str
    step: float | None
    first: float
    last: float
    mean: float


@dataclass(frozen=True, kw_only=True)
class Learned:
    """Documents, those that were learned fastest first; made by `learned`.

    Attributes:
        documents: sorted by `step`, those that never were by the mean of their curve.
        figure: what was looked at.
        line: the value that counts as learned.
        steps: the checkpoints.

    >>> one = LearnedDocument("7", 150.0, 3.0, 0.5, 1.5)
    >>> found = Learned(documents=(one,), figure="loss", line=1.0, steps=(100, 200))
    >>> found.never, list(found.lines())[1]
    ((), '  document 7: at step 150 (3.000 at the first, 0.500 at the last checkpoint)')
    """

    documents: tuple[LearnedDocument, ...]
    figure: str
    line: float
    steps: tuple[int, ...]

    @property
    def never(self) -> tuple[LearnedDocument, ...]:
        """Documents that were not learned by the last checkpoint."""
        return tuple(one for one in self.documents if one.step is None)

    def lines(self, most: int = 10) -> Iterator[str]:
        """The fastest and the slowest of them."""
        known = [one for one in self.documents if one.step is not None]
        yield (
            f"{len(known):,} of {len(self.documents):,} documents reach {self.figure} "
            f"{self.line:g} between step {self.steps[0]:,} and {self.steps[-1]:,}"
        )
        shown = (
            known if len(known) <= most else [*known[: most // 2], *known[-(most - most // 2) :]]
        )
        for one in shown:
            yield (
                f"  document {one.document}: at step {one.step:,.0f} ({one.first:.3f} at the "
                f"first, {one.last:.3f} at the last checkpoint)"
            )
        if len(shown) < len(known):
            yield f"  {len(known) - len(shown):,} between them are not shown"
        if self.never:
            names = ", ".join(one.document for one in self.never[:most])
            rest = len(self.never) - most
            yield f"  never: {names}{f' and {rest:,} more' if rest > 0 else ''}"


def learned(
    records: Sequence[Mapping[str, Any]],
    job: str,
    *,
    figure: str = "loss",
    line: float = 1.0,
) -> Learned:
    """Which documents were learned when.

    Args:
        records: those of `tokenloom.evaluate.Periodic`, or the lines of its ``results.jsonl``.
        job: the name of the evaluation; its answer has figures by document, as those of
            `tokenloom.evaluate.evaluate` (with "document" among its axes) and `pz` have.
        figure: of a document, such as "loss", "bits_per_byte", or "mean_pz" and "greedy" of `pz`.
        line: a document is learned once its figure is on the better side of this value and stays
            there. Losses, perplexities and bits are better below; anything else is better above.

    Raises:
        ConfigError: nothing was found by document.

    >>> def record(step, a, b):
    ...     return {"step": step, "results": {"held": {"by": {"document": {
    ...         "0": {"loss": a}, "1": {"loss": b}}}}}}
    >>> found = learned([record(10, 3.0, 2.0), record(20, 2.0, 0.5), record(30, 1.5, 0.4)], "held")
    >>> [(one.document, one.step and round(one.step, 2)) for one in found.documents]
    [('1', 16.67), ('0', None)]
    """
    below = figure in ("loss", "perplexity", "bits_per_byte")
    points: dict[str, list[tuple[int, float]]] = {}
    for one in sorted(records, key=lambda record: record["step"]):
        for name, figures in _documents(one["results"].get(job, {})).items():
            if figure in figures:
                points.setdefault(name, []).append((one["step"], float(figures[figure])))
    if not points:
        known = sorted({name for one in records for name in one["results"]})
        raise ConfigError(
            f"job: found {job!r} without a {figure!r} by document; allowed: one of {known}, whose "
            'answers have it. Evaluate with by=("document",), and give its `figure`.'
        )
    every = [_curve(name, curve, line, below) for name, curve in points.items()]
    sign = 1 if below else -1
    every.sort(key=lambda one: (one.step is None, one.step or 0, sign * one.mean, one.document))
    steps = tuple(sorted({step for curve in points.values() for step, _ in curve}))
    return Learned(documents=tuple(every), figure=figure, line=line, steps=steps)


def _documents(answer: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    by: Mapping[str, Any] = answer.get("by", {})
    found: Mapping[str, Mapping[str, Any]] = by.get("document") or answer.get("documents", {})
    return found


def _curve(
    name: str, curve: Sequence[tuple[int, float]], line: float, below: bool
) -> LearnedDocument:
    values = [value for _, value in curve]
    good = [value <= line if below else value >= line for value in values]
    first = len(good)
    while first and good[first - 1]:
        first -= 1
    return LearnedDocument(
        document=name,
        step=_crossing(curve, first, line),
        first=values[0],
        last=values[-1],
        mean=_mean(curve),
    )


def _crossing(curve: Sequence[tuple[int, float]], first: int, line: float) -> float | None:
    """Where a curve that is beyond the line from `first` on reaches it."""
    if first == len(curve):
        return None
    step, value = curve[first]
    if not first or not math.isfinite(curve[first - 1][1]):
        return float(step)
    earlier, other = curve[first - 1]
    return earlier + (step - earlier) * (line - other) / (value - other)


def _mean(curve: Sequence[tuple[int, float]]) -> float:
    """Of a curve, by trapezoids.

    >>> _mean([(0, 2.0), (10, 1.0), (30, 1.0)]), _mean([(5, 3.0)])
    (1.1666666666666667, 3.0)
    """
    width = curve[-1][0] - curve[0][0]
    if not width:
        return curve[-1][1]
    pieces = itertools.pairwise(curve)
    return sum((b - a) * (x + y) / 2 for (a, x), (b, y) in pieces) / width
