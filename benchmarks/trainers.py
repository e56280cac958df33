"""Batches as training loops get them: our DataLoader against one over a memmap, at its best.

The rival is what an expert would write for torch: a map-style dataset over a memmap whose
`__getitems__` gathers a whole batch at once, without collating; its labels are its tokens, as the
same tensor or as a clone. It has no boundaries and no resume. Ours is also compared with the bare
loader that makes the same arrays.

Everybody has 0 workers and no thread, and takes turns. The first batch with workers is in wall
time: what bounds it is the start of Python and its imports, so it is compared with workers of a
dataset that does nothing.
"""

from __future__ import annotations

import importlib
import itertools
import time
from pathlib import Path
from typing import Any

import tokenloom as tl
from benchmarks.clock import Row, Table, against, amount
from benchmarks.rival_rows import (
    Batches,
    Makers,
    Rows,
    goal,
    is_installed,
    ours,
    payloads,
    rates,
    torch_rows,
    write,
)

__all__ = ["SIZES", "run"]

BATCH, SEQ = 32, 2048
TWO = ("tokens", "labels")
HF, REST = (*TWO, "position_ids"), ("loss_mask", "segment_ids")
BARE, BARE_HF = "the bare loader, the same arrays", "the bare loader, positions too"
TOKENS = "DataLoader over a memmap, tokens alone"
SHARED = "DataLoader over a memmap, labels are the tokens"
CLONED = "DataLoader over a memmap, labels cloned"
EMPTY = "a dataset that does nothing"

# size → (tokens, batches of a pass, rounds, first batches)
SIZES = {
    "tiny": (1 << 19, 2, 1, 0),
    "small": (1 << 24, 256, 5, 1),
    "default": (1 << 26, 512, 11, 3),
    "full": (1 << 26, 512, 31, 7),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of trainers."""
    tokens, batches, rounds, firsts = SIZES[size]
    if not is_installed("torch"):
        note = "torch is not installed."
        return [Table(title="trainers 1: torch", command=command, rows=[], notes=[note])]
    # with more, torch's threads spin after a copy, and the row after it pays for them
    importlib.import_module("torch").set_num_threads(1)
    write(folder / "store", tokens, 900)
    return [
        _rates(folder / "store", (batches, rounds), command),
        _firsts(folder / "store", firsts, command),
    ]


def _own(made: tl.Dataset, **options: Any) -> Any:
    from tokenloom.integrations.torch import dataloader

    return dataloader(made.seed(7).epochs(None), BATCH, prefetch=0, **options)


def _labelled(rows: Rows, cloned: bool) -> Batches:
    """The rival's batches with labels."""
    for tokens in torch_rows(rows, BATCH, "int64"):
        yield {"input_ids": tokens, "labels": tokens.clone() if cloned else tokens}


def _rates(root: Path, sizes: tuple[int, int], command: str) -> Table:
    rows, made = Rows(payloads(root), SEQ), tl.open(root).windows(SEQ).shuffle()
    makers: Makers = {
        BARE: lambda: ours(made, BATCH, TWO, dtype="int64", prefetch=0),
        BARE_HF: lambda: ours(made, BATCH, HF, dtype="int64", prefetch=0),
        TOKENS: lambda: torch_rows(rows, BATCH, "int64"),
        SHARED: lambda: _labelled(rows, cloned=False),
        CLONED: lambda: _labelled(rows, cloned=True),
        "tokenloom": lambda: iter(_own(made, contract=None, fields=("input_ids", "labels"))),
        "tokenloom, contract hf": lambda: iter(_own(made)),
        "tokenloom, all arrays": lambda: iter(_own(made, fields=REST)),
    }
    found = rates(makers, sizes, BATCH * SEQ)
    *rivals, mine, hf, everything = found.values()
    goals = {BARE: 0.75, SHARED: 1.25, CLONED: 1.6}
    table: list[Row] = [*rivals, *(goal(mine, found[name], least) for name, least in goals.items())]
    table += [goal(hf, found[BARE_HF], 0.75), goal(everything, found[TOKENS], 1.0)]
    return Table(
        title="trainers 1: torch, tokens and labels int64 of 32 x 2,048, 0 workers",
        command=command,
        rows=table,
        notes=["Contract hf: also positions; all arrays: also loss_mask and segment_ids."],
    )


# -- 2. the first batch --------------------------------------------------------------------


class Empty:
    """A dataset whose workers need nothing but torch."""

    def __getitem__(self, number: int) -> int:
        return number

    def __len__(self) -> int:
        return 8


def _empty(how: str) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(
        Empty(),  # type: ignore[arg-type]
        batch_size=None,
        num_workers=2,
        multiprocessing_context=how,
    )


def _firsts(root: Path, times: int, command: str) -> Table:
    made = tl.open(root).windows(SEQ).shuffle()
    table: list[Row] = []
    for how in ("fork", "spawn") if times else ():
        makers = {
            f"{EMPTY}, {how}": lambda how=how: _empty(how),  # type: ignore[misc]
            f"tokenloom, {how}": lambda how=how: _own(  # type: ignore[misc]
                made, num_workers=2, multiprocessing_context=how
            ),
        }
        best = {name: min(_first(make) for _ in range(times)) for name, make in makers.items()}
        floor, mine = (amount(name, 1000 * best[name], "ms") for name in makers)
        table += [floor, against(mine, floor, floor.what)]
    notes = ["Wall time from making the loader to its first batch, 2 workers; the best of some."]
    return Table(
        title="trainers 2: the first batch with workers", command=command, rows=table, notes=notes
    )


def _first(make: Any) -> float:
    """Seconds to the first batch."""
    begin = time.perf_counter()
    for _ in itertools.islice(make(), 1):
        pass
    return time.perf_counter() - begin
