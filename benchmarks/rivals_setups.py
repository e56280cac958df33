"""The same rivals in other setups: from opening to the first batch, five sources, worker processes.

Tables 5 to 7 of `benchmarks/rivals.py`, over stores in the page cache.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Table, against, cost, cpu_seconds, interleave, rate
from benchmarks.rival_rows import (
    Batches,
    Cases,
    Makers,
    Rows,
    goal,
    is_installed,
    numpy_rows,
    ours,
    passes,
    payloads,
    rates,
    torch_loader,
    torch_rows,
    write,
)

__all__ = ["tables"]

BATCH, SEQ = 32, 2048
FIRSTS = 8  # first batches of a pass
CACHE = 640 << 20  # bytes: as much as the default, but empty
WEIGHTS = (0.37, 0.23, 0.19, 0.13, 0.08)
KEPT = "tokenloom, full shuffle, opened again"
NUMPY, TORCH = "three lines of NumPy", "torch, __getitems__"
NO_TORCH = "torch is left out: it is not installed."


def tables(folder: Path, inside: int, sizes: tuple[int, int], command: str) -> list[Table]:
    """The tables of other setups; `inside` is the store of that many tokens in the folder."""
    for number in range(len(WEIGHTS)):
        write(folder / f"fifth {number}", inside // len(WEIGHTS), 900)
    return [
        _firsts(folder / "inside", sizes, command),
        _mixes(folder, sizes, command),
        *_workers(folder / "inside", sizes, command),
    ]


# -- 5. the first batch ----------------------------------------------------------------------


def _repeated(first: Any) -> None:
    for _ in range(FIRSTS):
        first()


def _firsts(root: Path, sizes: tuple[int, int], command: str) -> Table:
    files = payloads(root)

    def own(shuffle: str, cache_bytes: int | None = CACHE) -> None:
        made = tl.open(root, cache_bytes=cache_bytes).windows(SEQ)
        with tl.Loader(getattr(made, shuffle)().seed(7), BATCH) as loader:
            next(loader)

    firsts = {
        NUMPY: lambda: next(numpy_rows(Rows(files, SEQ), BATCH)),
        "tokenloom, full shuffle": lambda: own("shuffle"),
        "tokenloom, block shuffle": lambda: own("block_shuffle"),
        KEPT: lambda: own("shuffle", None),
    }
    if is_installed("torch"):
        firsts[TORCH] = lambda: next(iter(torch_loader(Rows(files, SEQ), BATCH, "int32")))
    cases: Cases = {name: functools.partial(_repeated, one) for name, one in firsts.items()}
    timing = interleave(cases, sizes[1])
    found = {name: cost(name, timing[name], FIRSTS, "ms") for name in firsts}
    rivals = [name for name in (NUMPY, TORCH) if name in found]
    rows = [found[name] for name in rivals]
    for name in ("tokenloom, full shuffle", "tokenloom, block shuffle"):
        rows += [against(found[name], found[rival], rival) for rival in rivals]
    rows.append(against(found[KEPT], found[NUMPY], NUMPY))
    notes = [
        (
            f"From opening the files to a batch of {BATCH} x {SEQ:,}, in a warm process; the files "
            "are in the page cache. The cache of blocks is empty, but in the last row: each row of "
            "the batch brings its whole block, checked, which later rows find there."
        ),
        "The permutation of the rivals' rows is counted; ours ends when its thread has.",
    ]
    notes += [] if TORCH in found else [NO_TORCH]
    return Table(title="rivals 5: first batch", command=command, rows=rows, notes=notes)


# -- 6. a mix of five ------------------------------------------------------------------------


def numpy_mix(sources: list[Rows], batch: int, seed: int = 0) -> Batches:
    """A mix by hand: the source of every row is drawn beforehand, and each has its own order."""
    random = np.random.default_rng(seed)
    drawn = random.choice(len(sources), (4096, batch), p=WEIGHTS)  # [batch, row]
    orders = [itertools.cycle(source.order.tolist()) for source in sources]
    plans = []
    for picks in drawn:
        places = [np.flatnonzero(picks == number) for number in range(len(sources))]
        taken = [
            np.fromiter(itertools.islice(order, len(here)), np.int64)
            for order, here in zip(orders, places, strict=True)
        ]
        plans.append(list(zip(sources, places, taken, strict=True)))
    for plan in itertools.cycle(plans):
        out = np.empty((batch, sources[0].seq), np.int32)
        for source, here, rows in plan:
            out[here] = source.gather(rows)
        yield out


def _mixes(folder: Path, sizes: tuple[int, int], command: str) -> Table:
    roots = [folder / f"fifth {number}" for number in range(len(WEIGHTS))]
    names = [f"s{number}" for number in range(len(WEIGHTS))]
    runs = [tl.open(root).windows(SEQ).shuffle().epochs(None) for root in roots]
    mixed = tl.mix(
        dict(zip(names, runs, strict=True)), weights=dict(zip(names, WEIGHTS, strict=True))
    ).seed(7)
    single = tl.open(folder / "inside").windows(SEQ).shuffle()
    hand, one, five = "NumPy by hand, five sources", "tokenloom, one source", "tokenloom, a mix"
    sources = [Rows(payloads(root), SEQ) for root in roots]
    makers: Makers = {
        hand: lambda: numpy_mix(sources, BATCH),
        one: lambda: ours(single, BATCH),
        five: lambda: iter(tl.Loader(mixed, BATCH)),
    }
    found = rates(makers, sizes, BATCH * SEQ)
    rows = [found[hand], found[one], goal(found[five], found[one], 0.85)]
    rows.append(goal(found[five], found[hand], 1.0))
    notes = [
        (
            f"Batches of {BATCH} x {SEQ:,} tokens in full shuffle; five stores of equal size, "
            f"weights {', '.join(map(str, WEIGHTS))}, together as large as the one."
        ),
        "By hand, sources are drawn and rows are assigned before the clock runs.",
    ]
    return Table(title="rivals 6: a mix of five", command=command, rows=rows, notes=notes)


# -- 7. worker processes ---------------------------------------------------------------------


def all_cpu_seconds() -> float:
    """CPU-seconds so far, also of the processes that this one has started and that still run."""
    return cpu_seconds() + sum(_on_cpu(child.pid) for child in multiprocessing.active_children())


def _on_cpu(pid: int | None) -> float:
    """CPU-seconds of a process with all its threads; 0 where the system does not tell."""
    found = 0
    with contextlib.suppress(OSError):  # it has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += int((task / "schedstat").read_text().split()[0])
    return found / 1e9


def _workers(root: Path, sizes: tuple[int, int], command: str) -> list[Table]:
    title, (batches, rounds) = "rivals 7: workers", sizes
    if not is_installed("torch"):
        return [Table(title=title, command=command, rows=[], notes=[NO_TORCH])]
    rows, full = Rows(payloads(root), SEQ), tl.open(root).windows(SEQ).shuffle()
    none, two = f"{TORCH}, no workers", f"{TORCH}, 2 workers"
    makers: Makers = {
        none: lambda: torch_rows(rows, BATCH, "int32"),
        two: lambda: torch_rows(rows, BATCH, "int32", workers=2),
        "tokenloom, no workers": lambda: ours(full, BATCH),
    }
    timing = interleave(passes(makers, batches), rounds, cpu=all_cpu_seconds)
    done = BATCH * SEQ * batches / 1e6
    found = {name: rate(name, timing[name].by_wall(), done, "Mtok/s") for name in makers}
    spent = {name: rate(f"  {name}", timing[name], done, "Mtok/CPU-s") for name in makers}
    mine = found["tokenloom, no workers"]
    table = [found[none], found[two], goal(mine, found[none], 2.1), goal(mine, found[two], 10.0)]
    notes = [
        (
            f"Batches of {BATCH} x {SEQ:,} tokens, int32, full shuffle; tokens per second on the "
            "wall, with all that the machine's other users take."
        ),
        (
            "Workers have started before the clock runs. They are bound by the pipe: every batch "
            "is copied into shared memory, and its handle is sent to the process that trains."
        ),
        "Per CPU-second, workers included: "
        + "; ".join(
            f"{one.what.strip()} {one.value:,.0f} (median {one.median or 0:,.0f})"
            for one in spent.values()
        )
        + ".",
    ]
    return [Table(title=title, command=command, rows=table, notes=notes)]
