"""Whether the run is shuffled: where stored rows land, with the numbers of a fair shuffle.

An order has an inverse, so the places of all rows of a block are one call. Some blocks of each
source are lines of a map; a line whose rows are spread evenly is shuffled over all of the epoch,
one with a single dark stretch is shuffled within a window, and a diagonal is no shuffle.

Evenly is never quite even, so the map of a fair shuffle stands beside it, drawn by a key. A square
of either stands for eight rows or more: with fewer, chance alone looks like a pattern.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.layout import Blocks
from tokenloom.order.run import SourceRun
from tokenloom.page.charts import NARROW, heat, heat_legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, counted, plural, share
from tokenloom.random.keys import key
from tokenloom.random.permute import permutations
from tokenloom.report.order_sample import PATTERN, RANDOM, STORED, TINY, WINDOWS, OrderLook
from tokenloom.report.report_file import Answer, Caution
from tokenloom.report.subject import RunSubject, capital

FEW_BLOCKS = 0.5  # of the blocks that a fair batch has; with fewer, batches look alike

GRAVEST = (STORED, PATTERN, WINDOWS, RANDOM, TINY)

MEASURES = (
    *("batch", "batch_blocks", "fair_batch_blocks", "same_block", "fair_same_block"),
    *("moved", "fair_moved", "window"),
)

COUNTED = {TINY: f"with {TINY}"}  # words for how many orders are of a kind

TOLD = 3  # warnings of one kind

Int64 = NDArray[np.int64]

LINES, BINS = 12, 120  # of a map, at most

EACH = 8  # rows that a square of a map stands for, at least

FEWEST = 4  # lines and bins of a map; a source that has fewer squares of such rows has none

ROWS = 1 << 16  # of a source whose places are looked up

SHOWN = 4  # sources

HEAD = (
    *("source", "verdict", "rows", "storage blocks", "rows of a batch"),
    *("blocks in a batch", "fair shuffle: blocks", "share of neighbours of one block"),
    *("fair shuffle: share of neighbours", "share of an epoch that a row moves"),
    "fair shuffle: share of an epoch",
)


def shuffled_answer(subject: RunSubject) -> Answer:
    """The verdict on the largest source, and on how many others."""
    looks = {name: look for name, look in subject.looks.items() if look.rows}
    question = "Is it shuffled?"
    if not looks:
        sentence = "There are no rows to shuffle."
        return Answer(name="shuffled", question=question, sentence=sentence, numbers={"rows": 0})
    name = min(looks, key=lambda one: (GRAVEST.index(looks[one].kind), -looks[one].rows))
    look = looks[name]
    numbers: dict[str, float] = {"rows": look.rows}
    if look.kind != TINY:
        numbers |= {measure: getattr(look, measure) for measure in MEASURES}
    told = judged(subject, name)
    if len(looks) > 1:
        kinds = Counter(one.kind for one in looks.values())
        words = ", ".join(f"{kinds[one]} {COUNTED.get(one, one)}" for one in GRAVEST if kinds[one])
        told += f". Of the {len(looks):,} largest sources: {words}"
    return Answer(
        name="shuffled",
        question=question,
        sentence=f"{told}.",
        numbers=numbers,
        figure="shuffle",
        headline=None if look.kind == TINY else _headline(look),
    )


def _headline(look: OrderLook) -> tuple[str, str]:
    if look.fair_batch_blocks > 1:
        number, unit = counted(look.batch_blocks, "block")
        return number, f"{unit} in {look.batch:,} rows; {amount(look.fair_batch_blocks)} fair"
    return share(look.moved), f"of an epoch: how far rows move; {share(look.fair_moved)} fair"


def judged(subject: RunSubject, name: str) -> str:
    """The verdict on the order of a source, with its numbers unless they say nothing."""
    look, several = subject.looks[name], len(subject.run.sources) > 1
    if look.kind == TINY:
        return f"{name} has {look.words}" if several else f"There are {look.words}"
    if look.kind == STORED:
        told = f"{name} comes {look.words}" if several else f"rows come {look.words}"
    else:
        told = f"the order of {name} is {look.words}" if several else f"the order is {look.words}"
    if subject.is_shuffled_whole:
        return f"Before the mix is shuffled as a whole, {told}: {measured(look)}"
    told = told if several and look.kind == STORED else capital(told)  # a name stays as it is
    return f"{told}: {measured(look)}"


def measured(look: OrderLook) -> str:
    """An order beside a fair one: blocks of a batch, or moves where there is a single block."""
    if look.blocks > 1:
        return (
            f"{plural(look.batch, 'neighbouring row')} from "
            f"{amount(look.batch_blocks, 'storage block')}, "
            f"{amount(look.fair_batch_blocks)} in a fair shuffle"
        )
    return (
        f"a row moves {share(round(look.moved, 3))} of the epoch on average, "
        f"{share(round(look.fair_moved, 3))} in a fair shuffle"
    )


def shuffled_cautions(subject: RunSubject) -> Iterator[Caution]:
    """Orders that are none, that have a pattern, or that mix too little."""
    ordered = sorted(subject.looks.items(), key=lambda one: GRAVEST.index(one[1].kind))
    if subject.is_shuffled_whole:
        ordered = []
    found = (_caution(name, look) for name, look in ordered if look.rows)
    told = [one for one in found if one is not None]
    yield from told[:TOLD]
    if len(told) > TOLD:
        yield Caution(
            words=f"{plural(len(told) - TOLD, 'more source')} with such an order.",
            remedy="Look at the table of the shuffle.",
            figure="shuffle",
        )


def _caution(name: str, look: OrderLook) -> Caution | None:
    if look.kind == STORED and look.rows > look.batch:  # in a single step there is no order
        return Caution(
            words=f"{name} comes in stored order: {share(look.in_a_row)} of its rows follow the "
            "row that is stored before them.",
            remedy="Add .shuffle() or, for few reads, .block_shuffle().",
            figure="shuffle",
        )
    if look.kind == PATTERN:
        return Caution(
            words=f"{name} is {look.words}.",
            remedy="Use perm_type='feistel', the default.",
            figure="shuffle",
        )
    few = look.batch_blocks < FEW_BLOCKS * look.fair_batch_blocks
    if look.kind == WINDOWS and few:
        return Caution(
            words=f"{name} is mixed little: {measured(look)}.",
            remedy="Raise window_blocks (or the length of the stretches) as far as memory allows.",
            figure="shuffle",
        )
    return None


class BlockMap(NamedTuple):
    """Where the rows of some blocks come; of stretches of rows, where there are few blocks.

    Attributes:
        names: of the blocks or stretches, in stored order [lines].
        counts: rows of each in each part of the epoch [lines, bins].
        fair: the same in a fair shuffle [lines, bins].
        rows: rows of each that were looked up [lines].
        whole: whether these are all of their rows.
    """

    names: tuple[str, ...]
    counts: Int64
    fair: Int64
    rows: Int64
    whole: bool


def map_size(rows: int, each: int = EACH) -> tuple[int, int] | None:
    """Lines and bins of a map whose squares stand for enough rows; None if there are too few.

    >>> map_size(100), map_size(128), map_size(5_000), map_size(10**9)
    (None, (4, 4), (12, 52), (12, 60))
    """
    lines = min(LINES, math.isqrt(rows // each))
    return (lines, min(BINS // 2, rows // lines // each)) if lines >= FEWEST else None


def block_map(
    source: SourceRun, lines: int = LINES, bins: int = BINS, *, least: int = 1
) -> BlockMap:
    """The places of the rows of some blocks of a source in its first epoch, chosen by a key.

    Args:
        source: the source.
        lines: of the map, at most.
        bins: of the map, at most.
        least: rows of a line; smaller blocks are taken together, as stretches.
    """
    order, blocks = source.order(0), source.working.blocks
    n, is_cut = blocks.rows, len(blocks) < min(lines, blocks.rows)
    is_cut = is_cut or n < least * len(blocks)
    if is_cut:
        blocks = Blocks.equal(n, -(-n // lines))
    count = len(blocks)
    bins = max(1, min(bins, n))
    mixed = permutations(count, [key(0, source.name, "map")], "feistel") if count else None
    some = np.arange(min(count, lines)).astype(np.uint64)
    chosen = np.sort(mixed.forward(some).view(np.int64)) if mixed else np.empty(0, np.int64)
    low, high = blocks.edges(chosen)
    most = ROWS // max(1, len(chosen))
    counts, fair = (np.zeros((len(chosen), bins), np.int64) for _ in range(2))
    chance = permutations(n, [key(0, source.name, "fair")], "feistel") if n else None
    for line, (first, last) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        rows = np.arange(first, last)
        if len(rows) > most:  # evenly spaced ones stand for the others
            rows = first + np.arange(most) * (last - first) // most
        places = order.inverse(rows)
        counts[line] = np.bincount(places * bins // n, minlength=bins)
        assert chance is not None
        drawn = chance.forward(rows.astype(np.uint64)).view(np.int64)
        fair[line] = np.bincount(drawn * bins // n, minlength=bins)
    looked = counts.sum(axis=1)
    names = [f"block {number:,}" for number in chosen.tolist()]
    if is_cut:
        names = [f"from row {first:,}" for first in low.tolist()]
    return BlockMap(tuple(names), counts, fair, looked, bool((looked == high - low).all()))


def shuffle_figure(subject: RunSubject) -> Figure | None:
    """A map for each of the largest sources, and the verdict on each."""
    shown = [one for one in subject.largest if one.rows][:SHOWN]
    if not shown:
        return None
    maps = {one.name: _map_of(one) for one in shown}
    drawn = {name: found for name, found in maps.items() if found is not None}
    parts = [
        part for one in shown if one.name in drawn for part in _drawn(subject, one, drawn[one.name])
    ]
    return Figure(
        name="shuffle",
        title="Where stored rows land",
        message=f"{judged(subject, shown[0].name)}.",
        drawing=joined(parts),
        numbers=(_verdicts(subject),),
        notes=tuple(_notes(subject, maps)),
    )


def _map_of(source: SourceRun) -> BlockMap | None:
    size = map_size(source.rows)
    return None if size is None else block_map(source, *size, least=EACH * FEWEST)


def _drawn(subject: RunSubject, source: SourceRun, found: BlockMap) -> list[Markup]:
    """The order and a fair one side by side, in the same colours."""
    name, most = source.name, int(max(found.counts.max(initial=0), found.fair.max(initial=0)))
    both = {"This order": found.counts, "A fair shuffle": found.fair}
    axis = {"x": (0, max(1, source.rows)), "below": "place in the first epoch, rows"}
    panels = []
    for title, counts in both.items():
        said = f"{title}: where rows of {plural(len(found.names), 'block')} of {name} come"
        drawn = heat(
            counts.astype(np.float64),
            NARROW,
            said,
            rows=found.names,
            top=most,
            **axis,  # type: ignore[arg-type]
        )
        panels.append(tag("div", tag("p", title, class_="soft"), drawn))
    return [
        tag("h3", f"{name}: {subject.looks[name].words}"),
        tag("div", *panels, class_="panels"),
        heat_legend("1 row", f"{plural(most, 'row')} in a square; empty: none"),
    ]


def _verdicts(subject: RunSubject) -> Numbers:
    return Numbers.of(
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


def _notes(subject: RunSubject, maps: Mapping[str, BlockMap | None]) -> list[str]:
    drawn = [one for one in maps.values() if one is not None]
    found = []
    if drawn:
        found.append(
            f"A line is a storage block, up to {LINES} of them chosen by a key; or, where blocks "
            "are few or small, a stretch of stored rows. The other map has what chance gives, so "
            "an order that looks like it is shuffled over the whole epoch."
        )
    if not all(one.whole for one in drawn):
        found.append("Of large blocks, evenly spaced rows stand for the others.")
    few = [name for name, one in maps.items() if one is None]
    if few:
        least = EACH * FEWEST**2
        names = ", ".join(few)
        verb = "has" if len(few) == 1 else "have"
        found.append(f"{names} {verb} fewer than {least} rows: too few for a map.")
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
