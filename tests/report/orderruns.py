"""A dozen small runs, each odd in its own way, for the order side of a report."""

from __future__ import annotations

from pathlib import Path

from toyruns import toy_store

import tokenloom as tl


def order_runs(folder: Path) -> dict[str, tl.Dataset]:
    """Runs by name; batches of 8 suit all of them."""
    web, code = toy_store(folder / "web", rows=400), toy_store(folder / "code", rows=90)
    small, empty = toy_store(folder / "small", rows=2), toy_store(folder / "empty", rows=0)
    pair = {"web": web.windows(8).block_shuffle(), "code": code.pack(8, group_docs=9).shuffle()}
    weighted = tl.mix(pair, weights={"web": 3, "code": 1}).seed(3)
    forever = {name: one.epochs(None) for name, one in pair.items()}
    staged = tl.mix(pair, weights={"web": 3, "code": 1}, stages={120: {"web": 1, "code": 1}})
    return {
        "one source": web.windows(8).shuffle().epochs(3),
        "stored order": web.windows(8),
        "packed": web.pack(8).shuffle().epochs(2),
        "lanes": web.windows(8).block_shuffle(window_blocks=2, lanes=4).epochs(6),
        "mix": weighted,
        "staged and edited": staged.edit(at=240, weights={"code": 3}).edit(at=300, remove=["code"]),
        "endless": web.windows(8).shuffle().epochs(None),
        "endless mix": tl.mix(forever, weights={"web": 1, "code": 2}),
        "runs out": tl.mix(pair, stop="all_exhausted", weights={"web": 1, "code": 1}),
        "first ends": tl.mix(pair, stop="first_exhausted"),
        "rounds": tl.mix(pair, rule="random", block=16),
        "shuffled whole": tl.mix(pair).shuffle(),
        "taken": weighted.take(100),
        "tiny": small.windows(8).shuffle(),
        "empty": empty.windows(8).shuffle(),
    }
