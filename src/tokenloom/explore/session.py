"""What is explored: one run or two, and what was found out about them for all pages.

Pages are pure functions of a session and a query. What several of them need (steps, colours of
sources, the strings of tokens) is kept here when the first one asks; everything kept is bounded.
The report of each run and the difference of two are made once, while whoever asks waits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store
from tokenloom.errors import ConfigError, TokenloomError
from tokenloom.inspect.diff import RunDiff, diff
from tokenloom.order.schedule import Steps
from tokenloom.report.assembled import report_on
from tokenloom.report.report_file import Report
from tokenloom.report.subject import Asked, RunSubject
from tokenloom.store.handles import Single, lazy, lock_of

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
        self._subject = RunSubject(run, Asked(batch_size=batch_size, name=name))
        self._strings: dict[str, dict[int, str]] = {}

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


class Session(Single):
    """One run, or two that are compared.

    Args:
        runs: one or two of them.
        names: what each is called.
        batch_size: rows of a step; None: as each file says, or 64.
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
        self._lock, self._stopped = lock_of(self), False
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
        """A costly value, made by the first page that asks while others wait."""
        if name not in self._kept:
            with self._lock:
                if name not in self._kept:
                    self._kept[name] = make()
        return self._kept[name]

    def stop(self) -> None:
        """End a report that is being made at its next part: the server waits for its threads."""
        self._stopped = True

    def _check_stopped(self, part: str) -> None:
        if self._stopped:
            raise ConfigError(f"{part}: not made, because the explorer ends.")

    def report(self, explored: ExploredRun) -> Report:
        """The report on a run, made once, in half a second to half a minute."""
        settings = {"batch_size": explored.batch_size, "name": explored.name}
        found: Report = self._once(
            f"report {explored.number}",
            lambda: report_on(explored.run, **settings, tell=self._check_stopped),
        )
        return found

    def difference(self) -> RunDiff:
        """How the two runs differ, found once."""
        first, second = self.runs[0].run, self.runs[-1].run
        found: RunDiff = self._once("difference", lambda: diff(first, second, progress=False))
        return found


def _name(run: Dataset) -> str:
    path = run.file.path if run.file is not None else ""
    return os.path.basename(path or "") or "run"
