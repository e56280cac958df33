"""A store behind an object store: how much of its bandwidth is delivered, and who waits how long.

The bucket is simulated: every request takes 20 ms, 16 are answered at once, and all of them share
100 MB/s; bytes come from a local file. So seconds are those of the wall, most of them asleep.

Three readers of one block shuffle: one that takes what it gets, and two that train at a fixed
speed. The first reads the whole store once, so nothing is fetched for a window that nobody reads:
what it delivers, over the time from opening to the last batch, is the share of the bandwidth that
counts. A stall is a step that comes later than it is wanted. Stalls are counted after the first
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

# size → tokens of the store, blocks of a window, seconds of each reader that trains
SIZES = {
    "tiny": (1 << 20, 2, 0.5),
    "small": (1 << 26, 64, 4.0),
    "default": (3 << 29, 512, 15.0),  # 12 windows: 32 seconds on the wire
    "full": (3 << 30, 512, 60.0),
}
BATCH, SEQ = 32, 2048
LATENCY, BANDWIDTH, PARALLEL = 0.02, 100e6, 16
CACHE = 640 << 20  # bytes
PACES = (10e6, 1e6)  # tokens per second that are wanted


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
    """What a reader saw.

    Attributes:
        first: seconds from opening to its first batch.
        steps: how many it took.
        seconds: from opening to the last of them.
        bytes: what was read.
        stall: its longest wait, in seconds.
    """

    first: float
    steps: int
    seconds: float
    bytes: int
    stall: float

    @property
    def rate(self) -> float:
        """Tokens per second, from opening to the end."""
        return self.steps * BATCH * SEQ / self.seconds

    @property
    def pace(self) -> float:
        """Tokens per second after the first batch."""
        return (self.steps - 1) * BATCH * SEQ / (self.seconds - self.first)

    @property
    def used(self) -> float:
        """Bytes that were read, over what the wire could have brought in that time."""
        return self.bytes / self.seconds / BANDWIDTH

    @property
    def delivered(self) -> float:
        """The same for the bytes of the tokens in its batches."""
        return 2 * self.rate / BANDWIDTH


def _watch(root: Path, blocks: int, pace: float | None, seconds: float) -> Seen:
    """One reader: the whole store as fast as it comes, or at a pace for some seconds."""
    start, bucket = time.monotonic(), Bucket(root)
    store = tl.open(root, source=bucket, cache_bytes=CACHE)  # a cache of its own, and empty
    made = store.windows(SEQ).block_shuffle(window_blocks=blocks).seed(1)
    filled = 2 * blocks * 2 * store.reader.manifest.chunk_tokens / BANDWIDTH
    first, steps, stall = 0.0, 0, 0.0
    with tl.Loader(made if pace is None else made.epochs(None), BATCH) as loader:
        while pace is None or time.monotonic() - start < first + seconds:
            asked = time.monotonic()
            if next(loader, None) is None:
                break
            steps, got = steps + 1, time.monotonic()
            first = first or got - start
            if asked - start > min(filled, seconds / 2):
                stall = max(stall, got - asked)
            if pace is not None:
                wanted = start + first + (steps - 1) * BATCH * SEQ / pace
                time.sleep(max(0.0, wanted - got))
        return Seen(first, steps, time.monotonic() - start, bucket.bytes, stall)


def _fastest(seen: Seen) -> list[Row]:
    """Judged by what it delivers."""
    unit = f"of {BANDWIDTH / 1e6:g} MB/s"
    delivered = Row(what="  bandwidth delivered", value=seen.delivered, unit=unit)
    return [
        Row(what="as fast as it comes: tokens", value=seen.rate / 1e6, unit="Mtok/s"),
        want(delivered, ">=", 0.85),
        Row(what="  bandwidth used", value=seen.used, unit=unit),
        Row(what="  longest stall", value=seen.stall, unit="s"),
        Row(what="  first batch", value=seen.first, unit="s"),
    ]


def _training(seen: Seen, pace: float) -> list[Row]:
    """Judged by how long it waits."""
    return [
        Row(what=f"{pace / 1e6:g} Mtok/s wanted: tokens", value=seen.pace / 1e6, unit="Mtok/s"),
        want(Row(what="  longest stall", value=seen.stall, unit="s"), "<=", 0.3),
        Row(what="  first batch", value=seen.first, unit="s"),
    ]


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of readers of a bucket."""
    tokens, blocks, seconds = SIZES[size]
    write(folder / "store", tokens, 900)
    rows = _fastest(_watch(folder / "store", blocks, None, seconds))
    for pace in PACES:
        rows += _training(_watch(folder / "store", blocks, pace, seconds), pace)
    notes = [
        (
            f"{LATENCY * 1e3:g} ms a request, {PARALLEL} at once, {BANDWIDTH / 1e6:g} MB/s; "
            f"batches of {BATCH} x {SEQ:,}, windows of {blocks} blocks; one round on the wall."
        ),
        (
            f"The fastest reads all {2 * tokens / 1e6:,.0f} MB, {2 * tokens / BANDWIDTH:.0f} s on "
            "the wire, once: from opening the store to the last batch."
        ),
        (
            "Who takes a window faster than the wire brings one waits for the next: that is no "
            "stall, and the longest wait of the fastest reader is not judged."
        ),
    ]
    return [Table(title="remote", command=command, rows=rows, notes=notes)]
