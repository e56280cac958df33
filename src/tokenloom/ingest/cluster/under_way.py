"""How far tasks are that have not ended yet, while somebody watches.

One idea: a driver that shows a bar starts one small actor, which holds three numbers for every
stretch under way. Tasks tell it about once a second, and the driver asks it for the sum. Reports
are absolute, so an actor that is lost with its node starts again with nothing and knows everything
a second later, and a stretch that another worker takes over replaces its own numbers.

Progress must never break a build: whatever goes wrong here is logged for those who look for it, and
the bar then moves with every finished stretch. The driver receives about 30 bytes for each look.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import Any

from tokenloom.progress import Progress

__all__ = ["Reporting", "UnderWay", "Watch"]

log = logging.getLogger("tokenloom")

EVERY = 1.0  # seconds between two reports of a task

COUNTED = ("bytes", "documents", "tokens")


class UnderWay:
    """What is under way, by stretch; on Ray, an actor that takes no CPU.

    >>> seen = UnderWay()
    >>> seen.report(3, [10, 2, 9])
    >>> seen.report(3, [20, 4, 18])
    >>> seen.report(5, [1, 1, 1])
    >>> seen.total()
    [21, 5, 19]
    >>> seen.end(3)
    >>> seen.total()
    [1, 1, 1]
    """

    def __init__(self) -> None:
        self._counts: dict[int, list[int]] = {}

    def report(self, stretch: int, counts: list[int]) -> None:
        """Note how far a stretch is: bytes, documents and tokens."""
        self._counts[stretch] = counts

    def end(self, stretch: int) -> None:
        """Forget a stretch, whose record tells from now on."""
        self._counts.pop(stretch, None)

    def total(self) -> list[int]:
        """Bytes, documents and tokens of all stretches that are under way."""
        return [sum(column) for column in zip(*self._counts.values(), strict=True)] or [0] * 3


class Reporting(Progress):
    """The bar of a task: shows nothing, and tells the actor now and then.

    Args:
        watched: an `UnderWay` on Ray, and the seconds between two reports; None if nobody watches.
        stretch: which one this is.
    """

    def __init__(self, watched: tuple[Any, float] | None, stretch: int) -> None:
        super().__init__("", total=None, show=False)
        self._actor: Any = watched and watched[0]
        self._every = watched[1] if watched else EVERY
        self._stretch = stretch
        self._told = time.monotonic()
        self._bytes = 0

    def reach(self, amount: int) -> None:
        """See `Progress`."""
        self._bytes = amount

    def count(self, documents: int, tokens: int, more: str = "") -> None:
        """See `Progress`."""
        now = time.monotonic()
        if self._actor is not None and now - self._told >= self._every:
            self._told = now
            self._tell("report", [self._bytes, documents, tokens])

    def end(self) -> None:
        """The stretch is done, and its counts are on their way to the driver."""
        if self._actor is not None:
            self._tell("end")

    def _tell(self, method: str, *values: Any) -> None:
        try:
            getattr(self._actor, method).remote(self._stretch, *values)
        except Exception as error:  # noqa: BLE001 - see above
            log.debug("progress of stretch %d is not told: %s", self._stretch, error)


class Watch:
    """The driver's side: what is done, and what is under way, as one bar.

    Args:
        bar: what is shown.
    """

    def __init__(self, bar: Progress) -> None:
        self._bar, self._done = bar, Counter[str]()
        self._shown = dict.fromkeys(COUNTED, 0)  # a bar never goes back
        self.actor: Any = None

    def start(self, ray: Any) -> tuple[Any, float] | None:
        """What tasks report to, if anybody watches and Ray can start it."""
        if self._bar.is_shown:
            try:
                made = ray.remote(num_cpus=0, max_restarts=-1)(UnderWay)
                self.actor = made.remote()
            except Exception as error:  # noqa: BLE001 - see above
                log.debug("progress is told by finished stretches alone: %s", error)
        return None if self.actor is None else (self.actor, EVERY)

    def look(self, ray: Any) -> None:
        """Ask how far tasks are, and show it."""
        if self.actor is None:
            return
        try:
            found = ray.get(self.actor.total.remote(), timeout=1.0)
        except Exception as error:  # noqa: BLE001 - the actor may be starting again
            log.debug("progress is not told: %s", error)
            return
        self._show(dict(zip(COUNTED, found, strict=True)))

    def done(self, counts: dict[str, int]) -> None:
        """One more stretch is done."""
        self._done.update({name: counts[name] for name in COUNTED})
        self._show(dict.fromkeys(COUNTED, 0))

    def _show(self, more: dict[str, int]) -> None:
        for name in COUNTED:
            self._shown[name] = max(self._shown[name], self._done[name] + more[name])
        self._bar.reach(self._shown["bytes"])
        self._bar.count(self._shown["documents"], self._shown["tokens"])
