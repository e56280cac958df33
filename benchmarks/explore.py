"""Pages of the explorer: CPU-time of a warm process, for each kind of page and of run.

The run is the one of `benchmarks.looking`: frames of 6 tokens over documents of 64, so a large size
has 10^9 rows; rows and documents are drawn at random. A second table has rows of 10^6 tokens, of
which a page shows 2,048. Nothing goes over a socket: what is timed is a target → a reply. Plans of
packed rows and sums of the first epoch are kept before. A page that is greyed is one that does not
come: it counts as endless, and fails its row.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from pathlib import Path

import numpy as np

import tokenloom as tl
from benchmarks.clock import Row, Table, want
from benchmarks.looking import DOCUMENTS, KINDS, SHARD, SIZES, rows_of
from benchmarks.stores import virtual_store
from tokenloom.explore.router import reply_to
from tokenloom.explore.session import Session
from tokenloom.explore.shell import HttpReply, link

__all__ = ["run"]

ASKED = {"tiny": 2, "small": 12, "default": 24, "full": 24}  # pages of each kind

LONG = 1_000_000  # tokens of a long row

BOUND = 100  # ms of a page


def pages(ds: tl.Dataset, draw: np.random.Generator) -> dict[str, str]:
    """One of each kind, about a random step of the first epoch and a random document."""
    rows = max(1, rows_of(ds) // 2)
    index, step, other = (int(one) for one in draw.integers((rows, rows // 64 + 1, rows // 64 + 1)))
    name = ds.run.names[0]
    document = int(draw.integers(ds.run.sources[0].layout.line.documents))
    return {
        "step": link("step", step=step),
        "row": link("row", index=index),
        "document and its places": link("document", source=name, document=document, after=index),
        "next row of a source": link("goto", source=name, after=index),
        "two steps": link("compare", a=step, b=other),
        "two rows": link("compare", a=step, b=other, row=0),
    }


def is_shown(reply: HttpReply) -> bool:
    """Whether a page is what was asked for: neither a refusal nor greyed in any part."""
    return not any(one in reply.body for one in (b"figure unable", b'role="alert"'))


def times(ds: tl.Dataset, count: int) -> dict[str, list[float]]:
    """CPU-milliseconds of each kind of page, after a first one."""
    session, draw = Session([ds], ["run"], 64), np.random.default_rng(1)
    found: dict[str, list[float]] = {}
    for number in range(count + 1):
        for kind, target in pages(ds, draw).items():
            before = time.process_time()
            reply = reply_to(session, f"/token/{target}")
            spent = 1000 * (time.process_time() - before)
            assert reply.status in (200, 303), reply.body
            if number:
                found.setdefault(kind, []).append(spent if is_shown(reply) else math.inf)
    return found


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of the explorer."""
    os.environ.setdefault("TOKENLOOM_CACHE_DIR", str(folder / "cache"))
    documents = max(4000, int(DOCUMENTS * SIZES[size]))
    shards = max(1, documents // SHARD)
    virtual_store(folder / "linked", shards, min(SHARD, documents))
    store = tl.open(folder / "linked")
    usual = {kind: make(store) for kind, make in KINDS.items()}
    long = {kind: KINDS[kind](store, _long(store)) for kind in ("windows", "packed")}
    tables = []
    for title, runs in (("explorer", usual), ("explorer, long rows", long)):
        rows: list[Row] = []
        for kind, ds in runs.items():
            _ = ds.run.pick(np.array([rows_of(ds) // 2 - 1]))  # sums of a small run are made
            rows += _rows(f"{kind}, {rows_of(ds):,} rows", times(ds, ASKED[size]))
        seq_len = next(iter(runs.values())).seq_len
        note = f"{store.num_documents:,} documents of 64 tokens, frames of {seq_len:,}."
        tables.append(Table(title=title, command=command, rows=rows, notes=[note]))
    return tables


def _long(store: tl.Store) -> int:
    """Tokens of a long row: 10^6, or a quarter of a small store."""
    return min(LONG, store.num_tokens // 4)


def _rows(name: str, found: dict[str, list[float]]) -> list[Row]:
    rows = []
    for kind, values in found.items():
        middle = statistics.median(values)
        about = {"what": f"{name}: {kind}", "samples": tuple(values)}
        rows.append(want(Row(value=middle, median=middle, unit="ms", **about), "<=", BOUND))
    return rows
