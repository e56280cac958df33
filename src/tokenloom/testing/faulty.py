"""A `ByteSource` whose N-th read goes wrong, or takes its time.

Reads are numbered from 1; one read may hold many ranges. What happens at read `at`:

=========  ========================================================================================
`"raise"`  an `OSError` with the given `errno`
`"short"`  only half of the last buffer comes, which a source must never do
`"flip"`   one bit of the answer is wrong: number `bit`, counted through all buffers, wrapping
=========  ========================================================================================

It doubles as a recorder: `requests` keeps the ranges of every read, faulty or not.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import one_of
from tokenloom.store.byte_source import ByteSource, Range

__all__ = ["FaultSource"]

ACTIONS = ("raise", "short", "flip")


class FaultSource:
    """Passes reads on to `inner`; safe to use from several threads.

    Args:
        inner: who has the bytes.
        at: number of the read that goes wrong, from 1; 0 for none.
        action: what then happens, see the module's table.
        error: `errno` of the error that is raised.
        bit: which bit of the answer is flipped.
        latency: seconds that every read takes longer.
        forever: whether every read from `at` on goes wrong.
        only: count reads with a file name that contains this; all, if not given.

    Attributes:
        requests: the ranges of every read, in the order they came.

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
    >>> store.tokens(0, 2)  # the second read is right, and is believed
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
        self._lock = threading.Lock()

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
        """Note a read; True if it is a faulty one."""
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
