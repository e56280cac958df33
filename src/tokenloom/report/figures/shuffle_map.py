"""Where the rows of storage blocks land in an epoch, and how the order compares with a fair one.

One idea: an order has an inverse, so the places of all rows of a block are one call. Some blocks of
each source are lines of a map; a line whose rows are spread evenly is shuffled over all of the
epoch, one with a single dark stretch is shuffled within a window, and a diagonal is no shuffle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.blocks import Blocks
from tokenloom.order.run import SourceRun
from tokenloom.page.charts import both, heat, heat_legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, binary_size, plural
from tokenloom.random.keys import key
from tokenloom.random.permute import permutations
from tokenloom.report.questions.is_it_shuffled import measured
from tokenloom.report.subject import RunSubject

__all__ = ["BlockMap", "block_map", "shuffle_figure"]

Int64 = NDArray[np.int64]

LINES, BINS = 12, 120  # of a map

ROWS = 1 << 16  # of a source whose places are looked up

SHOWN = 4  # sources

HEAD = (
    *("source", "verdict", "rows", "storage blocks", "rows of a batch"),
    *("blocks in a batch", "fair shuffle: blocks", "neighbours of one block"),
    *("fair shuffle: neighbours", "mean move of a row", "fair shuffle: move"),
)


class BlockMap(NamedTuple):
    """Where the rows of some blocks come; of stretches of rows, where there are few blocks.

    Attributes:
        names: of the blocks or stretches, in stored order [lines].
        counts: rows of each in each part of the epoch [lines, bins].
        rows: rows of each that were looked up [lines].
        whole: whether these are all of their rows.
    """

    names: tuple[str, ...]
    counts: NDArray[np.int64]
    rows: Int64
    whole: bool


def block_map(source: SourceRun, lines: int = LINES, bins: int = BINS) -> BlockMap:
    """The places of the rows of some blocks of a source in its first epoch, chosen by a key."""
    order, blocks = source.order(0), source.working.blocks
    n, is_cut = blocks.rows, len(blocks) < min(lines, blocks.rows)
    if is_cut:
        blocks = Blocks.equal(n, -(-n // lines))
    count = len(blocks)
    bins = max(1, min(bins, n))
    mixed = permutations(count, [key(0, source.name, "map")], "feistel") if count else None
    some = np.arange(min(count, lines)).astype(np.uint64)
    chosen = np.sort(mixed.forward(some).view(np.int64)) if mixed else np.empty(0, np.int64)
    low, high = blocks.edges(chosen)
    most = ROWS // max(1, len(chosen))
    counts = np.zeros((len(chosen), bins), np.int64)
    for line, (first, last) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        rows = np.arange(first, last)
        if len(rows) > most:  # evenly spaced ones stand for the others
            rows = first + np.arange(most) * (last - first) // most
        places = order.inverse(rows)
        counts[line] = np.bincount(places * bins // n, minlength=bins)
    looked = counts.sum(axis=1)
    names = [f"block {number:,}" for number in chosen.tolist()]
    if is_cut:
        names = [f"from row {first:,}" for first in low.tolist()]
    return BlockMap(tuple(names), counts, looked, bool((looked == high - low).all()))


def shuffle_figure(subject: RunSubject) -> Figure | None:
    """A map for each of the largest sources, and the verdict on each."""
    shown = [one for one in subject.largest if one.rows][:SHOWN]
    if not shown:
        return None
    maps = {one.name: block_map(one) for one in shown}
    parts: list[Markup] = []
    for one in shown:
        parts.append(tag("h3", f"{one.name}: {subject.looks[one.name].words}"))
        parts.append(_drawn(one, maps[one.name]))
    parts.append(heat_legend("few rows of the block", "many"))
    return Figure(
        name="shuffle",
        title="Where stored rows land",
        message=_message(subject, [one.name for one in shown]),
        drawing=joined(parts),
        numbers=_tables(subject),
        code=subject.python(
            "source = run.run.sources[0]\n"
            "rows = range(100)  # stored one after the other\n"
            "print(source.order(0).inverse(list(rows)))  # where they come in the first epoch"
        ),
        notes=tuple(_notes(subject, maps)),
    )


def _drawn(source: SourceRun, found: BlockMap) -> Markup:
    shares = found.counts / np.maximum(1, found.rows)[:, None]
    names = found.names
    said = f"where rows of {plural(len(names), 'block')} of {source.name} come in an epoch"
    axis = {"x": (0, max(1, source.rows)), "below": "place in the first epoch, rows"}
    return both(lambda width: heat(shares, width, said, rows=names, **axis))  # type: ignore[arg-type]


def _message(subject: RunSubject, names: Sequence[str]) -> str:
    look = subject.looks[names[0]]
    which = f"{names[0]} is" if len(subject.run.sources) > 1 else "The order is"
    told = f"{which} {look.words}: {measured(look)}."
    found = subject.simulation
    if found is None or not found.examples:
        return told
    about = "about " if found.bands else ""
    return (
        f"{told} Reading takes {about}{found.reads / found.examples:.3g} reads and "
        f"{binary_size(round(found.bytes / found.examples))} for each row."
    )


def _tables(subject: RunSubject) -> tuple[Numbers, ...]:
    verdicts = Numbers.of(
        HEAD,
        (
            (
                *(name, one.words, one.rows, one.blocks, one.batch, one.batch_blocks),
                *(one.fair_batch_blocks, one.same_block, one.fair_same_block),
                *(one.moved, one.fair_moved),
            )
            for name, one in subject.looks.items()
        ),
        "orders, and what a fair shuffle gives on average; moves over the longest distance",
    )
    found = subject.simulation
    if found is None:
        return (verdicts,)
    reads = Numbers.of(
        ("rank", "how", "rows", "reads", "bytes", "reads of a row", "bytes of a row", "cache hits"),
        (
            (
                *(one.rank, one.how, one.examples, one.reads, one.bytes),
                *(one.reads / max(1, one.examples), one.bytes / max(1, one.examples), one.hits),
            )
            for one in found.ranks
        ),
        "reads of each rank" + (", from whole bands" if found.bands else ""),
    )
    return verdicts, reads


def _notes(subject: RunSubject, maps: dict[str, BlockMap]) -> list[str]:
    even = "Evenly spread rows are shuffled over the whole epoch."
    line = f"A line is one storage block, up to {LINES} of them chosen by a key"
    found = [f"{line}; or, where there are fewer, a stretch of stored rows. {even}"]
    if not all(one.whole for one in maps.values()):
        found.append("Of large blocks, evenly spaced rows stand for the others.")
    looked = [one for one in subject.looks.values() if one.looked_at < one.rows]
    if looked:
        windows = amount(looked[0].looked_at, "row")
        found.append(f"Verdicts and their numbers come from windows of {windows}, chosen by a key.")
    more = len(subject.run.sources) - len(maps)
    if more > 0:
        told = len(subject.looks)
        found.append(
            f"{plural(more, 'more source')} not drawn; numbers of the {told:,} largest are below."
        )
    return found
