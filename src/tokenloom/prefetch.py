"""Batches made ahead by one thread, in order.

One idea: the thread owns nothing that anybody waits for but a queue. It makes groups of batches,
the first of one batch so that nobody waits for a whole group, each next one twice as large; it
stops when told to, and what it made but nobody took is simply dropped, because the position of a
loader only ever counts what was taken.

A fork waits until no thread is making anything: whatever lock it held then, the child would wait
for it for ever. The thread itself stays in the parent; the child's loader starts one of its own.
"""

from __future__ import annotations

import logging
import os
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
    """Items of `make` in order, some of them ready before they are asked for.

    Args:
        make: (first item, how many) → these items; fewer, or none, at the end.
        first: the item to begin with.
        ahead: items to keep ready; 0 makes each one when it is asked for, without a thread.
        stalled: is called with the seconds waited, every `patience` seconds of waiting.
        patience: seconds.
    """

    def __init__(
        self,
        make: Callable[[int, int], list[T]],
        first: int,
        ahead: int,
        stalled: Callable[[float], None] = lambda _: None,
        patience: float = 30.0,
    ) -> None:
        self._make, self._next, self._ahead = make, first, ahead
        self._stalled, self._patience = stalled, patience
        self._ready: deque[T] = deque()
        self._enough = ahead // 2  # the thread rests while more than these are ready
        self._change = threading.Condition()
        self._error: BaseException | None = None
        self._ended = self._stopped = False
        self.waited = 0.0
        self._process = os.getpid()
        self._making = threading.RLock()
        self._thread: threading.Thread | None = None

    def take(self) -> T | None:
        """The next item, or None at the end."""
        if not self._ahead:
            return self._take_here()
        if self._ready:  # only this thread takes, so it is still there
            with self._change:
                item = self._ready.popleft()
                if len(self._ready) == self._enough:
                    self._change.notify()
            return item
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._work, name="tokenloom", daemon=True)
            with _forking:
                _started.add(self)
            self._thread.start()
        begin = time.perf_counter()
        with self._change:
            while not (self._ready or self._ended or self._error or self._stopped):
                if not self._change.wait(self._patience):
                    self._stalled(time.perf_counter() - begin)
            self.waited += time.perf_counter() - begin
            if self._ready:
                item = self._ready.popleft()
                self._change.notify()
                return item
            if self._error is not None:
                raise self._error
            return None

    @property
    def is_elsewhere(self) -> bool:
        """Whether this is a copy after a fork: its thread stayed behind, its lock may be held."""
        return self._process != os.getpid()

    def stop(self) -> None:
        """End the thread and drop what is ready; may be called again."""
        if self.is_elsewhere:
            return
        with self._change:
            self._stopped = True
            self._ready.clear()
            self._change.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _take_here(self) -> T | None:
        begin = time.perf_counter()
        items = [] if self._stopped else self._make(self._next, 1)
        self.waited += time.perf_counter() - begin
        self._next += len(items)
        return items[0] if items else None

    def _work(self) -> None:
        size = 1
        try:
            while True:
                with self._change:
                    while len(self._ready) > self._enough and not self._stopped:
                        self._change.wait()
                    if self._stopped:
                        return
                try:
                    with self._making:
                        items = self._make(self._next, size)
                except Exception:
                    if size == 1:
                        raise
                    size = 1  # what stands before the one that fails is delivered first
                    continue
                self._next += len(items)
                with self._change:
                    if not self._stopped:
                        self._ready.extend(items)
                    self._ended = len(items) < size
                    self._change.notify()
                    if self._ended:
                        return
                size = min(2 * size, self._ahead)
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            with self._change:
                self._error = error
                self._change.notify()


_started: weakref.WeakSet[Prefetcher[Any]] = weakref.WeakSet()
_resting: list[Prefetcher[Any]] = []
_forking = threading.RLock()


def _before_fork() -> None:
    _forking.acquire()
    _resting.extend(_started)
    for one in _resting:
        one._making.acquire()


def _after_fork() -> None:
    for one in _resting:
        one._making.release()
    _resting.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
