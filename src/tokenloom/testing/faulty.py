"""A `ByteSource` whose N-th read fails, or is slow.

Reads are numbered from 1; one read may have many ranges. What happens at read `at`:

=========  ========================================================================================
`"raise"`  an `OSError` with the given `errno`
`"short"`  only half of the last buffer is returned, which a source must never do
`"flip"`   one bit of the result is wrong: number `bit`, counted over all buffers, wrapping
=========  ========================================================================================

It is also a recorder: `requests` keeps the ranges of every read, faulty or not.
"""

from __future__ import annotations

import errno
import functools
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of
from tokenloom.store.byte_source import ByteSource, Range
from tokenloom.store.handles import lock_of

__all__ = ["FaultSource"]

ACTIONS = ("raise", "short", "flip")

_FAULT = ("at", "action", "error", "bit", "latency", "forever", "only")


class FaultSource:
    """Passes reads on to `inner`; safe to use from several threads. A copy counts from 0.

    Args:
        inner: the source of the bytes.
        at: number of the read that fails, from 1; 0 for none.
        action: what happens then, see the module's table.
        error: `errno` of the error that is raised.
        bit: which bit of the result is flipped.
        latency: seconds added to every read.
        forever: whether every read from `at` on fails.
        only: count only reads with a file name that contains this; default: all reads.

    Attributes:
        requests: the ranges of every read, in order.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.store.byte_source import LocalSource
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = tl.build([{"text": "ab"}], folder.name + "/toy", tokenizer="bytes").path
    >>> flaky = FaultSource(LocalSource(path), at=1, action="flip", only="input_ids")
    >>> store = tl.open(path, source=flaky)
    >>> try:
    ...     store.tokens(0, 2)
    ... except tl.StoreCorrupt as error:
    ...     print(str(error).split(": ", 1)[1].split(".")[0])
    chunk 0 (elements 0 to 2): the crc32c does not match
    >>> store.tokens(0, 2)  # the second read is correct, and is accepted
    array([97, 98], dtype=int32)
    >>> folder.cleanup()
    """

    def __init__(
        self,
        inner: ByteSource,
        *,
        at: int = 0,
        action: str = "raise",
        error: int = errno.EIO,
        bit: int = 0,
        latency: float = 0.0,
        forever: bool = False,
        only: str | None = None,
    ) -> None:
        one_of("action", action, ACTIONS)
        self.inner, self.at, self.action, self.error, self.bit = inner, at, action, error, bit
        self.latency, self.forever, self.only = latency, forever, only
        self.requests: list[list[Range]] = []
        self._count = 0
        self._lock = lock_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        fault = {name: getattr(self, name) for name in _FAULT}
        return functools.partial(FaultSource, **fault), (self.inner,)

    def _forked(self, torn: bool) -> None:
        """A count that another thread was about to add is lost with that thread."""

    @property
    def happened(self) -> bool:
        """Whether the faulty read was reached."""
        return 0 < self.at <= self._count

    def size(self, name: str) -> int | None:
        """See `ByteSource`."""
        return self.inner.size(name)

    def read(self, ranges: Sequence[Range]) -> list[NDArray[np.uint8]]:
        """See `ByteSource`."""
        faulty = self._count_read(ranges)
        if self.latency:
            time.sleep(self.latency)
        if faulty and self.action == "raise":
            raise OSError(self.error, os.strerror(self.error), ranges[0][0] if ranges else None)
        buffers = self.inner.read(ranges)
        if faulty and self.action == "short":
            return [*buffers[:-1], buffers[-1][: len(buffers[-1]) // 2]]
        if faulty:
            _flip(buffers, self.bit)
        return buffers

    def _count_read(self, ranges: Sequence[Range]) -> bool:
        """Record a read; True if it must fail."""
        with self._lock:
            self.requests.append(list(ranges))
            if not any(size and (self.only or "") in name for name, _, size in ranges):
                return False
            self._count += 1
            return 0 < self.at == self._count or (self.forever and 0 < self.at < self._count)


def _flip(buffers: Sequence[NDArray[np.uint8]], bit: int) -> None:
    place, within = divmod(bit % (8 * sum(map(len, buffers))), 8)
    for buffer in buffers:
        if place < len(buffer):
            buffer[place] ^= 1 << within
            return
        place -= len(buffer)
