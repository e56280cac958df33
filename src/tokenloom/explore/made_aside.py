"""What takes long, such as the report: made by a thread of its own while pages tell how far it is.

One idea: a report takes from half a second to half a minute, and a page must be there at once. So a
page asks for it (`ask`) and gets what is known now: what is being done, what was made, or why there
is nothing. Asking again starts nothing twice. One thread makes one thing after the other and ends;
at the end of the server it stops at the next part of what it makes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tokenloom.errors import TokenloomError
from tokenloom.store.handles import LEAVE_SECONDS, Single, lock_of

__all__ = ["Aside", "Making"]

K = TypeVar("K")

T = TypeVar("T")

WAITING = "waiting for its turn"

FAILED = "it failed; the terminal shows why."

log = logging.getLogger("tokenloom")


@dataclass(frozen=True, kw_only=True, slots=True)
class Making(Generic[T]):
    """How far something is.

    Attributes:
        now: what is being done.
        began: when it was asked for, in seconds of `time.monotonic`.
        made: what was made, once it is there.
        failure: why there is none; empty if nothing is wrong.
    """

    now: str
    began: float
    made: T | None = None
    failure: str = ""

    @property
    def seconds(self) -> float:
        """Time since it was asked for."""
        return time.monotonic() - self.began

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens."""
        return self.made is not None or bool(self.failure)


class _Stopped(Exception):
    """The server ends, so nobody wants the rest."""


class Aside(Single, Generic[K, T]):
    """Makes each of some things once, in one thread.

    Args:
        make: (name of a thing, whom to tell what is being done) → the thing.
    """

    def __init__(self, make: Callable[[K, Callable[[str], None]], T]) -> None:
        self._make = make
        self._known: dict[K, Making[T]] = {}
        self._wanted: list[K] = []
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._lock = lock_of(self)

    def _forked(self, torn: bool) -> None:
        """The thread is in the parent; what is finished stays."""
        self._known = {k: one for k, one in self._known.items() if one.is_over}
        self._wanted, self._thread = [], None

    @property
    def _busy(self) -> bool:
        return self._thread is not None

    def _leave(self) -> None:
        self._stopped = True

    def known(self, name: K) -> Making[T] | None:
        """What is known about a thing; None if nobody has asked for it."""
        return self._known.get(name)

    def ask(self, name: K, again: bool = False) -> Making[T]:
        """Have a thing made, unless somebody has asked before; how far it is.

        Args:
            name: of the thing.
            again: try once more if it failed.
        """
        with self._lock:
            known = self._known.get(name)
            if known is None or (again and known.failure):
                known = self._known[name] = Making(now=WAITING, began=time.monotonic())
                self._wanted.append(name)
                if self._thread is None:
                    self._start()
            return self._known.get(name, known)

    def stop(self, seconds: float = LEAVE_SECONDS) -> None:
        """Let the thread end after the part that it is making, and wait for that so long."""
        self._leave()
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _start(self) -> None:
        """Start the thread; called with the lock."""
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="tokenloom aside", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            name = self._wanted.pop()
            said = f"no thread can be started ({error})."
            self._known[name] = replace(self._known[name], failure=said)

    def _work(self) -> None:
        while (name := self._next()) is not None:
            try:
                made = self._make(name, self._tell(name))
                found = replace(self._known[name], made=made)
            except _Stopped:
                continue
            except (TokenloomError, LookupError) as error:
                found = replace(self._known[name], failure=str(error) or repr(error))
            except Exception:  # the pages go on
                log.exception("explore: %r failed", name)
                found = replace(self._known[name], failure=FAILED)
            self._known[name] = found

    def _next(self) -> K | None:
        """What comes next; None, and nothing is left unfinished, at the end."""
        with self._lock:
            if self._wanted and not self._stopped:
                return self._wanted.pop(0)
            # whoever asks for these again starts anew
            self._known = {k: one for k, one in self._known.items() if one.is_over}
            self._wanted, self._thread = [], None
            return None

    def _tell(self, name: K) -> Callable[[str], None]:
        def tell(what: str) -> None:
            if self._stopped:
                raise _Stopped
            self._known[name] = replace(self._known[name], now=what)

        return tell
