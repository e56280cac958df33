"""Loaders against the strongest rivals that an expert would write, inside and beyond the cache.

The rivals have what we are faster without: three lines of NumPy (`memmap[rows].astype(int32)`), the
same gather into buffers that are used again, a torch `DataLoader` with `__getitems__`, which
gathers a batch at once, and Grain with a batch gathered in one `map`. They have no checks, no
boundaries, no ranks and no resume. What all arrays cost is compared with `memcpy` of as many bytes,
17 a token. Other setups (the first batch, a mix, workers) and a cold store are in
`benchmarks/rivals_setups.py` and `benchmarks/rivals_cold.py`.

Everybody delivers shuffled rows of the same store; a pass is a multiple of the batches that we plan
together, so planning is paid for. Nobody has a thread: what works ahead would charge its CPU time
to whoever runs then.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import tokenloom as tl
from benchmarks import rivals_cold, rivals_setups
from benchmarks.clock import Case, Table, against, interleave, rate
from benchmarks.loaders import ALL
from benchmarks.rival_rows import (
    Makers,
    Rows,
    copied_bytes,
    goal,
    grain_rows,
    is_installed,
    numpy_rows,
    ours,
    passes,
    payloads,
    rates,
    reused_rows,
    tensors,
    torch_rows,
    write,
)

__all__ = ["SIZES", "run"]

# size → (tokens in the cache, tokens beyond it, batches of a pass, rounds)
SIZES = {
    "tiny": (1 << 19, 1 << 19, 2, 1),
    "small": (1 << 24, 1 << 26, 256, 5),
    "default": (1 << 26, 3 << 28, 512, 11),
    "full": (1 << 26, 3 << 28, 512, 31),
}
MEANS = {"inside": 900, "eighths": 256, "short": 64}  # store → tokens of a document, on average
# rows of 2,048 tokens → (which store, at least this share of memcpy)
PACKED = {
    "packed, 2 or 3 documents a row": ("inside", None),
    "packed, 8 documents a row": ("eighths", 0.8),
    "packed, 32 documents a row": ("short", 0.55),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of rivals."""
    inside, beyond, batches, rounds = SIZES[size]
    for name, mean in MEANS.items():
        write(folder / name, inside // 2 if name == "short" else inside, mean)
    write(folder / "beyond", beyond, MEANS["inside"])
    sizes = batches, rounds
    return [
        _tokens(folder / "inside", sizes, command),
        _arrays(folder, sizes, command),
        _shapes(folder / "inside", sizes, command),
        _beyond(folder / "beyond", sizes, command),
        *rivals_setups.tables(folder, inside, sizes, command),
        *rivals_cold.tables(folder / "beyond", size, command),
    ]


def _tokens(root: Path, sizes: tuple[int, int], command: str) -> Table:
    rows, store, batch, seq = Rows(payloads(root), 2048), tl.open(root), 32, 2048
    full, block = store.windows(seq).shuffle(), store.windows(seq).block_shuffle(window_blocks=64)
    limit, numpy, torch = "limit: gather into reused buffers", "three lines of NumPy", "torch"
    makers: Makers = {
        f"{limit}, int32": lambda: reused_rows(rows, batch),
        f"{numpy}, int32": lambda: numpy_rows(rows, batch),
        f"{numpy}, int64": lambda: numpy_rows(rows, batch, "int64"),
        "tokenloom, full shuffle, int32": lambda: ours(full, batch),
        "tokenloom, block shuffle, int32": lambda: ours(block, batch),
        "tokenloom, full shuffle, int64": lambda: ours(full, batch, dtype="int64"),
    }
    there, grain = is_installed("torch"), "Grain, a batch in one map"
    if is_installed("grain"):
        makers[f"{grain}, int32"] = lambda: grain_rows(rows, batch, "int32")
    if there:
        makers |= {
            f"{torch}, __getitems__, int32": lambda: torch_rows(rows, batch, "int32"),
            f"{torch}, __getitems__, int64": lambda: torch_rows(rows, batch, "int64"),
            "tokenloom, full shuffle, int64": lambda: tensors(ours(full, batch, dtype="int64")),
        }
    found = rates(makers, sizes, batch * seq)
    goals = {
        "int32": {limit: 0.72, numpy: 1.0, f"{torch}, __getitems__": 2.1, grain: 1.2},
        "int64": {numpy: 1.0, f"{torch}, __getitems__": 1.6},
    }
    table = []
    for kind, rivals in goals.items():
        those = {name: goal for name, goal in rivals.items() if f"{name}, {kind}" in found}
        table += [found[f"{name}, {kind}"] for name in those]
        for mine in (one for name, one in found.items() if "loom" in name and kind in name):
            table += [goal(mine, found[f"{name}, {kind}"], least) for name, least in those.items()]
    notes = ["int64 comes as torch tensors."] if there else ["torch is not installed."]
    if not is_installed("grain"):
        notes.append("Grain is left out: it is not installed.")
    title = "rivals 1: tokens of 32 x 2,048, in the cache"
    return Table(title=title, command=command, rows=table, notes=notes)


def _arrays(folder: Path, sizes: tuple[int, int], command: str) -> Table:
    rows, batch, seq = Rows(payloads(folder / "inside"), 2048), 32, 2048
    store = tl.open(folder / "inside")
    packed = {name: tl.open(folder / root).pack(seq) for name, (root, _) in PACKED.items()}
    makers: Makers = {
        "limit: memcpy of 17 bytes a token": lambda: copied_bytes(rows, batch),
        "windows": lambda: ours(store.windows(seq).shuffle(), batch, ALL),
    }
    for name, made in packed.items():
        makers[name] = lambda made=made: ours(made.shuffle(), batch, ALL)  # type: ignore[misc]
    makers["spliced"] = lambda: ours(store.splice(seq), batch, ALL)
    found = rates(makers, sizes, batch * seq)
    limit, *others = found.values()
    goals = {"windows": 0.9, "spliced": 0.75} | {what: one[1] for what, one in PACKED.items()}
    table = [limit]
    for one in others:
        least = goals[one.what]
        table.append(against(one, limit, limit.what) if least is None else goal(one, limit, least))
    counts = "; ".join(f"{name}: {_documents_a_row(made):.1f}" for name, made in packed.items())
    notes = [f"Documents of an epoch over its rows: {counts}."]
    title = "rivals 2: all arrays of 32 x 2,048"
    return Table(title=title, command=command, rows=table, notes=notes)


def _documents_a_row(packed: tl.Dataset) -> float:
    """Documents of a packed store over the rows of an epoch."""
    return packed.run.layout.line.documents / packed.run.rows


def _shapes(root: Path, sizes: tuple[int, int], command: str) -> Table:
    store, table = tl.open(root), []
    for batch, seq in ((8, 512), (256, 1024)):
        rows, made = Rows(payloads(root), seq), store.windows(seq).shuffle()
        names = f"three lines of NumPy, {batch} x {seq:,}", f"tokenloom, {batch} x {seq:,}"
        makers: Makers = {
            names[0]: lambda rows=rows, batch=batch: numpy_rows(rows, batch),  # type: ignore[misc]
            names[1]: lambda made=made, batch=batch: ours(made, batch),  # type: ignore[misc]
        }
        found = rates(makers, sizes, batch * seq)
        table += [found[names[0]], goal(found[names[1]], found[names[0]], 1.0)]
    return Table(title="rivals 3: other shapes", command=command, rows=table, notes=[])


def _beyond(root: Path, sizes: tuple[int, int], command: str) -> Table:
    rows, batch, seq = Rows(payloads(root), 2048), 32, 2048
    batches, rounds = sizes

    def full(**hints: Any) -> tl.Dataset:
        return tl.open(root, cache_bytes=1 << 20, **hints).windows(seq).shuffle()

    def checking(_: Any) -> None:
        """Batches whose pages have not been compared yet."""
        loader = ours(full(), batch, fetch="rows")
        for _ in itertools.islice(loader, batches):
            pass

    makers: Makers = {
        "three lines of NumPy": lambda: numpy_rows(rows, batch),
        "tokenloom, from a map": lambda: ours(full(), batch, fetch="rows"),
        "tokenloom, with pread": lambda: ours(full(map=False), batch, fetch="rows"),
    }
    cases = passes(makers, batches)
    cases["tokenloom, checking every page"] = Case(prepare=lambda: None, run=checking)
    timing = interleave(cases, rounds)
    done = batch * seq * batches / 1e6
    found = [rate(name, timing[name], done, "Mtok/CPU-s") for name in cases]
    rival, *others = found
    goals = (0.9, 0.45, 0.35)
    table = [rival, *(goal(one, rival, least) for one, least in zip(others, goals, strict=True))]
    return Table(
        title="rivals 4: full shuffle beyond the cache, in the page cache",
        command=command,
        rows=table,
        notes=["The checking pass includes opening the store and mapping its files."],
    )
