"""Items made ahead of time, in order; by a thread if there is something to wait for.

One idea: a thread is for waiting. Items that only need computing are made in the caller's thread,
because two threads that take turns at the interpreter cost more than one. Items that need reading
are made by a background thread while the caller works. Items come in groups: the first has one
item, so that nobody waits for a whole group, and each next one is twice as large. Items that were
made but not taken are dropped: the position of a loader only counts what was taken.

A fork waits until no item is being made: the child would wait endlessly for any lock held at that
moment. The thread itself stays in the parent; the child's loader starts its own.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Prefetcher"]

T = TypeVar("T")

log = logging.getLogger("tokenloom")


class Prefetcher(Generic[T]):
    """The items of `make` in order, some of them ready before they are requested.

    While the thread runs, only it makes items; it ends when enough are ready.

    Args:
        make: (first item, how many) → these items, or the first of them; none at the end.
        first: the item to start with.
        ahead: items to keep ready; 0 makes them on request, without a thread.
        group: maximum items to make together.
        at_hand: (first item, how many) → whether making them needs no waiting.
        stalled: called with the seconds waited, every `patience` seconds of waiting.
        patience: seconds between two calls of `stalled`.
    """

    def __init__(
        self,
        make: Callable[[int, int], list[T]],
        first: int,
        ahead: int,
        *,
        group: int | None = None,
        at_hand: Callable[[int, int], bool] = lambda *_: False,
        stalled: Callable[[float], None] = lambda _: None,
        patience: float = 30.0,
    ) -> None:
        self._make, self._next, self._size = make, first, 1
        self._group = group or max(1, ahead)
        self._enough = ahead // 2 if ahead else -1  # with this many ready or fewer, more are made
        self._ask_at_hand, self._stalled, self._patience = at_hand, stalled, patience
        self._ready: deque[T] = deque()
        self._change = threading.Condition()
        self._error: BaseException | None = None
        self._ended = self._stopped = self._running = False
        self._at_hand = not ahead  # whether the caller's thread makes the next group
        self.waited = 0.0
        self.is_elsewhere = False  # a copy after a fork: its thread is in the parent
        self._making = threading.RLock()
        self._thread: threading.Thread | None = None
        with _forking:
            _all.add(self)

    def take(self) -> T | None:
        """The next item, or None at the end."""
        ready = self._ready
        if not ready:
            self._wait()
            if not ready:
                return None
        item = ready.popleft()  # there is one consumer, so it is still there
        if len(ready) <= self._enough and not self._at_hand:
            self._look_ahead()
        return item

    def stop(self) -> None:
        """End the thread and drop what is ready; may be called again."""
        if self.is_elsewhere or sys.is_finalizing():
            return  # the thread no longer runs but may hold a lock: joining it would never end
        with self._change:
            self._stopped = True
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._ready.clear()

    def _wait(self) -> None:
        """Wait until an item is ready or the items have ended."""
        begin = time.perf_counter()
        if not self._at_hand:
            self._look_ahead()
        if self._at_hand and not (self._ended or self._stopped):
            self._make_group()
            self._at_hand = self._enough < 0
        with self._change:
            while self._running and not (self._ready or self._error or self._stopped):
                if not self._change.wait(self._patience):
                    self._stalled(time.perf_counter() - begin)
            self.waited += time.perf_counter() - begin
            error, self._error = self._error, None
        if error is not None and not self._ready:
            raise error

    def _look_ahead(self) -> None:
        """Start the thread, unless it runs or the next group can be made without waiting."""
        with self._change:
            if self._running or self._ended or self._stopped or self._error:
                return
        if self._ask_at_hand(self._next, self._size):
            self._at_hand = True
            return
        self._thread = threading.Thread(target=self._work, name="tokenloom", daemon=True)
        self._running = True
        self._thread.start()

    def _work(self) -> None:
        """Make groups until enough items are ready."""
        while self._running:
            try:
                self._make_group()
            except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
                self._error = error
            with self._change:
                over = self._ended or self._stopped or self._error is not None
                self._running = not over and len(self._ready) <= self._enough
                self._change.notify()

    def _make_group(self) -> None:
        size = self._size
        with self._making:
            try:
                items = self._make(self._next, size)
            except Exception:
                if size == 1:
                    raise
                size = 1  # items before the one that fails are delivered first
                items = self._make(self._next, 1)
        self._next += len(items)
        self._ended = not items
        self._size = min(2 * size, self._group)
        self._ready.extend(items)


_all: weakref.WeakSet[Prefetcher[Any]] = weakref.WeakSet()

_resting: list[Prefetcher[Any]] = []

_forking = threading.RLock()


def _before_fork() -> None:
    _forking.acquire()
    _resting.extend(_all)
    for one in _resting:
        one._making.acquire()


def _after_fork() -> None:
    for one in _resting:
        one._making.release()
    _resting.clear()
    _forking.release()


def _after_fork_in_child() -> None:
    for one in _resting:
        one.is_elsewhere = True
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
    )
