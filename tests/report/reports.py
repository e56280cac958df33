"""Runs of every layout, order and end, and the JSON of their reports."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from toyruns import toy_store

import tokenloom as tl
from tokenloom.report import report_on
from tokenloom.testing import write_store

SEQ_LEN = 8


def store_of(root: Path, seed: int = 0, count: int = 40, longest: int = 20) -> tl.Store:
    """A store of documents of 0 to `longest` tokens in two shards."""
    rng = np.random.Generator(np.random.PCG64(seed))
    made = [rng.integers(4, 1000, int(rng.integers(0, longest + 1))).tolist() for _ in range(count)]
    write_store(root, [made[: count // 2], made[count // 2 :]], inner=16, chunk_tokens=32)
    return tl.open(root, cache_bytes=1 << 20)


LAYOUTS = {  # of one source, each from a store
    "windows": lambda s: s.windows(SEQ_LEN),
    "windows, tail": lambda s: s.windows(SEQ_LEN, tail="keep"),
    "windows, look-ahead": lambda s: s.windows(SEQ_LEN, lookahead=True),
    "windows, overlap": lambda s: s.windows(SEQ_LEN, lookahead=True, overlap=1),
    "pack": lambda s: s.pack(SEQ_LEN).shuffle(),
    "pack, specials": lambda s: s.pack(SEQ_LEN, add_bos=True, bos_id=1, add_eos=True, eos_id=2),
    "pack, truncate": lambda s: s.pack(SEQ_LEN, overflow="truncate"),
    "pack, drop": lambda s: s.pack(SEQ_LEN, overflow="drop").shuffle().epochs(2),
    "pack, lengths": lambda s: s.pack(SEQ_LEN, min_len=3, max_len=15, max_doc_tokens=11),
    "pack, short rows": lambda s: s.pack(SEQ_LEN, strategy="one_doc", min_row_len=4),
    "pack, stride": lambda s: s.pack(SEQ_LEN, stride=2),
    "pack, sequential": lambda s: s.pack(SEQ_LEN, strategy="sequential"),
    "splice": lambda s: s.splice(SEQ_LEN, content_length=5),
    "splice, epochs": lambda s: s.splice(SEQ_LEN, content_length=3, content_stride=4).epochs(3),
    "splice, whole": lambda s: s.splice(SEQ_LEN, content_length=9, adaptive_k=False, mode="slide"),
    "splice, clip and pack": lambda s: s.splice(
        SEQ_LEN, content_length=4, edge="clip", fill="pack"
    ),
    "select": lambda s: s.select(num_docs=9, doc_select_mode="longest").windows(SEQ_LEN),
    "split": lambda s: s.split({"a": 0.7, "b": 0.3})["a"].pack(SEQ_LEN),
    "epochs": lambda s: s.windows(SEQ_LEN).shuffle().epochs(3),
}


def layout_runs(folder: Path) -> tuple[tl.Store, dict[str, tl.Dataset]]:
    """A store and a run of each layout over it."""
    store = store_of(folder / "layouts")
    return store, {name: make(store) for name, make in LAYOUTS.items()}


def order_runs(folder: Path) -> dict[str, tl.Dataset]:
    """Runs of every order, rule and end."""
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


class Read:
    """The JSON of a report, by the names in it."""

    def __init__(self, report: dict[str, Any]):
        self.report = report
        self.answers = {one["name"]: one["numbers"] for one in report["answers"]}
        self.figures = {one["name"]: one for one in report["figures"]}

    def tables(self, figure: str) -> list[list[dict[str, Any]]]:
        """The tables of a figure; rows are by the heads of their columns."""
        return [
            [dict(zip(table["head"], row, strict=True)) for row in table["rows"]]
            for table in self.figures[figure]["numbers"]
        ]

    def table(self, figure: str, column: str) -> list[dict[str, Any]]:
        """The first table of a figure that has this column."""
        return next(one for one in self.tables(figure) if one and column in one[0])

    @property
    def warnings(self) -> list[str]:
        """Each warning with its remedy."""
        return [f"{one['words']} {one['remedy']}" for one in self.report["warnings"]]


@cache
def read_report(run: tl.Dataset, **asked: Any) -> Read:
    """The report on a run, read back; batches are of 8 rows unless another size is asked for."""
    return Read(report_on(run, **({"batch_size": 8} | asked)).to_dict())
