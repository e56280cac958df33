"""The files of a store as a `source` of bytes that remembers what was asked of it."""

import threading
import time
from pathlib import Path

import numpy as np


class CountedFiles:
    """`tl.open(path, source=CountedFiles(path))` reads as from a bucket: only ranges of bytes.

    `requests` has one list of (file, first byte, bytes) for each call, in order; `latency` is
    seconds added to every call.
    """

    def __init__(self, root, latency=0.0):
        self.root, self.latency, self.requests = Path(root), latency, []
        self.lock = threading.Lock()

    def size(self, name):
        path = self.root / name
        return path.stat().st_size if path.is_file() else None

    def read(self, ranges):
        with self.lock:
            self.requests.append([tuple(one) for one in ranges])
        time.sleep(self.latency)
        return [self._bytes(*one) for one in ranges]

    def _bytes(self, name, first, count):
        with (self.root / name).open("rb") as file:
            file.seek(first)
            return np.frombuffer(bytearray(file.read(count)), np.uint8)

    def token_requests(self):
        """The calls for tokens since the last time, each a list of (file, first byte, bytes)."""
        with self.lock:
            calls, self.requests = self.requests, []
        tokens = [[one for one in ranges if "input_ids/c" in one[0]] for ranges in calls]
        return [ranges for ranges in tokens if ranges]
