"""Exports and copies, and rows and samples of others read in place.

One idea: an export is one pass over the tokens, so it is measured per token. Formats whose ids lie
end to end (LitData's) are read in place and should cost what ours cost; those that must be decoded
(Parquet, Arrow, MDS) are shown with what that costs. A pass of the second table is batches of 32
windows of 2,048 tokens, block-shuffled, after a pass that does not count.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import tokenloom as tl
from benchmarks.clock import Row, Table, against, interleave, rate, want
from benchmarks.stores import documents
from tokenloom.exchange import convert, export
from tokenloom.testing import write_flat

__all__ = ["SIZES", "run"]

BATCH, SEQ = 32, 2048

# size → (tokens, batches of a pass, rounds)
SIZES = {
    "tiny": (1 << 18, 2, 1),
    "small": (1 << 24, 128, 3),
    "default": (1 << 25, 128, 8),
    "full": (1 << 27, 256, 16),
}

TARGETS = ("megatron", "npy", "levanter", "parquet", "mds")


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The two tables."""
    tokens, batches, rounds = SIZES[size]
    os.environ.setdefault("TOKENLOOM_CACHE_DIR", str(folder / "cache"))
    parts = documents(tokens, "uint16")
    ids, lengths = (np.concatenate(one) for one in zip(*parts, strict=True))
    write_flat(folder / "own", ids, lengths, vocab_size=1 << 16)
    work = len(ids) / 1e6
    return [
        _written(folder, tl.open(folder / "own"), work, rounds, command),
        _read(folder, ids, lengths, batches, rounds, command),
    ]


def _written(folder: Path, store: tl.Store, work: float, rounds: int, command: str) -> Table:
    def fresh(name: str, make: Callable[[Path], object]) -> Callable[[], None]:
        def one() -> None:
            shutil.rmtree(folder / name, ignore_errors=True)
            make(folder / name)

        return one

    def export_to(to: str, out: Path) -> None:
        export(store, out, to=to, lossy=to == "mds")  # which has no place for empty documents

    passes = {f"export to {to}": fresh(to, functools.partial(export_to, to)) for to in TARGETS}
    passes["convert a store of ours"] = fresh("copy", functools.partial(convert, store))
    for one in passes.values():
        one()
    export_to("megatron", folder / "kept")  # the others are written again in every round
    opened = tl.open(folder / "kept" / "text_document", identity="sample")
    passes["convert Megatron files"] = fresh("copy2", functools.partial(convert, opened))
    times = interleave(passes, rounds)
    rows = [rate(name, one, work, "Mtok/s") for name, one in times.items()]
    return Table(title="exchange 1: exports and copies", command=command, rows=rows)


def _read(folder: Path, ids: Any, lengths: Any, batches: int, rounds: int, command: str) -> Table:
    _litdata(folder / "litdata", ids, lengths)
    _arrow(folder / "rows.arrow", ids, lengths)
    stores = {
        "a store of ours": folder / "own",
        "LitData (in place)": folder / "litdata",
        "npy and document ends (in place)": folder / "npy",
        "Parquet (decoded)": folder / "parquet",
        "Arrow (decoded)": folder / "rows.arrow",
        "MDS (decoded)": folder / "mds",
    }
    passes = {name: _pass(tl.open(path), batches) for name, path in stores.items()}
    times = interleave(passes, rounds)
    work = batches * BATCH * SEQ / 1e6
    made = {name: rate(name, one, work, "Mtok/s") for name, one in times.items()}
    ours, *others = made.values()
    rows: list[Row] = [ours]
    for row, name in zip(others, list(made)[1:], strict=True):
        judged = against(row, ours, "ours")
        rows.append(want(judged, ">=", 0.9, of_ratio=True) if "in place" in name else judged)
    return Table(title="exchange 2: rows and samples of others", command=command, rows=rows)


def _pass(store: tl.Store, batches: int) -> Callable[[], None]:
    run = store.windows(SEQ).block_shuffle().epochs(None).seed(7)
    loader = iter(tl.Loader(run, BATCH, fetch="blocks", fields=("tokens",)))

    def one() -> None:
        for _ in itertools.islice(loader, batches):
            pass

    one()
    return one


def _litdata(folder: Path, ids: Any, lengths: Any) -> None:
    """One chunk, as a TokensLoader wants it."""
    folder.mkdir()
    starts = np.cumsum([4 * (len(lengths) + 2), *(lengths * 2).tolist()]).astype("<u4")
    raw = np.uint32(len(lengths)).tobytes() + starts.tobytes() + ids.tobytes()
    (folder / "chunk-0-0.bin").write_bytes(raw)
    chunk = {"chunk_bytes": len(raw), "chunk_size": len(lengths), "filename": "chunk-0-0.bin"}
    config = {"data_format": ["no_header_tensor:20"], "item_loader": "TokensLoader"}
    (folder / "index.json").write_text(json.dumps({"chunks": [chunk], "config": config}))


def _arrow(path: Path, ids: Any, lengths: Any) -> None:
    edges = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    rows = pa.table({"input_ids": pa.ListArray.from_arrays(edges, pa.array(ids))})
    with pa.ipc.new_file(path, rows.schema) as writer:
        for batch in rows.to_batches(max_chunksize=1000):
            writer.write_batch(batch)
