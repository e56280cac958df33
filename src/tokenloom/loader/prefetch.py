"""Items made ahead of time, in order; by a thread if there is something to wait for.

One idea: a thread is for waiting. Items that only need computing are made in the caller's thread,
because two threads that take turns at the interpreter cost more than one. Items that need reading
are made by a background thread while the caller works. Items come in groups: the first has one
item, so that nobody waits for a whole group, and each next one is twice as large.

Items have numbers, and taking one changes nothing: it stays until a later one is requested. So
whoever is interrupted while taking an item asks for the same number again, and the position of a
loader only counts what was delivered.

The two threads share no lock. Groups go through a deque, whose operations are atomic, and a bell
says that there is news: a lock that nobody owns, locked while there is none. `threading.Condition`
and `Thread.start` run Python code around a lock, and an interrupt there can leave it held. A thread
that is not wanted any more is not waited for: it ends by itself after its current group.

After a fork the thread stays in the parent; the child's loader starts its own.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from tokenloom.store.handles import Single, lock_of

T = TypeVar("T")

LOOK_AGAIN = 0.2  # seconds until a waiting caller looks by itself whether there is news

log = logging.getLogger("tokenloom")


class _Group(NamedTuple, Generic[T]):
    """Items [first, stop). None at all: there are no more, or making them failed."""

    first: int
    stop: int
    items: Sequence[T]
    error: BaseException | None = None


class Prefetcher(Single, Generic[T]):
    """The items of `make` by number, some of them ready before they are requested.

    While the thread runs, only it makes items; it ends when enough are ready. A prefetcher that was
    stopped still gives every item; it makes them on request.

    Args:
        make: (first item, how many) → these items, or the first of them; none at the end.
        ahead: items to keep ready; 0 makes them on request, without a thread.
        group: maximum items to make together.
        at_hand: (first item, how many) → whether making them needs no waiting.
        stalled: called with the seconds waited, every `patience` seconds of waiting.
        patience: seconds between two calls of `stalled`.
    """

    def __init__(
        self,
        make: Callable[[int, int], list[T]],
        ahead: int,
        *,
        group: int | None = None,
        at_hand: Callable[[int, int], bool] = lambda *_: False,
        stalled: Callable[[float], None] = lambda _: None,
        patience: float = 30.0,
    ) -> None:
        self._make, self._size = make, 1
        self._group = group or max(1, ahead)
        self._enough = ahead // 2 if ahead else -1  # with this many ready or fewer, more are made
        self._ask_at_hand, self._stalled, self._patience = at_hand, stalled, patience
        self._ready: deque[_Group[T]] = deque()
        self._wanted = 0  # the item requested last
        self._stopped = self._running = False
        self._at_hand = not ahead  # whether the caller's thread makes the next group
        self.waited = 0.0
        self.is_elsewhere = False  # a copy after a fork: its thread is in the parent
        self._lock = lock_of(self)  # the bell
        self._lock.acquire()

    def _forked(self, torn: bool) -> None:
        self.is_elsewhere = True

    @property
    def _busy(self) -> bool:
        return self._running and not self.is_elsewhere

    def _leave(self) -> None:
        self._stopped = True

    def take(self, item: int) -> T | None:
        """An item, or None after the last one.

        It is given again and again, until a later one is requested.
        """
        self._wanted = item
        group = self._group_of(item)
        while group is None:
            self._wait(item)
            group = self._group_of(item)
        if group.error is not None:
            self._ready.clear()  # so that it is tried again
            try:
                raise group.error
            finally:
                del group  # the error holds this frame
        if not group.items:
            return None
        if not self._at_hand:
            last = self._ready[-1] if self._ready else group
            if last.stop - item - 1 <= self._enough:
                self._look_ahead(item)
        return group.items[item - group.first]

    def stop(self, seconds: float = 0.0) -> None:
        """Let the thread end after its current group, and wait for that at most `seconds`."""
        self._stopped = True
        end = time.perf_counter() + seconds
        while self._busy and time.perf_counter() < end:
            self._lock.acquire(timeout=0.05)

    def _group_of(self, item: int) -> _Group[T] | None:
        """The group that tells about an item; groups before it are dropped."""
        ready = self._ready
        try:
            while True:
                group = ready[0]
                if group.first <= item and (item < group.stop or not group.items):
                    return group
                ready.popleft()
        except IndexError:
            return None

    def _wait(self, item: int) -> None:
        """Make a group that starts with an item, or wait until the thread has made one."""
        begin = told = time.perf_counter()
        try:
            if not (self._at_hand or self._stopped):
                self._look_ahead(item)
            if self._at_hand or self._stopped:
                self._ready.append(self._made(item))
                self._at_hand = self._enough < 0
                return
            while self._running and not (self._ready or self._stopped):
                if not self._lock.acquire(timeout=min(LOOK_AGAIN, self._patience)):
                    now = time.perf_counter()
                    if now - told >= self._patience:
                        told = now
                        self._stalled(now - begin)
        finally:
            self.waited += time.perf_counter() - begin

    def _look_ahead(self, item: int) -> None:
        """Start the thread, unless it runs or the next group can be made without waiting."""
        ready = self._ready
        if self._running or self._stopped or (ready and not ready[-1].items):
            return
        first = ready[-1].stop if ready else item
        if self._ask_at_hand(first, self._size):
            self._at_hand = True
            return
        self._running = True
        try:
            _thread.start_new_thread(self._work, (first,))
        except BaseException:
            self._stopped = True  # an interrupt may come after the thread was started
            self._running = False
            raise

    def _work(self, first: int) -> None:
        """Make groups until enough items are ready."""
        try:
            while not self._stopped and first - self._wanted - 1 <= self._enough:
                try:
                    group = self._made(first)
                except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
                    group = _Group(first, first, (), error)
                self._ready.append(group)
                self._ring()
                if not group.items:
                    break
                first = group.stop
        finally:
            self._running = False
            self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._lock.release()

    def _made(self, first: int) -> _Group[T]:
        size = self._size
        try:
            items = self._make(first, size)
        except Exception:
            if size == 1:
                raise
            size = 1  # items before the one that fails are delivered first
            items = self._make(first, 1)
        self._size = min(2 * size, self._group)
        return _Group(first, first + len(items), items)
