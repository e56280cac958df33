"""Evaluation while a model trains: every few steps, in any loop, kept in files.

A `Periodic` calls its functions when a step is due and writes three files after each:
``results.jsonl``, a line for each evaluation with everything that was found; ``results.csv``, the
figures of all of them as columns; and ``results.svg``, their curves. A run that continues from a
checkpoint continues its files: what was evaluated at a later step than it starts from is evaluated
again and replaced.

An evaluation at every checkpoint gives each document a curve, and where a curve crosses a line is
when the document was `learned`. Those that never cross it are told, too.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tokenloom.arguments import integer, local_path
from tokenloom.errors import ConfigError, InputError
from tokenloom.evaluate.answer_files import gathered
from tokenloom.loader.ranks import find_ranks
from tokenloom.page.charts import SERIES, lines, series
from tokenloom.page.standalone import DRAWN, Panel, standalone
from tokenloom.store.files import LOCAL, replace_file


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
        for name, figures in documents_of(one["results"].get(job)).items():
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


def documents_of(answer: Any) -> Mapping[str, Mapping[str, Any]]:
    """The figures of each document of an answer; none if it has no such figures."""
    if not isinstance(answer, Mapping):
        return {}
    by = answer.get("by")
    inside = by.get("document") if isinstance(by, Mapping) else None
    found = inside or answer.get("documents")
    return found if isinstance(found, Mapping) else {}


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


FILE = "results.jsonl"

APART = {"by", "documents", "settings", "intervals"}  # of an answer: many, or no figures

MOST = 1 << 30  # bytes of results that are read again


class Periodic:
    """Evaluates a model every few steps, and keeps what was found.

    Args:
        jobs: functions of the model by name; each returns an answer of this room (anything with
            `as_json`), or a mapping of figures.
        folder: where the files go; None keeps everything in memory.
        every: steps from one evaluation to the next.
        also: further steps to evaluate at, for example ``(0, 100)``.
        write: whether this process writes files; None: the first rank does. Answers of several
            ranks are put together first, so every rank must call it.

    >>> counted = Periodic({"toy": lambda model: {"loss": model / 10}}, every=2)
    >>> [counted(model=step * 1.0, step=step) is not None for step in range(5)]
    [False, False, True, False, True]
    >>> counted.figures("toy.loss")
    [(2, 0.2), (4, 0.4)]
    """

    def __init__(
        self,
        jobs: Mapping[str, Callable[[Any], Any]],
        *,
        folder: str | os.PathLike[str] | None = None,
        every: int,
        also: tuple[int, ...] = (),
        write: bool | None = None,
    ) -> None:
        if not jobs:
            raise ConfigError("jobs: found none, allowed: at least one function of the model.")
        integer("every", every, 1)
        self.jobs, self.every, self.also = dict(jobs), every, frozenset(also)
        self.folder = None if folder is None else local_path("folder", folder)
        self.records: list[dict[str, Any]] = []
        self._write = write
        if self.folder is not None:
            self.records = read_records(self.folder / FILE)

    def is_due(self, step: int) -> bool:
        """Whether a model after this many steps is evaluated."""
        return step in self.also or (step > 0 and step % self.every == 0)

    def __call__(self, model: Any, step: int, **about: Any) -> dict[str, Any] | None:
        """Evaluate a model after `step` steps, if it is due.

        Args:
            model: what the functions get.
            step: steps that it was trained for.
            about: plain values to write beside the results, for example the tokens it has seen.

        Returns:
            The record that was written; None if nothing was due.
        """
        if not self.is_due(step):
            return None
        found = {name: _plain(job(model)) for name, job in self.jobs.items()}
        record = {"step": step, **about, "results": found}
        self.records = [one for one in self.records if one["step"] < step] + [record]
        first = find_ranks(None, None)[0] == 0
        if self.folder is not None and (first if self._write is None else self._write):
            self._save(self.folder)
        return record

    def figures(self, name: str) -> list[tuple[int, float]]:
        """(step, value) of a figure, named like "held-out.all.loss"."""
        found = ((one["step"], flat(one["results"])) for one in self.records)
        return [(step, values[name]) for step, values in found if name in values]

    def latest(self) -> dict[str, float]:
        """The figures of the newest evaluation by name, such as "held-out.all.loss".

        Those of single documents and bins are left out.
        """
        found = flat(self.records[-1]["results"]) if self.records else {}
        return {name: one for name, one in found.items() if not APART & {*name.split(".")}}

    def _save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(one, allow_nan=True) + "\n" for one in self.records)
        replace_file(folder / FILE, text.encode())
        replace_file(folder / "results.csv", self._table().encode())
        names = {name: self.figures(name) for name in self._names() if name.endswith("loss")}
        if names:
            replace_file(folder / "results.svg", curves("Losses", names).encode())

    def _names(self) -> list[str]:
        """Figures that every evaluation has, without those of single documents and bins."""
        every = [flat(one["results"]) for one in self.records]
        return [name for name in self.latest() if all(name in one for one in every)]

    def _table(self) -> str:
        names, text = self._names(), io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["step", *names])
        for one in self.records:
            values = flat(one["results"])
            writer.writerow([one["step"], *(values[name] for name in names)])
        return text.getvalue()


def flat(results: Mapping[str, Any], path: str = "") -> dict[str, float]:
    """Numbers of nested mappings by their dotted paths; lists and words are left out.

    >>> flat({"a": {"loss": 1.5, "name": "x"}, "b": 2})
    {'a.loss': 1.5, 'b': 2}
    """
    found: dict[str, float] = {}
    for name, value in results.items():
        where = f"{path}{name}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{where}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[where] = value
    return found


def _plain(answer: Any) -> dict[str, Any]:
    if hasattr(answer, "to_bytes"):
        answer = gathered(answer)
    found = answer.as_json() if hasattr(answer, "as_json") else answer
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"jobs: one returned {type(answer).__name__}, allowed: a mapping of figures, or an "
            "answer with as_json()."
        )
    return {name: _number(value) for name, value in found.items()}


def _number(value: Any) -> Any:
    """Plain Python values; NumPy's and tensors of one element become them."""
    if isinstance(value, Mapping):
        return {name: _number(one) for name, one in value.items()}
    if hasattr(value, "item") and not isinstance(value, str):
        return value.item()
    return value


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records that were written so far; none if there is no file."""
    found = []
    for number, line in enumerate((LOCAL.read(path, MOST) or b"").splitlines(), 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        match record:
            case {"step": int(), "results": dict()}:
                found.append(record)
            case _:
                raise InputError(
                    f"{path}, line {number}: found {line[:60]!r}, allowed: the record of an "
                    "evaluation, with step and results. Move the file away to start anew."
                )
    return found


def curves(
    title: str,
    named: Mapping[str, Sequence[tuple[float, float]]],
    *,
    across: str = "step",
    caption: str = "",
) -> str:
    """A picture of several curves.

    Args:
        title: what it shows.
        named: points (x, y) of each curve, by its name; values that are not finite are left out.
        across: what the horizontal axis is.
        caption: a line below the title.

    >>> picture = curves("Losses", {"train": [(0, 3.0), (10, 1.0)], "held out": [(0, 3.1)]})
    >>> picture.startswith("<svg"), picture.count('class="line'), "held out" in picture
    (True, 2, True)
    """
    known = {
        name: [(x, y) for x, y in points if math.isfinite(y)] for name, points in named.items()
    }
    alternative = f"{', '.join(list(known)[:SERIES])} over {across}"
    return standalone(
        title,
        [caption] if caption else [],
        [Panel(lines(known, DRAWN, alternative, below=across), legend=_legend(list(known)))],
    )


def _legend(names: Sequence[str]) -> list[tuple[str, str]]:
    """The names of the curves; those that share a colour are counted.

    >>> _legend(["a", "b"]), _legend(["a"] * 10)[-1]
    ([('a', 's1'), ('b', 's2')], ('2 more', 'rest'))
    """
    found = [(name, series(number)) for number, name in enumerate(names[:SERIES])]
    left = len(names) - SERIES
    return [*found, (f"{left} more", series(SERIES))] if left > 0 else found
