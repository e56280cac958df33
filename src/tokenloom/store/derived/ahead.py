"""A pass over a store: what it needs next is on its way while the rest is being looked at.

One idea: a pass reads everything once, in order, so what comes next is always known. From a source
that answers several requests at once (`parallel`, see `tokenloom.store.byte_source`) as many things
are fetched ahead of time as it answers, by the threads that also fetch blocks ahead
(`tokenloom.store.cache.Fetchers`); from others each is made when it is its turn. What is ready or
under way is bounded in bytes, so memory does not depend on the size of the store, and things are
given in order, so nothing depends on which answer came first.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokenloom.limits import limits
from tokenloom.store.byte_source import ByteSource, read_exactly
from tokenloom.store.cache import Fetchers
from tokenloom.store.handles import Bell

__all__ = ["in_turn", "read_through"]

T = TypeVar("T")

WAITING = 2  # times as many things as are fetched at once: a slow one keeps no thread idle


def in_turn(
    makes: Iterable[tuple[int, Callable[[], T]]],
    source: ByteSource,
    *,
    most: int | None = None,
) -> Iterator[T]:
    """What some functions give, in their order; several are called at the same time.

    Args:
        makes: (bytes of what it gives, function) of each; asked for one after the other.
        source: what they read from; it says how many requests it answers at once.
        most: bytes that may be ready or under way, unless one thing alone has more; None for 64
            MiB.

    Raises:
        Exception: what a function raised, when it is its turn.

    >>> from tokenloom.store.byte_source import LocalSource
    >>> list(in_turn([(1, lambda: "a"), (1, lambda: "b")], LocalSource(".")))
    ['a', 'b']
    """
    parallel = getattr(source, "parallel", 1)
    most = limits().read_ahead_bytes if most is None else most
    if parallel < 2:
        yield from (make() for _, make in makes)
        return
    fetchers, waiting, held = Fetchers(parallel), deque[_Made[T]](), 0
    left = iter(makes)
    ahead = next(left, None)
    try:
        while waiting or ahead is not None:
            while ahead is not None and len(waiting) < WAITING * parallel:
                if waiting and held + ahead[0] > most:
                    break
                waiting.append(_Made(*ahead))
                held += ahead[0]
                ahead = next(left, None)
                if ahead is not None or len(waiting) > 1:  # the only one needs no thread
                    fetchers.put([waiting[-1].make])
            first = waiting.popleft()
            found = first.take()
            held -= first.size
            yield found
            del first, found  # what was given is whose it was given to
    finally:
        fetchers.drop()


def read_through(
    source: ByteSource, name: str, size: int, root: str, *, step: int | None = None
) -> Iterator[NDArray[np.uint8]]:
    """The first `size` bytes of a file, in order, `step` at a time (2 MiB).

    >>> import pathlib, tempfile
    >>> from tokenloom.store.byte_source import LocalSource
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "x").write_bytes(b"hello")
    ...     parts = read_through(LocalSource(folder), "x", 5, folder, step=4)
    ...     [part.tobytes() for part in parts]
    [b'hell', b'o']
    """
    step = limits().read_ahead_step_bytes if step is None else step
    asked = [(name, low, min(step, size - low)) for low in range(0, size, step)]
    makes = ((one[2], functools.partial(read_exactly, source, [one], root)) for one in asked)
    return (part for (part,) in in_turn(makes, source))


class _Made(Generic[T]):
    """Something that is made once, by whoever comes first.

    Attributes:
        size: its bytes.
    """

    __slots__ = ("_bell", "_error", "_found", "_make", "size")

    def __init__(self, size: int, make: Callable[[], T]) -> None:
        self.size, self._make, self._bell = size, [make], Bell()
        self._found: list[T] = []
        self._error: Exception | None = None

    def make(self) -> None:
        """Make it, unless somebody has begun."""
        try:
            make = self._make.pop()
        except IndexError:
            return
        try:
            self._found.append(make())
        except Exception as error:  # noqa: BLE001 - raised by `take`, in the thread that asked
            self._error = error
        finally:
            self._bell.ring()

    def take(self) -> T:
        """What was made; made now if no thread has begun with it."""
        self.make()
        self._bell.wait()
        if self._error is not None:
            raise self._error
        return self._found.pop()
