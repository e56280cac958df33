"""Handles: what a copy and a fork do to things that own a lock, a descriptor or a thread.

There is one of each. A copy of such a thing is made anew from what describes it (a path,
a capacity), or refused (`Single`); a copied descriptor would be closed twice, and the second time
it belongs to somebody else.

The child of a fork has one thread. A lock that another thread held is never released there, and
what it guards may be half-changed. So every lock of the package comes from `lock_of`, which
remembers its owner: in the child each owner gets a new lock, and is told whether the old one was
held (`torn`). Nothing waits before a fork. ruff finds other locks (TID251).

Threads end before Python does. One that asks for the interpreter after its end is unwound by force,
which aborts the process ("terminate called without an active exception") if compiled code in
between does not allow that. So owners of threads are told when the process ends, and waited for.

`lazy` is a value that is computed once, without a lock.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    Protocol,
    TypeVar,
    cast,
    overload,
    runtime_checkable,
)

# np.unique imports it late. A fork in the middle of another thread's import leaves the lock of that
# module held in the child, so whatever reading needs is imported before there are such threads.
import numpy.ma  # noqa: F401

T = TypeVar("T")

LOOK_AGAIN = 0.2  # seconds until a waiting thread asks by itself whether there is news

LEAVE_SECONDS = 5.0  # that the end of a process waits for threads; a read may hang for longer


class LockOwner(Protocol):
    """What has a lock, named `_lock`."""

    _lock: threading.Lock

    def _forked(self, torn: bool) -> None:
        """Called in the child of a fork, with a new lock.

        Args:
            torn: the old lock was held, so what it guards may be half-changed and is dropped.
        """


@runtime_checkable
class ThreadOwner(Protocol):
    """What has a lock and starts threads."""

    @property
    def _busy(self) -> bool:
        """Whether a thread of its own is at work in this process."""

    def _leave(self) -> None:
        """Let its threads end soon; it still answers, without them."""


class Pending(Generic[T]):
    """A value that is made once, by the first thread that needs it; the others wait for it.

    A thread that is interrupted while it makes the value leaves that to the next one. It guards
    nothing, so it needs no owner; in the child of a fork it is dropped, because the thread that
    was making it is not there.

    Args:
        make: makes the value.
        nbytes: its size, where that is known before.

    >>> square = Pending(lambda: 7 * 7)
    >>> square.take() + square.take()
    98
    """

    __slots__ = ("_error", "_made", "_make", "_takers", "_value", "is_over", "nbytes")

    def __init__(self, make: Callable[[], T], nbytes: int = 0) -> None:
        self._make: Callable[[], T] | None = make
        self.nbytes, self.is_over = nbytes, False
        self._value: T | None = None
        self._error: Exception | None = None
        self._takers: deque[object] = deque()  # the first one makes it
        self._made = threading.Lock()
        self._made.acquire()

    def take(self) -> T:
        """The value.

        Raises:
            Exception: what making it raised, in whichever thread.
        """
        me = object()
        try:
            self._takers.append(me)
            while not self.is_over:  # asked again and again: whoever makes it may be interrupted
                if self._takers[0] is me:
                    self._begin()
                elif self._made.acquire(timeout=LOOK_AGAIN):
                    self._made.release()
        finally:
            self._takers.remove(me)
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def _begin(self) -> None:
        assert self._make is not None
        try:
            self._value = self._make()
        except Exception as error:  # noqa: BLE001 - raised by `take`, in every thread that asks
            self._error = error
        self.is_over = True
        self._make = None
        self._made.release()


def lock_of(owner: LockOwner) -> threading.Lock:
    """A lock for `owner._lock`, renewed in the child of a fork."""
    _owners.add(owner)
    return threading.Lock()


_owners: weakref.WeakSet[LockOwner] = weakref.WeakSet()


def _renew_locks() -> None:
    for owner in list(_owners):
        torn, owner._lock = owner._lock.locked(), threading.Lock()
        owner._forked(torn)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _end_threads() -> None:
    owners = [one for one in list(_owners) if isinstance(one, ThreadOwner)]
    for one in owners:
        one._leave()
    end = time.monotonic() + LEAVE_SECONDS
    while any(one._busy for one in owners) and time.monotonic() < end:
        time.sleep(0.001)


atexit.register(_end_threads)


class Single:
    """Something that is never copied or pickled.

    >>> import copy
    >>> copy.copy(Single())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    TypeError: Single: it owns memory, a descriptor or a thread, so it is never copied or ...
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: it owns memory, a descriptor or a thread, so it is never "
            "copied or pickled. Copy the store, dataset or loader that it belongs to."
        )


class lazy(Generic[T]):  # noqa: N801 - reads like the decorator it replaces
    """An attribute that is computed on first use and kept.

    Like `functools.cached_property`, but without the lock that Python 3.11 holds for all instances
    while it computes: a fork at that moment would leave it held in the child. Threads that ask at
    the same time may compute it several times; all get the value that was ready first.

    >>> class Square:
    ...     @lazy
    ...     def area(self):
    ...         print("computed")
    ...         return 4
    >>> square = Square()
    >>> square.area + square.area
    computed
    8
    """

    def __init__(self, method: Callable[[Any], T]) -> None:
        self.func, self.__doc__ = method, method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def compute(self, instance: Any) -> T:
        """The value, not kept."""
        return self.func(instance)

    @overload
    def __get__(self, instance: None, owner: type) -> lazy[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self._name, self.compute(instance))

    if TYPE_CHECKING:  # an instance may have its own value

        def __set__(self, instance: object, value: T) -> None: ...
