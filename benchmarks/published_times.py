"""The published figures that are times: a scan over all bins, positions, splices beside windows.

CPU-seconds, the best of interleaved rounds; what is compared gives the same result, or it is
refused. Only ratios inside one table mean anything: the published times are of other machines.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.clock import Table, interleave, short
from benchmarks.figures import Section
from benchmarks.packing import CAPACITY, document_lengths, position_ways, scan
from benchmarks.published_packing import LOG_MEDIAN, MORE, SCANNED
from benchmarks.splice import SIZES, Size, rates, write_documents
from tokenloom.layout.pack.packers import pack

__all__ = ["position_times", "scan_times", "splice_times"]

DOCUMENTS = (2, 5, 20, 200)  # of a row
ROUNDS = {"tiny": 1, "default": 9}


def scan_times(size: str) -> Section:
    """Seconds to pack documents, by a scan and by ours."""
    rounds, lines = ROUNDS[size], []
    head = ("documents", "a scan, measured there, s", "a scan here, CPU-s", "ours, CPU-s", "ratio")
    for documents, (seconds, _, _) in SCANNED.items():
        if size == "tiny" and documents > min(SCANNED):
            continue
        sizes = document_lengths(documents, LOG_MEDIAN)
        ours = functools.partial(pack, sizes, CAPACITY, "best_fit_decreasing")
        theirs = functools.partial(scan, sizes.tolist())
        if theirs() != len(ours()):
            raise ValueError(f"{documents:,} documents: the rows are not those of a scan.")
        took = {
            "ours": interleave({"ours": ours}, rounds)["ours"].best,
            "scan": interleave({"scan": theirs}, 1 + rounds // 4, warm_up=False)["scan"].best,
        }
        cells = (f"{documents:,}", f"{seconds}", short(took["scan"]), f"{took['ours']:.5f}")
        lines.append((*cells, f"{took['scan'] / took['ours']:,.0f}"))
    for documents in MORE if size != "tiny" else ():
        sizes = document_lengths(documents, LOG_MEDIAN)
        ours = functools.partial(pack, sizes, CAPACITY, "best_fit_decreasing")
        best = interleave({"ours": ours}, rounds)["ours"].best
        lines.append((f"{documents:,}", "", "", f"{best:.5f}", ""))
    return Section(name="scan_times", lines=(head, *lines), exact=False)


def position_times(size: str) -> Section:
    """Milliseconds for the position ids of 64 rows of 4,096 tokens."""
    names = (
        "from document starts, as published",
        "from EOS tokens, as published",
        "from document starts",
        "from EOS tokens",
    )
    lines = []
    for documents in DOCUMENTS:
        ways: dict[str, Callable[[], np.ndarray]] = position_ways(documents)
        made = [ways[name]() for name in names]
        if not all(np.array_equal(made[0], one) for one in made):
            raise ValueError(f"{documents} documents a row: the ways give different positions.")
        took = interleave(ways, 3 * ROUNDS[size])
        lines.append((f"{documents}", *(f"{took[name].best * 1e3:.2f}" for name in names)))
    head = (
        "documents of a row",
        "from starts, as published, ms",
        "from EOS, as published, ms",
        "from starts, ours, ms",
        "from EOS, ours, ms",
    )
    return Section(name="position_times", lines=(head, *lines), exact=False)


def splice_times(folder: Path, size: str) -> Section:
    """Examples per CPU-second of splices and of plain windows of the same store."""
    tiny = Size(tokens=1 << 20, batches=4, rounds=1, triples=0, documents=0)
    how = tiny if size == "tiny" else SIZES["small"]
    write_documents(folder / "spliced", max(2, how.tokens // 50_000))
    found = {row.what: row.value for row in _unnamed(rates(folder / "spliced", how, ""))}
    lines = []
    for kind in ("tokens only", "all arrays"):
        windows = found[f"store.windows(4096).shuffle(), {kind}"]
        for name in ("coverage_balanced, K = 4,096", "coverage_balanced, K = 2,048, jitter"):
            value = found[f"{name}, {kind}"]
            ratio = f"{value / windows:.2f}"
            lines.append((f"{name}, {kind}", f"{value:,.0f}", f"{windows:,.0f}", "similar", ratio))
    head = ("splices of 4,096", "examples/CPU-s", "windows/CPU-s", "published", "ours")
    return Section(name="splice_times", lines=(head, *lines), exact=False)


def _unnamed(table: Table) -> list:
    """The rows of a table that have a name of their own."""
    return [row for row in table.rows if not row.what.startswith(" ")]
