"""Reading: io blocks against a bare `preadv`, random token windows, and what checking costs.

Three tables. Blocks are 256 Ki tokens of uint16, 512 KiB, in shuffled order; everything is in the
page cache, so CPU is what is measured. Token windows are 2,048 tokens at any token, all in shard 0.

Passes are short, a few milliseconds, because on a shared machine a short pass has a chance to run
undisturbed. Every pass, of any rival, reads the next part of the store, so that no rival finds in
the CPU's cache what another one has just read. The limit itself depends on how the kernel keeps the
file: a freshly written one is in large pieces and is read twice as fast as one in scattered pages,
so only ratios inside one run are meaningful.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np

import tokenloom as tl
from benchmarks.clock import Case, Row, Table, against, cost, interleave, rate, want
from benchmarks.stores import write_store
from tokenloom.store import format as fmt

__all__ = ["SIZES", "run"]

BLOCK = fmt.CHUNK_TOKENS * 2  # bytes of an io block of uint16
CHUNK = fmt.INNER * 2  # bytes under one crc32c
WINDOW = 2048  # tokens
REQUEST = 64  # token windows in one request
GB = 1e9

PASS_BLOCKS = 32
PASS_WINDOWS = 1024

# size → (tokens, token windows, rounds)
SIZES = {
    "tiny": (1 << 20, 64, 1),
    "small": (1 << 25, 8_192, 32),
    "default": (1 << 26, 16_384, 96),
    "full": (1 << 28, 65_536, 384),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The three tables of reading."""
    tokens, windows, rounds = SIZES[size]
    root = folder / "store"
    write_store(root, tokens, shards=2)
    return [
        _blocks(root, rounds, command),
        _windows(root, windows, rounds, command),
        _checking(root, max(1, rounds // 16), command),
    ]


def _aligned(size: int) -> np.ndarray:
    """An array that starts on a page and whose pages are already mapped."""
    array = np.frombuffer(mmap.mmap(-1, size), np.uint8)
    array[::4096] = 0
    return array


def _open(root: Path, **hints: Any) -> tl.Store:
    """The store with every chunk checked already."""
    store = tl.open(root, **hints)
    _read_blocks(store, _places(store))
    return store


def _places(store: tl.Store) -> list[tuple[int, int]]:
    """(shard, block) of every io block, shuffled."""
    places = [
        (number, block)
        for number, shard in enumerate(store.reader.manifest.shards)
        for block in range(-(-shard.tokens // store.chunk_tokens))
    ]
    return [places[i] for i in np.random.default_rng(1).permutation(len(places))]


def _in_turn(
    parts: list[list[Any]], ways: dict[str, Callable[[list[Any]], None]]
) -> dict[str, Callable[[], None]]:
    """Passes that take the next part at every call, whichever of them is called."""
    turns = itertools.cycle(parts)

    def one(run: Callable[[list[Any]], None]) -> Callable[[], None]:
        return lambda: run(next(turns))

    return {name: one(run) for name, run in ways.items()}


def _cut(items: Sequence[Any], size: int) -> list[list[Any]]:
    """Equal parts of `size` items; a rest is left out unless there is nothing else."""
    whole = max(1, len(items) // size)
    return [list(items[i * size : (i + 1) * size]) for i in range(whole)]


def _read_blocks(store: tl.Store, places: list[tuple[int, int]]) -> None:
    block = store.reader.block
    for number, place in places:
        block(number, place)


# -- 1. io blocks --------------------------------------------------------------------------


def _blocks(root: Path, rounds: int, command: str) -> Table:
    uncached = _open(root, cache_bytes=0)
    places = _places(uncached)
    kept = max(1, len(places) // 4) * BLOCK
    evicting = _open(root, cache_bytes=kept)
    cached = _open(root, cache_bytes=(len(places) + 1) * BLOCK)
    files = [os.open(root / fmt.shard_name(n) / "input_ids/c/0", os.O_RDONLY) for n in range(2)]
    good, bad = _aligned(BLOCK), _aligned(BLOCK + 4096)[16 : 16 + BLOCK]
    ring = [_aligned(BLOCK) for _ in range(kept // BLOCK)]
    parts = _cut(places, PASS_BLOCKS)

    def bare(buffers: Iterator[np.ndarray]) -> Callable[[list[Any]], None]:
        def read(part: list[tuple[int, int]]) -> None:
            for number, block in part:
                os.preadv(files[number], [next(buffers)], block * BLOCK)

        return read

    def through(store: tl.Store) -> Callable[[list[Any]], None]:
        return lambda part: _read_blocks(store, part)

    reading = {
        "limit": bare(itertools.repeat(good)),
        "bad": bare(itertools.repeat(bad)),
        "ring": bare(itertools.cycle(ring)),
        "block": through(uncached),
    }
    # a cache must see all parts in their order, so that whatever comes has been evicted
    ways = _in_turn(parts, reading) | _in_turn(parts, {"evicting": through(evicting)})
    timing = interleave(ways | _in_turn(parts, {"hits": through(cached)}), rounds)
    for file in files:
        os.close(file)
    total = len(parts[0]) * BLOCK / GB

    def row(what: str, name: str) -> Row:
        return rate(what, timing[name], total, "GB/CPU-s")

    limit = row("limit: bare preadv, one reused page-aligned buffer", "limit")
    ring_limit = row(f"limit of the cache: bare preadv into {kept >> 20} MiB of buffers", "ring")
    rows = [
        limit,
        against(row("bare preadv, buffer 16 bytes past a page", "bad"), limit, "limit"),
        ring_limit,
        want(
            against(row("Reader.block, no cache, chunks checked before", "block"), limit, "limit"),
            ">=",
            0.8,
            of_ratio=True,
        ),
        against(row("Reader.block, LRU, every call evicts", "evicting"), ring_limit, "its limit"),
        cost("Reader.block, found in the LRU", timing["hits"], len(parts[0])),
    ]
    notes = [
        f"{len(places)} blocks of 512 KiB, shuffled, warm; {rounds} rounds of {len(parts[0])}.",
        "A reused buffer stays in the CPU's cache; buffers of blocks that are kept cannot.",
    ]
    return Table(
        title="read 1: io blocks of 256 Ki tokens", command=command, rows=rows, notes=notes
    )


# -- 2. token windows ----------------------------------------------------------------------


def _windows(root: Path, windows: int, rounds: int, command: str) -> Table:
    store = _open(root, cache_bytes=0)
    path = root / fmt.shard_name(0) / "input_ids"
    last = store.reader.manifest.shards[0].tokens - WINDOW
    starts = np.random.default_rng(2).integers(0, last, windows)
    parts = _cut(starts.tolist(), PASS_WINDOWS)
    ours = _own_ways(store)
    file = os.open(path / "c/0", os.O_RDONLY)
    bare = _bare_ways(path, file, store.reader.manifest.shards[0].tokens)
    timing = interleave(_in_turn(parts, {**bare, **ours}), rounds)
    os.close(file)
    rows = {name: cost(name, took, len(parts[0])) for name, took in timing.items()}
    limit = rows["limit: bare preadv of 4 KiB"]
    table = [limit, rows["np.memmap, slice, astype(int32)"]]
    table += [want(against(rows[name], limit, "limit"), "<=", 5) for name in ours]
    few = max(8, windows // 64)
    peers = _peer_ways(path, starts[:few].tolist())
    peer_timing = interleave(peers, min(rounds, 3)) if peers else {}
    for name, took in peer_timing.items():
        table.append(against(cost(name, took, few), limit, "limit"))
    notes = [f"{windows:,} windows; {rounds} rounds of {len(parts[0]):,}; array libraries {few}."]
    return Table(
        title="read 2: a random window of 2,048 tokens, warm",
        command=command,
        rows=table,
        notes=notes,
    )


def _own_ways(store: tl.Store) -> dict[str, Callable[[list[int]], None]]:
    reader = store.reader
    out = np.empty(REQUEST * WINDOW, np.int32)

    def one_by_one(starts: list[int]) -> None:
        for start in starts:
            store.tokens(start, start + WINDOW)

    def stored(starts: list[int]) -> None:
        for start in starts:
            reader.read_one(start, start + WINDOW)

    def together(starts: list[int]) -> None:
        every = np.array(starts)
        for i in range(0, len(every), REQUEST):
            start = every[i : i + REQUEST]
            np.concatenate(reader.read(start, start + WINDOW), out=out, casting="unsafe")

    return {
        "Store.tokens, one by one, int32": one_by_one,
        "Reader.read_one, one by one, stored dtype": stored,
        f"Reader.read of {REQUEST} + np.concatenate, int32": together,
    }


def _bare_ways(path: Path, file: int, tokens: int) -> dict[str, Callable[[list[int]], None]]:
    buffer = _aligned(WINDOW * 2)
    memory = np.memmap(path / "c/0", np.uint16, "r", shape=(tokens,))
    memory.sum()  # every page is mapped

    def read(starts: list[int]) -> None:
        for start in starts:
            os.preadv(file, [buffer], start * 2)

    def slices(starts: list[int]) -> None:
        for start in starts:
            memory[start : start + WINDOW].astype(np.int32)

    return {"limit: bare preadv of 4 KiB": read, "np.memmap, slice, astype(int32)": slices}


def _peer_ways(path: Path, starts: list[int]) -> dict[str, Callable[[], object]]:
    """The same file through array libraries, where they are installed."""
    ways: dict[str, Callable[[], object]] = {}
    if importlib.util.find_spec("tensorstore"):
        import tensorstore

        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/"}}
        opened = tensorstore.open(spec, read=True).result()

        def read_tensorstore() -> None:
            for start in starts:
                opened[start : start + WINDOW].read().result()

        ways[f"tensorstore {_version('tensorstore')}, stored dtype"] = read_tensorstore
    if importlib.util.find_spec("zarr"):
        import zarr

        array: Any = zarr.open_array(path, mode="r")

        def read_zarr() -> None:
            for start in starts:
                array[start : start + WINDOW]

        ways[f"zarr-python {_version('zarr')}, stored dtype"] = read_zarr
    return ways


def _version(package: str) -> str:
    return importlib.metadata.version(package)


# -- 3. checking ---------------------------------------------------------------------------


def _checking(root: Path, rounds: int, command: str) -> Table:
    places = _places(tl.open(root))

    def fresh(verify: str) -> Case:
        return Case(
            prepare=lambda: tl.open(root, cache_bytes=0, verify=verify),
            run=lambda store: _read_blocks(store, places),
        )

    files = [os.open(root / fmt.shard_name(n) / "input_ids/c/0", os.O_RDONLY) for n in range(2)]
    buffer = _aligned(BLOCK)
    chunks = [buffer[i : i + CHUNK] for i in range(0, BLOCK, CHUNK)]

    def bare() -> None:
        for number, block in places:
            os.preadv(files[number], [buffer], block * BLOCK)
            for chunk in chunks:
                google_crc32c.value(chunk)

    timing = interleave(
        {
            "bare": bare,
            "first": fresh("first"),
            "always": fresh("always"),
            "never": fresh("never"),
            "full": Case(prepare=lambda: tl.open(root), run=lambda s: s.verify(progress=False)),
        },
        rounds,
    )
    for file in files:
        os.close(file)
    total = len(places) * BLOCK / GB
    stored = sum(f.stat().st_size for f in root.rglob("*") if f.is_file()) / GB
    limit = rate("limit: bare preadv + crc32c per 64 KiB", timing["bare"], total, "GB/CPU-s")
    rows = [limit]
    for name, what in (
        ("first", 'first pass of a fresh store, verify="first"'),
        ("always", 'verify="always"'),
        ("never", 'first pass, verify="never"'),
    ):
        rows.append(against(rate(what, timing[name], total, "GB/CPU-s"), limit, "limit"))
    full = rate(
        "Store.verify(): sha256 of files, crc32c, meaning", timing["full"], stored, "GB/CPU-s"
    )
    rows.append(against(full, limit, "limit"))
    notes = [f"{total:.3f} GB in blocks of 512 KiB, {rounds} rounds; opening a shard is included."]
    return Table(title="read 3: checking", command=command, rows=rows, notes=notes)
