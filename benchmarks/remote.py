"""A store behind an object store: how much of its bandwidth is used, and how long the loader waits.

The bucket is simulated: every request takes 20 ms, 16 are answered at once, and all of them share
100 MB/s; bytes come from a local file. So seconds are those of the wall, most of them asleep.

Three readers of one block shuffle: one that takes what it gets, and two that train at a fixed
speed. A stall is a step that comes later than it is wanted. Stalls are counted after the first
window: from twice the time on that its bytes take on the wire.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import tokenloom as tl
from benchmarks.clock import Row, Table, want
from benchmarks.rival_rows import write
from tokenloom.store.byte_source import LocalSource, Range

__all__ = ["SIZES", "Bucket", "run"]

# size → tokens of the store, blocks of a window, seconds of each reader
SIZES = {
    "tiny": (1 << 20, 2, 0.5),
    "small": (1 << 26, 64, 4.0),
    "default": (3 << 28, 512, 15.0),
    "full": (3 << 28, 512, 60.0),
}
BATCH, SEQ = 32, 2048
LATENCY, BANDWIDTH, PARALLEL = 0.02, 100e6, 16
CACHE = 640 << 20  # bytes
PACES = (None, 10e6, 1e6)  # tokens per second that are wanted; None: as many as there are


class Bucket:
    """Files with the latency, the bandwidth and the parallel requests of an object store."""

    parallel = PARALLEL

    def __init__(self, root: Path) -> None:
        self._files = LocalSource(root)
        self._slots, self._lock = threading.Semaphore(PARALLEL), threading.Lock()
        self._free = 0.0  # when the wire is free
        self.bytes = 0

    def size(self, name: str) -> int | None:
        """Bytes of a file."""
        return self._files.size(name)

    def read(self, ranges: Sequence[Range]) -> list[Any]:
        """Some ranges, as many at once as the bucket answers."""
        if len(ranges) == 1:
            return [self._read(ranges[0])]
        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(self._read, ranges))

    def _read(self, one: Range) -> Any:
        with self._slots:
            with self._lock:
                now = time.monotonic()
                self._free = max(self._free, now + LATENCY) + one[2] / BANDWIDTH
                self.bytes += one[2]
                end = self._free
            time.sleep(max(0.0, end - time.monotonic()))
            return self._files.read([one])[0]


class Seen(NamedTuple):
    """What a reader saw: seconds to its first batch; then steps, seconds, bytes, longest stall."""

    first: float
    steps: int
    seconds: float
    bytes: int
    stall: float


def _watch(root: Path, blocks: int, pace: float | None, seconds: float) -> Seen:
    bucket = Bucket(root)
    store = tl.open(root, source=bucket, cache_bytes=CACHE)  # a cache of its own, and empty
    made = store.windows(SEQ).block_shuffle(window_blocks=blocks).seed(1)
    filled = 2 * blocks * 2 * store.reader.manifest.chunk_tokens / BANDWIDTH
    start = time.monotonic()
    with tl.Loader(made.epochs(None), BATCH) as loader:
        next(loader)
        first, begin = time.monotonic() - start, time.monotonic()
        read, steps, stall = bucket.bytes, 0, 0.0
        while time.monotonic() - begin < seconds:
            asked = time.monotonic()
            next(loader)
            steps += 1
            if asked - start > min(filled, seconds / 2):
                stall = max(stall, time.monotonic() - asked)
            if pace is not None:
                wanted = begin + steps * BATCH * SEQ / pace
                time.sleep(max(0.0, wanted - time.monotonic()))
        taken = time.monotonic() - begin
        return Seen(first, steps, taken, bucket.bytes - read, stall)


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of readers of a bucket."""
    tokens, blocks, seconds = SIZES[size]
    write(folder / "store", tokens, 900)
    rows = []
    for pace in PACES:
        seen = _watch(folder / "store", blocks, pace, seconds)
        done = seen.steps * BATCH * SEQ
        name = "as fast as it comes" if pace is None else f"{pace / 1e6:g} Mtok/s wanted"
        used, useful = seen.bytes / seen.seconds, 2 * done / seen.seconds
        rows.append(Row(what=f"{name}: tokens", value=done / seen.seconds / 1e6, unit="Mtok/s"))
        if pace is None:
            share = Row(what="  bandwidth in use", value=used / BANDWIDTH, unit="of 100 MB/s")
            rows.append(want(share, ">=", 0.85))
            rows.append(Row(what="  of it delivered", value=useful / BANDWIDTH, unit="of 100 MB/s"))
        stall = Row(what="  longest stall", value=seen.stall, unit="s")
        rows.append(stall if pace is None else want(stall, "<=", 0.3))
        rows.append(Row(what="  first batch", value=seen.first, unit="s"))
    notes = [
        (
            f"{LATENCY * 1e3:g} ms a request, {PARALLEL} at once, {BANDWIDTH / 1e6:g} MB/s; "
            f"batches of {BATCH} x {SEQ:,}, windows of {blocks} blocks; one round on the wall."
        ),
        "Who takes a window faster than the wire brings one waits for the next: that is no stall.",
        "What is fetched ahead and not yet delivered makes the difference of the two shares.",
    ]
    return [Table(title="remote", command=command, rows=rows, notes=notes)]
