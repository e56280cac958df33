"""Evaluation while a model trains: every few steps, in any loop, kept in files.

A `Periodic` calls its functions when a step is due and writes three files after each:
``results.jsonl``, a line for each evaluation with everything that was found; ``results.csv``, the
figures of all of them as columns; and ``results.svg``, their curves. A run that continues from a
checkpoint continues its files: what was evaluated at a later step than it starts from is evaluated
again and replaced.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenloom.arguments import integer, local_path
from tokenloom.errors import ConfigError, InputError
from tokenloom.evaluate.answer_files import gathered
from tokenloom.loader.ranks import find_ranks
from tokenloom.page.charts import SERIES, lines, series
from tokenloom.page.standalone import DRAWN, Panel, standalone
from tokenloom.store.files import LOCAL, replace_file

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
