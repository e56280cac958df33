"""What the processes of one host share: pages of a local store, and the disk cache of a bucket.

Every process opens the store by itself and reads all of it, block-shuffled, with a cache far
smaller than the store; all are alive when memory is counted. The kernel counts: *resident* has
every page that a process touched, *proportional* divides a page by the processes that share it, so
the sum of the latter is what the host has to hold. `read_bytes` is what a process had fetched from
the device.

The second table counts requests in the log of the server of the tests: with a disk cache in common,
any number of processes should be sent what one is. (Requests may differ by a few: who needs two
neighbours at once asks for them together.)
"""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any, NamedTuple

import tokenloom as tl
from benchmarks.buckets import Bucket, serving
from benchmarks.clock import Row, Table, amount, want
from benchmarks.stores import write_store

__all__ = ["SIZES", "run"]

# size → tokens of the store, processes
SIZES = {
    "tiny": (1 << 18, (2,)),
    "small": (1 << 24, (1, 2, 4)),
    "default": (1 << 26, (1, 2, 4, 8)),
    "full": (1 << 28, (1, 2, 4, 8)),
}
BATCH, SEQ, BLOCKS = 32, 256, 8
CACHE = 4 << 20  # bytes: eight blocks
MB = 1e6
ROLLUP = Path("/proc/self/smaps_rollup")


class Seen(NamedTuple):
    """What the kernel says of a process, in bytes, beyond what it had after its imports.

    Attributes:
        resident: pages it touched.
        proportional: the same, each divided by the processes that share it.
        private: pages that nobody shares.
        fetched: from the device, while it read.
        base: proportional size before anything was opened.
    """

    resident: int
    proportional: int
    private: int
    fetched: int
    base: int


def _memory() -> dict[str, int]:
    """Sizes of this process in bytes, by the names of the kernel."""
    pairs = (line.split(":", 1) for line in ROLLUP.read_text().splitlines()[1:])
    return {name: int(text.split()[0]) * 1024 for name, text in pairs}


def _fetched() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def _read_all(path: str, blocks: int, options: dict[str, Any]) -> tl.Dataset:
    rows = tl.open(path, cache_bytes=CACHE, **options).windows(SEQ).seed(1)
    run = rows.block_shuffle(window_blocks=blocks) if blocks else rows.shuffle()
    with tl.Loader(run, BATCH) as loader:
        for batch in loader:
            batch.tokens  # noqa: B018 - filled when it is first asked for
    return run


def _process(path: str, blocks: int, options: dict[str, Any], all_here: Any, found: Any) -> None:
    """Read everything, wait until all have, and tell what this process holds."""
    before, read = _memory(), _fetched()
    run = _read_all(path, blocks, options)
    read = _fetched() - read
    all_here.wait()
    now = _memory()
    all_here.wait()  # nobody leaves before all have looked
    private = now["Private_Clean"] + now["Private_Dirty"]
    private -= before["Private_Clean"] + before["Private_Dirty"]
    rest = now["Rss"] - before["Rss"], now["Pss"] - before["Pss"], private, read, before["Pss"]
    found.put(rest)
    del run


def _together(path: str, count: int, blocks: int = BLOCKS, **options: Any) -> list[Seen]:
    """What each of some processes holds when all have read everything."""
    context = multiprocessing.get_context("spawn")
    all_here, found = context.Barrier(count), context.Queue()
    crew = [
        context.Process(target=_process, args=(path, blocks, options, all_here, found))
        for _ in range(count)
    ]
    for one in crew:
        one.start()
    seen = [Seen(*found.get(timeout=3600)) for _ in crew]
    for one in crew:
        one.join()
    return seen


def _forget(folder: Path) -> None:
    """Have the kernel drop the pages of all files of a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _processes(count: int) -> str:
    return f"{count} process{'es' if count > 1 else ''}"


def _held(seen: list[Seen], how: str, size: int) -> list[Row]:
    resident, whole = (sum(one[place] for one in seen) for place in range(2))
    fetched = amount("  from the device, each", max(one.fetched for one in seen) / size, "x")
    return [
        amount(f"{_processes(len(seen))}, {how}: resident", resident / MB, "MB"),
        amount("  proportional", whole / MB, "MB"),
        amount("  of one its own", max(one.private for one in seen) / MB, "MB"),
        want(fetched, "<=", 0.05, unit="x the store"),
    ]


def _pages(store: Path, tokens: int, crews: tuple[int, ...], command: str) -> Table:
    size = 2 * tokens
    _forget(store)
    (cold,) = _together(str(store), 1)
    rows: list[Row] = [amount("first process: from the device", cold.fetched / size, "x the store")]
    for blocks, how in ((BLOCKS, "block-shuffled"), (0, "shuffled")):
        for count in crews:
            rows += _held(_together(str(store), count, blocks), how, size)
    notes = [
        (
            f"A store of {size / MB:,.0f} MB, read whole by each; cache_bytes {CACHE / MB:.0f} MB "
            "each. Block-shuffled: blocks are copied into the cache. Shuffled: rows are read from "
            "a map of the file."
        ),
        (
            "Without what a process has after its imports: "
            f"{cold.base / MB:.0f} MB proportional when it is alone."
        ),
        "The first process reads after the kernel was told to drop the pages of the files.",
    ]
    return Table(title="host 1: pages", command=command, rows=rows, notes=notes)


def _requests(bucket: Bucket, folder: Path, crews: tuple[int, ...], command: str) -> Table:
    rows: list[Row] = []
    alone: list[int] = []
    for count in crews:
        bucket.sent()
        pieces = folder / f"pieces-{count}"
        _together("s3://bucket/store", count, disk_cache=str(pieces))
        sent = bucket.sent()
        alone = alone or sent
        of = f"{_processes(count)}, a disk cache"
        asked = amount(f"{of}: requests", len(sent), "requests")
        rows += [
            asked,
            want(amount("  sent", sum(sent) / MB, "MB"), "<=", sum(alone) / MB, unit="MB"),
        ]
    most = crews[-1]
    bucket.sent()
    _together("s3://bucket/store", most)
    sent = bucket.sent()
    rows += [
        amount(f"{most} processes, none: requests", len(sent), "requests"),
        amount("  sent", sum(sent) / MB, "MB"),
    ]
    notes = ["Requests for tokens in the log of the server; all processes read at the same time."]
    return Table(title="host 2: requests", command=command, rows=rows, notes=notes)


def run(folder: Path, size: str, command: str) -> list[Table]:
    """Memory and device reads of processes over one store, and their requests to a bucket."""
    tokens, crews = SIZES[size]
    (folder / "served").mkdir()
    store = folder / "served" / "store"
    write_store(store, tokens, shards=1)
    tables = [_pages(store, tokens, crews, command)] if ROLLUP.exists() else []
    with serving(folder / "served") as bucket:
        return [*tables, _requests(bucket, folder, crews, command)]
