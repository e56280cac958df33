"""Mix three sources by tokens, edit the run midway, and resume across the edit."""

from __future__ import annotations

import hashlib

import numpy as np

import tokenloom as tl
from examples.demo.printing import explain, prove, say, table
from examples.demo.world import World

__all__ = ["mix_sources"]

SEQ_LEN, BATCH, STEPS, EDIT = 512, 16, 24, 12


def mix_sources(world: World) -> World:
    """The step: packed prose, windowed code and a spliced document in one run."""
    prose, code = world.stores["prose"], world.stores["code"]
    book = prose.select(doc_select_mode="longest", max_doc_length=2000)
    sources = {
        "prose": prose.pack(SEQ_LEN).shuffle(),
        "code": code.windows(SEQ_LEN).block_shuffle(),
        "book": book.splice(SEQ_LEN, content_length=128, position_scheme="relative").shuffle(),
    }
    run = tl.mix(sources, weights={"prose": 3, "code": 2, "book": 1}).seed(7)
    at = EDIT * BATCH
    edited = run.edit(at=at, weights={"code": 6})
    _show(run.consumed(at), edited.consumed(2 * at), at)
    prove(
        f"the first {at} examples of the edited run are those of the original run",
        _digest(run, at) == _digest(edited, at),
    )
    loader = tl.Loader(run, batch_size=BATCH)
    for _ in range(EDIT // 2):
        next(loader)
    again = tl.Loader(edited, batch_size=BATCH, rank=1, world_size=3)
    again.load_state_dict(loader.state_dict())  # from before the edit, with other ranks
    steps = np.arange(EDIT // 2, STEPS)
    same = all(
        np.array_equal(next(again).tokens, edited.batch(_rank_rows(step)).tokens) for step in steps
    )
    prove("resumed before the edit and continued across it, on another number of ranks", same)
    batch = edited.batch(np.arange(at, at + BATCH))
    report = tl.check_batch(batch)
    kinds = ", ".join(sorted(set(batch.source)))
    prove(f"one batch holds rows of {kinds}; {len(report.checked)} laws hold", report.ok)
    for line in again.position():
        say(line)
    explain("The source of example n is a function of n: no counter was kept or synchronised.")
    return world


def _rank_rows(step: int) -> np.ndarray:
    low, high = BATCH // 3, 2 * BATCH // 3
    return np.arange(step * BATCH + low, step * BATCH + high)


def _digest(run: tl.Dataset, examples: int) -> str:
    return hashlib.sha256(run.batch(np.arange(examples)).tokens.tobytes()).hexdigest()


def _show(before: list[dict[str, object]], after: list[dict[str, object]], at: int) -> None:
    """Shares of tokens before and after the edit."""
    names = [str(one["name"]) for one in before]
    first = np.array([one["tokens"] for one in before], float)
    second = np.array([one["tokens"] for one in after], float) - first
    table(
        {
            f"examples 0 to {at}": [f"{share:.1%}" for share in first / first.sum()],
            "after the edit": [f"{share:.1%}" for share in second / second.sum()],
        },
        names,
    )
