"""Full and block shuffle of a store that is in no cache: wall seconds, and bytes read from disk.

Table 8 of `benchmarks/rivals.py`. Every pass starts with the store's files evicted from the page
cache (`posix_fadvise(POSIX_FADV_DONTNEED)`, after all maps of them are gone: a mapped page stays).
Whether that worked is seen in `/proc/self/io`: a pass that read fewer bytes from the disk than it
delivered was not cold, and then the table shows no figure at all.

Wall time counts, so our loader has its thread. A run ends after the batches of a pass: nothing is
read ahead for later ones. The disk of a virtual machine may be in a cache of its host's.
"""

from __future__ import annotations

import gc
import itertools
import mmap
import os
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Case, Row, Table, against, amount, interleave, rate, typical, want
from benchmarks.rival_rows import Rows, goal, payloads

__all__ = ["SIZES", "evict", "read_bytes", "tables"]

BATCH, SEQ, UNALIGNED = 32, 2048, 2000
CACHE = 640 << 20  # bytes: as much as the default, but empty
WINDOW = 64  # blocks of a shuffle window: 256 batches
TITLE = "rivals 8: cold"
# size → (batches of a pass, rounds)
SIZES = {"tiny": (4, 1), "small": (256, 3), "default": (1024, 5), "full": (1024, 11)}
COLD = 0.9  # of the delivered bytes have to come from the disk


def read_bytes() -> int | None:
    """Bytes that this process has had read from disks; None where the system does not tell."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes")), None)


def evict(root: Path) -> None:
    """Ask the system to drop the files of a folder from the page cache."""
    gc.collect()  # maps that nobody uses any more keep pages in memory
    for path in filter(Path.is_file, root.rglob("*")):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)  # what is not written yet would stay
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """A cold pass over a store, and the bytes that every pass has read so far."""

    root: Path
    run: Callable[[], None]
    useful: int
    read: list[int] = field(default_factory=list)

    def case(self) -> Case:
        """To be timed, the store evicted before."""
        return Case(prepare=lambda: evict(self.root), run=lambda _: self.count())

    def count(self) -> None:
        """Run it, and note what was read."""
        before = read_bytes()
        self.run()
        after = read_bytes()
        self.read.append(0 if before is None or after is None else after - before)

    @property
    def share(self) -> float:
        """Bytes read for each useful one, in the median pass."""
        return statistics.median(self.read) / self.useful

    @property
    def is_cold(self) -> bool:
        """Every pass read about as many bytes as it delivered, or more."""
        return min(self.read) >= COLD * self.useful


def numpy_pass(files: list[tuple[Path, int]], order: Any, *, seq: int, advice: int | None) -> None:
    """Three lines of NumPy over rows in this order, the maps told how they are read."""
    rows = Rows(files, seq)
    for part in rows.parts:
        if advice is not None:
            mapped: Any = part._mmap  # the map of an `np.memmap`
            mapped.madvise(advice)
    for some in order:
        rows.gather(some).astype(np.int32)


def own_pass(
    root: Path, batches: int, order: str, fetch: str, *, seq: int = SEQ, **shuffle: int
) -> None:
    """Our loader, from opening the store."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows that drift across blocks: on purpose
        made = getattr(tl.open(root, cache_bytes=CACHE).windows(seq), order)(**shuffle)
    with tl.Loader(made.seed(7).take(batches * BATCH), BATCH, fetch=fetch) as loader:
        for _ in loader:
            pass


def tables(root: Path, size: str, command: str) -> list[Table]:
    """The table, without figures where files are not evicted."""
    batches, rounds = SIZES[size]
    if not hasattr(os, "posix_fadvise") or read_bytes() is None:
        return [_nothing("this system has no posix_fadvise or no /proc/self/io", command)]
    files = payloads(root)
    few = min(batches, sum(n // SEQ for _, n in files) // BATCH)  # within one epoch
    found = _passes(root, files, few)
    timing = interleave({name: one.case() for name, one in found.items()}, rounds, warm_up=False)
    warm = next((name for name, one in found.items() if not one.is_cold), None)
    if warm is not None:
        told = f"{warm!r} read {min(found[warm].read):,} of {found[warm].useful:,} bytes from disk"
        return [_nothing(f"eviction does not work on this file system: {told}", command)]
    walls = {name: timing[name].by_wall() for name in found}
    tokens = {name: one.useful / 2e6 for name, one in found.items()}
    rows = {name: rate(name, walls[name], tokens[name], "Mtok/s") for name in found}
    seconds, cpu = (
        "; ".join(f"{name} {one.best:.2f} / {one.median:.2f}" for name, one in those.items())
        for those in (walls, timing)
    )
    notes = [
        (
            f"{few:,} batches of {BATCH} rows from {sum(n for _, n in files) / 1e6:,.0f} M tokens, "
            f"evicted before each of {rounds} rounds; by the clock on the wall."
        ),
        f"Wall seconds, best / median: {seconds}.",
        f"CPU-seconds, best / median: {cpu}.",
        f"Shuffle windows of {WINDOW} blocks, {WINDOW * 128 // BATCH} batches each.",
        "Ours opens the store, checks every byte that it delivers, and has its thread.",
    ]
    return [Table(title=TITLE, command=command, rows=_judged(rows, found), notes=notes)]


FULL, RANDOM = "three lines of NumPy, full shuffle", "the same with MADV_RANDOM"
OURS, OTHER = "tokenloom, full shuffle, fetch='rows'", "tokenloom, the same in rows of 2,000"
SAME, BLOCK = "three lines of NumPy, our block shuffle", "tokenloom, block shuffle"


def _passes(root: Path, files: list[tuple[Path, int]], batches: int) -> dict[str, Pass]:
    rows = sum(n // SEQ for _, n in files)
    drawn = np.random.default_rng(0).permutation(rows)[: batches * BATCH].reshape(-1, BATCH)
    block = tl.open(root).windows(SEQ).block_shuffle(window_blocks=WINDOW).seed(7)
    blocks = block.locate(np.arange(batches * BATCH))[1].reshape(-1, BATCH)  # [batch, row]

    def numpy(order: Any, advice: int | None = None) -> Callable[[], None]:
        return lambda: numpy_pass(files, order, seq=SEQ, advice=advice)

    runs = {
        FULL: numpy(drawn),
        RANDOM: numpy(drawn, getattr(mmap, "MADV_RANDOM", None)),
        OURS: lambda: own_pass(root, batches, "shuffle", "rows"),
        OTHER: lambda: own_pass(root, batches, "shuffle", "rows", seq=UNALIGNED),
        SAME: numpy(blocks),
        BLOCK: lambda: own_pass(root, batches, "block_shuffle", "auto", window_blocks=WINDOW),
    }
    useful = dict.fromkeys(runs, batches * BATCH * SEQ * 2)
    useful[OTHER] = batches * BATCH * UNALIGNED * 2
    return {name: Pass(root=root, run=run, useful=useful[name]) for name, run in runs.items()}


def _judged(rows: dict[str, Row], found: dict[str, Pass]) -> list[Row]:
    better = max(rows[FULL], rows[RANDOM], key=typical)

    def read(name: str, most: float | None = None) -> Row:
        row = amount("  bytes read for a useful one", found[name].share, "bytes")
        return row if most is None else want(row, "<=", most)

    return list(
        itertools.chain(
            (rows[FULL], read(FULL), rows[RANDOM], read(RANDOM)),
            (goal(rows[OURS], better, 4.0), read(OURS, 1.1)),
            (against(rows[OTHER], better, better.what), read(OTHER, 2.2)),
            (rows[SAME], read(SAME)),
            (goal(rows[BLOCK], rows[FULL], 2.5), read(BLOCK)),
        )
    )


def _nothing(why: str, command: str) -> Table:
    return Table(title=TITLE, command=command, rows=[], notes=[f"No figures: {why}."])
