"""Foreign files in place: the same documents as a store of ours and as others store them.

One idea: files that hold ids as they are should cost what ours cost. All stores have the same
tokens and take turns; a pass is 256 batches of 32 windows of 2,048 tokens in shuffled order, row by
row and by blocks, after a pass that does not count. Formats whose ids must be converted are judged
as well, and what converting alone costs in NumPy is beside them. The second table has Megatron's
own reader over the same files, which runs in an environment of its own (`make peers`) and takes
turns, pass by pass. The third is what comes before: the pass that identifies files when they are
first opened, opening them again, and sealing.
"""

from __future__ import annotations

import functools
import itertools
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import (
    Row,
    Table,
    absent,
    against,
    cost,
    interleave,
    rate,
    timed,
    timing_of,
    want,
)
from benchmarks.stores import documents
from tokenloom.foreign.opened import describe_files, open_foreign
from tokenloom.foreign.places import Said
from tokenloom.foreign.seals import seal_files
from tokenloom.store.cache import BlockCache
from tokenloom.store.fetch import FetchRules
from tokenloom.testing import write_flat

__all__ = ["SIZES", "run"]

BATCH, SEQ = 32, 2048
CODES = {"<u2": 8, "<i4": 4, "<i8": 5}

# size → (tokens, batches of a pass, rounds)
SIZES = {
    "tiny": (1 << 18, 2, 1),
    "small": (1 << 25, 256, 12),
    "default": (1 << 26, 256, 24),
    "full": (1 << 27, 256, 64),
}

Open = Callable[[], tl.Store]


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The two tables of foreign files."""
    tokens, batches, rounds = SIZES[size]
    os.environ.setdefault("TOKENLOOM_CACHE_DIR", str(folder / "cache"))
    parts = documents(tokens, "uint16")
    ids, lengths = (np.concatenate(one) for one in zip(*parts, strict=True))
    narrow, wide = _written(folder, ids, lengths)
    limit = {"rows": {CONVERTED: _by_numpy(folder / "wide.bin", batches)}, "blocks": {}}
    tables = [_rates(narrow, wide, limit, batches, rounds, command)]
    tables.append(_beside_megatron(folder / "corpus", batches, rounds, command))
    return [*tables, _first(folder / "corpus", ids.nbytes, max(1, rounds // 4), command)]


def _written(folder: Path, ids: Any, lengths: Any) -> tuple[dict[str, Open], dict[str, Open]]:
    """The stores to compare, with ids of two bytes and of four; ours is the first of each."""
    write_flat(folder / "own", ids, lengths, vocab_size=1 << 16)
    write_flat(folder / "own4", ids.astype("<u4"), lengths, vocab_size=1 << 17)
    for name, dtype in (("corpus", "<u2"), ("sealed", "<u2"), ("corpus4", "<i4"), ("wide", "<i8")):
        _megatron(folder / name, ids, lengths, dtype)
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(ids)
    (folder / "shard.bin").write_bytes(header.tobytes() + ids.tobytes())
    ids.tofile(folder / "a.ds")
    np.cumsum(lengths).astype("<u8").tofile(folder / "a.ds.index")
    ids.tofile(folder / "train.bin")
    ids.astype("<u4").tofile(folder / "olmo.npy")
    np.save(folder / "ids.npy", ids)
    np.save(folder / "ids4.npy", ids.astype("<i4"))
    _seal(folder / "sealed")
    narrow = {
        "a store of ours, uint16": folder / "own",
        "Megatron, uint16": folder / "corpus",
        "Megatron, uint16, sealed": folder / "sealed",
        "datatrove, uint16": folder / "a.ds",
        "llm.c, uint16": folder / "shard.bin",
        "NumPy .npy, uint16": folder / "ids.npy",
    }
    four = {
        "a store of ours, uint32": folder / "own4",
        "Megatron, int32": folder / "corpus4",
        "NumPy .npy, int32": folder / "ids4.npy",
        "Megatron, int64 (converted)": folder / "wide",
    }
    bare = functools.partial(tl.open, folder / "train.bin", dtype="uint16")
    olmo = functools.partial(tl.open, folder / "olmo.npy", dtype="uint32")
    return (
        _opened(narrow) | {"bare array (nanoGPT .bin), uint16": bare},
        _opened(four) | {"bare array (OLMo .npy), uint32": olmo},
    )


def _opened(paths: Mapping[str, Path]) -> dict[str, Open]:
    return {name: functools.partial(tl.open, path) for name, path in paths.items()}


def _by_numpy(path: Path, batches: int) -> Callable[[], None]:
    """What converting alone costs: the same rows of a map of int64, as int32."""
    mapped = np.memmap(path, "<i8", "r")
    rows = mapped[: len(mapped) // SEQ * SEQ].reshape(-1, SEQ)
    order = np.random.default_rng(7).integers(0, len(rows), (batches, BATCH))

    def one() -> None:
        for some in order:
            rows[some].astype("<i4")

    return one


def _megatron(stem: Path, ids: Any, lengths: Any, dtype: str) -> None:
    ids.astype(dtype).tofile(f"{stem}.bin")
    edges = np.concatenate([[0], np.cumsum(lengths)])[:-1] * np.dtype(dtype).itemsize
    head = (b"MMIDIDX\0\0", 1, CODES[dtype], len(lengths), len(lengths) + 1)
    with open(f"{stem}.idx", "wb") as file:
        file.write(struct.pack("<9sQBQQ", *head))
        for array in (lengths.astype("<i4"), edges.astype("<i8"), np.arange(len(lengths) + 1)):
            file.write(array.tobytes())


def _seal(path: Path, to: Path | None = None) -> None:
    described = describe_files(path, Said())
    assert described is not None
    rules, cache = FetchRules(), BlockCache(0)
    reader = open_foreign(described, path=str(path), rules=rules, cache=cache, use_seal=False)
    seal_files(reader, to)


CONVERTED = "limit: NumPy, int64 rows of a map to int32"


def _rates(
    narrow: dict[str, Open],
    wide: dict[str, Open],
    limits: Mapping[str, Mapping[str, Callable[[], None]]],
    batches: int,
    rounds: int,
    command: str,
) -> Table:
    rows: list[Row] = []
    for fetch, stores in itertools.product(("rows", "blocks"), (narrow, wide)):
        passes = {name: _pass(opened(), fetch, batches) for name, opened in stores.items()}
        passes |= limits[fetch] if stores is wide else {}
        times = interleave(passes, rounds)
        work = batches * BATCH * SEQ / 1e6
        made = {name: rate(f"{name}, {fetch}", one, work, "Mtok/s") for name, one in times.items()}
        ours, *others = made.values()
        rows.append(ours)
        for name, row in zip(list(made)[1:], others, strict=True):
            judged = against(row, ours, "ours")
            free = name == CONVERTED
            rows.append(judged if free else want(judged, ">=", 0.9, of_ratio=True))
    notes = ["Ids of int64 are read and converted in chunks; the limit converts nothing but rows."]
    return Table(
        title="foreign 1: batches from files in place", command=command, rows=rows, notes=notes
    )


GOAL = "at least 5x"

MEGATRON = Path(sys.prefix) / "peers/megatron/bin/python"  # made by `make peers`


def _beside_megatron(path: Path, batches: int, rounds: int, command: str) -> Table:
    """Rows of Megatron's files, by its own indexed dataset and by us, in turns."""
    title = "foreign 2: Megatron's files, by its own indexed dataset and by us"
    if not MEGATRON.exists():
        row = absent("its indexed dataset (megatron-core)", "not installed (make peers)", GOAL)
        return Table(title=title, command=command, rows=[row])
    script = Path(__file__).with_name("megatron_reads.py")
    asked = [MEGATRON, "-W", "ignore", script, path, str(batches)]
    ours, mine, theirs = _pass(tl.open(path), "rows", batches), [], []
    with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        while peer.stdout.readline().strip() != "ready":  # it says more when it starts
            assert peer.poll() is None
        for number in range(-1, rounds):
            peer.stdin.write("go\n")
            peer.stdin.flush()
            took, answered = timed(ours)[0], float(peer.stdout.readline())
            if number >= 0:  # the first pass does not count
                mine.append(took)
                theirs.append(answered)
        peer.stdin.close()
    work = batches * BATCH * SEQ / 1e6
    peer_row = rate("its indexed dataset (megatron-core)", timing_of(theirs), work, "Mtok/s")
    row = against(
        rate("tokenloom over the same files", timing_of(mine), work, "Mtok/s"), peer_row, "its own"
    )
    return Table(title=title, command=command, rows=[peer_row, want(row, ">=", 5.0, of_ratio=True)])


def _pass(store: tl.Store, fetch: str, batches: int) -> Callable[[], None]:
    run = store.windows(SEQ)
    run = run.shuffle() if fetch == "rows" else run.block_shuffle()
    loader = iter(tl.Loader(run.epochs(None).seed(7), BATCH, fetch=fetch, fields=("tokens",)))

    def one() -> None:
        for _ in itertools.islice(loader, batches):
            pass

    return one


def _first(path: Path, size: int, rounds: int, command: str) -> Table:
    """What opening and sealing cost, in bytes of tokens per CPU-second."""

    def changed() -> None:
        os.utime(f"{path}.bin", None)
        tl.open(path)

    seal = functools.partial(_seal, path, path.with_suffix(".elsewhere"))
    times = interleave({"changed": changed, "known": lambda: tl.open(path), "seal": seal}, rounds)
    gigabytes = size / 1e9
    rows = [
        rate("identifying changed files", times["changed"], gigabytes, "GB/s"),
        cost("opening known files", times["known"], 1, "ms"),
        rate("sealing", times["seal"], gigabytes, "GB/s"),
    ]
    return Table(title="foreign 3: before the first batch", command=command, rows=rows)
