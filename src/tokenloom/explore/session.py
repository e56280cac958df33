"""What is explored: one run or two, and what was found out about them for all pages.

One idea: pages are pure functions of a session and a query. What several of them need (steps,
colours of sources, the strings of tokens) is kept here when the first one asks; everything kept
is bounded. Costly things are made once, whoever asks; the report by a thread of its own.
"""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store
from tokenloom.errors import ConfigError, NotKept, TokenloomError
from tokenloom.explore.made_aside import Aside
from tokenloom.inspect.diff import RunDiff, diff
from tokenloom.layout.pack.kept_rows import PLANS
from tokenloom.order.schedule import Steps
from tokenloom.report.assembled import report_on
from tokenloom.report.report_file import Report
from tokenloom.report.subject import Asked, RunSubject
from tokenloom.runfiles.written import run_mapping
from tokenloom.store.derived.hash_index import HashIndex, keep_hash_index, kept_hash_index
from tokenloom.store.handles import LEAVE_SECONDS, Single, lazy, lock_of

__all__ = ["ExploredRun", "Session"]

COLOURED = 8  # sources with a colour of their own

T = TypeVar("T")

KEPT_STRINGS = 1 << 18  # tokens of a store


class ExploredRun:
    """A run that is looked at.

    Args:
        run: the run.
        name: what it is called.
        number: 0 for the first run of a session, 1 for the other.
        batch_size: rows of a step; None: as its file says, or 64.

    Attributes:
        path: its run file as it was given, or an empty string.
    """

    def __init__(self, run: Dataset, name: str, number: int, batch_size: Any = None) -> None:
        self.run, self.name, self.number = run, name, number
        self.path = run.file.path if run.file is not None and run.file.path else ""
        self._asked = Asked(batch_size=batch_size, name=name)
        self._subject = RunSubject(run, self._asked)
        self._strings: dict[str, dict[int, str]] = {}
        self._indexes: dict[str, HashIndex] = {}

    @property
    def batch_size(self) -> int | Sequence[tuple[int, int]]:
        """Rows of a step, or a schedule."""
        return self._subject.batch_size

    @property
    def steps(self) -> Steps:
        """Which examples each step has."""
        return self._subject.steps

    @lazy
    def step_count(self) -> int | None:
        """Steps of the run, a short last one included; None: it is endless."""
        n = self.run.run.n
        return None if n is None else self.steps.count(n, partial=True)

    @lazy
    def stores(self) -> dict[str, Store]:
        """The store of each source, with what was appended to it during the run."""
        lines = zip(self.run.sources.items(), self.run.run.sources, strict=True)
        return {name: Store(run.layout.line.reader, one.path) for (name, one), run in lines}

    def colours(self, shown: Iterable[str]) -> dict[str, int]:
        """Number of the colour of each source on a page, from 1 on; 9 for those after the eight.

        A run of up to eight sources has the same colours on every page. Of more sources, those of
        a page get them in the order given, the largest share first.
        """
        names = self.run.run.names
        wanted = list(dict.fromkeys(shown))
        own = {name: k for k, name in enumerate(names if len(names) <= COLOURED else wanted, 1)}
        return {name: min(own[name], COLOURED + 1) for name in wanted}

    @lazy
    def settings(self) -> dict[str, Any]:
        """What its run file says."""
        return run_mapping(self.run, folder=os.path.dirname(self.path))

    def keeping(
        self,
        missing: NotKept,
        *,
        examples: Sequence[int] = (),
        steps: Sequence[int] = (),
        document: tuple[str, int] | None = None,
    ) -> str:
        """What makes and keeps that which a page lacks; then the page is shown.

        Plans of packed rows are kept for all rows together. Sums are kept by whoever asks without
        a limit, about an example, a step, or a document after an example.
        """
        if missing.what == PLANS:
            return self._subject.python(
                "from tokenloom.cluster import prepare_run\n\n"
                'prepare_run(run, epochs=0, executor="local")'
            )
        if self.path:
            words = [["at", self.path, *one] for one in self._asked_by_word(examples, steps)]
            if document is not None:
                words = [["where", self.path, "--source", document[0], "--doc", str(document[1])]]
                words[0] += ["--after", str(examples[0]), "--limit", "1"]
            return "\n".join(shlex.join(["tokenloom", *one]) for one in words)
        lines = [f"run.at({one})" for one in examples]
        lines += [f"run.at(step={one}, batch_size={self._subject.sizes})" for one in steps]
        if document is not None:
            lines = [f"run.next({document[0]!r}, {document[1]}, after={examples[0]})"]
        return self._subject.python("\n".join(lines))

    def _asked_by_word(self, examples: Sequence[int], steps: Sequence[int]) -> list[list[str]]:
        """What `tokenloom at` is given for each of them."""
        sizes = self._subject.sizes
        told = str(sizes) if isinstance(sizes, int) else ",".join(f"{a}:{b}" for a, b in sizes)
        by_step = [["--step", str(one), "--batch-size", told] for one in steps]
        return [*([str(one)] for one in examples), *by_step]

    def strings(self, source: str, ids: ArrayLike) -> list[str]:
        """A printable string for each token of a source; its number where nothing decodes it."""
        wanted = np.asarray(ids).tolist()
        decoder = self.stores[source].tokenizer
        if decoder is None or decoder.kind == "callable":
            return [f" {one}" for one in wanted]
        known = self._strings.get(source, {})
        missing = sorted({one for one in wanted if one not in known})
        if missing:
            made = (_shown(decoder, one) for one in missing)
            old = known if len(known) + len(missing) <= KEPT_STRINGS else {}
            known = {**old, **dict(zip(missing, made, strict=True))}
            self._strings = {**self._strings, source: known}  # threads may have added others
        return [known[one] for one in wanted]

    def text(self, source: str, ids: NDArray[Any]) -> str | None:
        """Tokens as text; None where nothing decodes them."""
        decoder = self.stores[source].tokenizer
        if decoder is None:
            return None
        try:
            return decoder.decode(ids)
        except TokenloomError:
            return None

    def hash_index(self, source: str) -> HashIndex | None:
        """The kept index of the hashes of a store, if there is one."""
        if source not in self._indexes:
            found = kept_hash_index(self.stores[source].reader)
            if found is None:
                return None
            self._indexes[source] = found
        return self._indexes[source]

    def forget_index(self, source: str) -> None:
        """Drop an index that turned out to be wrong."""
        self._indexes.pop(source, None)

    def report(self, tell: Callable[[str], None]) -> Report:
        """The report on the run; `tell` is called with what is about to be done."""
        return report_on(self.run, batch_size=self.batch_size, name=self.name, tell=tell)


def _shown(decoder: Any, token: int) -> str:
    """A token as it is shown: the end of a line is a sign, and ends the line."""
    if token < 0:
        return f"<id {token}>"
    (text,) = decoder.token_strings([token])
    shown: str = text
    # "\n" may stand for the end of a line, or for these two letters
    if "\\n" in shown and "\n" in decoder.decode([token]):
        shown = shown.replace("\\n", "↵\n")
    return shown


class Overheard(Single):
    """Runs something and keeps what it warns about, which would go to the terminal otherwise.

    Python has one list of warnings for all threads, so one thing runs at a time.
    """

    def __init__(self) -> None:
        self._lock = lock_of(self)

    def _forked(self, torn: bool) -> None:
        """It guards nothing of its own."""

    def of(self, make: Callable[[], T]) -> tuple[T, list[str]]:
        """What `make` gives, and its warnings."""
        with self._lock, warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            made = make()
        return made, [str(one.message) for one in heard]


class Session(Single):
    """One run, or two that are compared.

    Args:
        runs: one or two of them.
        names: what each is called.
        batch_size: rows of a step; None: as each file says, or 64.

    Attributes:
        reports: makes the report of each run.
        indexes: keeps an index of hashes, by the number of a run and the name of a source.
    """

    def __init__(
        self, runs: Sequence[Dataset], names: Sequence[str] = (), batch_size: Any = None
    ) -> None:
        if not 1 <= len(runs) <= 2:
            raise ConfigError(f"explore: found {len(runs)} runs, allowed: one, or two to compare.")
        named = list(names) or [_name(one) for one in runs]
        pairs = zip(runs, named, strict=True)
        self.runs = tuple(
            ExploredRun(run, name, k, batch_size) for k, (run, name) in enumerate(pairs)
        )
        self.overheard = Overheard()
        self.reports: Aside[int, Report] = Aside(lambda number, tell: self.run(number).report(tell))
        self.indexes: Aside[tuple[int, str], bool] = Aside(self._keep_index)
        self._lock = lock_of(self)
        self._kept: dict[str, Any] = {}

    def _forked(self, torn: bool) -> None:
        if torn:
            self._kept = {}

    def run(self, number: int = 0) -> ExploredRun:
        """One of the runs.

        Raises:
            ConfigError: there is no such run.
        """
        if number >= len(self.runs):
            raise ConfigError(
                f"run: found {number}, allowed: 0 to {len(self.runs) - 1}; `tokenloom explore RUN "
                "OTHER` opens two."
            )
        return self.runs[number]

    @property
    def other(self) -> ExploredRun:
        """The second run; the first again if there is one."""
        return self.runs[-1]

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """A costly value, made by the first who asks while the others wait."""
        if name not in self._kept:
            with self._lock:
                if name not in self._kept:
                    self._kept[name] = make()
        return self._kept[name]

    def _keep_index(self, which: tuple[int, str], tell: Callable[[str], None]) -> bool:
        number, source = which
        return keep_hash_index(self.run(number).stores[source].reader, tell)

    def stop(self, seconds: float = LEAVE_SECONDS) -> None:
        """End what is made beside the pages soon, and wait for each so long."""
        for one in (self.reports, self.indexes):
            one.stop(seconds)

    def difference(self) -> RunDiff:
        """How the two runs differ, found once."""
        first, second = self.runs[0].run, self.runs[-1].run
        found: RunDiff = self._once("difference", lambda: diff(first, second, progress=False))
        return found


def _name(run: Dataset) -> str:
    path = run.file.path if run.file is not None else ""
    return os.path.basename(path or "") or "run"
