"""Boundaries: one row with the attention that its documents allow, and without them.

Documents in one row should not look at each other. The map of a row shows what each cell may look
at, and how much more that would be if a model ignored the boundaries. The share over many rows
comes from spans alone; no token is read for it.

Causal attention inside a segment is a triangle on the diagonal, so a map of any length is a few
corners. Triangles of one colour are one path; the smallest is drawn large enough to be seen.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.batch.paint import tile
from tokenloom.batch.spec import RenderSpec
from tokenloom.layout.spans import Spans
from tokenloom.page.axes import drawing, label, rule
from tokenloom.page.charts import SERIES, legend, series
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import EMPTY, Markup, joined, tag
from tokenloom.page.numbers import are, plural, share
from tokenloom.page.strips import Strip, StripSegment, strips_html
from tokenloom.random.keys import draws, key
from tokenloom.report.picked_rows import PickedRow, segments_of
from tokenloom.report.subject import RunSubject

LEFT, TOP, SIDE, SEEN = 22, 24, 240, 1.6  # pixels

Int64 = NDArray[np.int64]

EVERY_ROW = 1 << 16  # rows of a run that are all looked at

SAMPLED = 256  # rows of a longer one

HEAD = ("segment", "first cell", "cells", "pairs inside", "share of all causal pairs")


class Block(NamedTuple):
    """Cells [first, last) that look at each other, and their class."""

    first: int
    last: int
    class_: str


def attention_map(blocks: Sequence[Block], cells: int, said: str, *, all_pairs: bool) -> Markup:
    """A map: the cell that looks from top to bottom, the cell it looks at from left to right.

    Args:
        blocks: the segments, and stretches of filler.
        cells: cells of the row.
        said: what is read aloud.
        all_pairs: also every pair of cells of different segments, as without boundaries.

    >>> drawn = attention_map([Block(0, 2, "s1"), Block(2, 4, "s2")], 4, "two", all_pairs=True)
    >>> drawn.count("crossing"), "M22 24L142 144L22 144z" in drawn
    (1, True)
    """
    paths: dict[str, list[str]] = defaultdict(list)
    real = [one for one in blocks if one.class_ != "filler"]
    for one in blocks:
        paths[one.class_].append(_triangle(one.first, one.last, cells))
    parts = [tag("rect", x=LEFT, y=TOP, width=SIDE, height=SIDE, class_="ground")]
    if all_pairs and real:
        whole = _triangle(real[0].first, real[-1].last, cells)
        parts.append(tag("path", d=whole, class_="crossing"))
    parts += [tag("path", d="".join(some), class_=class_) for class_, some in paths.items()]
    parts.append(rule(f"M{LEFT} {TOP}V{TOP + SIDE}H{LEFT + SIDE}"))
    parts.append(label(LEFT, 14, "cell that is looked at →", soft=True))
    turned = f"rotate(-90 14 {TOP + SIDE})"
    parts.append(
        tag(
            "text",
            "← cell that looks",
            x=14,
            y=TOP + SIDE,
            transform=turned,
            class_="soft",
        )
    )
    return drawing(LEFT + SIDE + 2, TOP + SIDE + 4, said, parts)


def _triangle(first: int, last: int, cells: int) -> str:
    whole = max(1, cells)
    low = SIDE * first / whole
    high = min(max(SIDE * last / whole, low + SEEN), SIDE)
    low = min(low, high - SEEN)
    a, b, c, d = LEFT + low, TOP + low, LEFT + high, TOP + high
    return f"M{a:.5g} {b:.5g}L{c:.5g} {d:.5g}L{a:.5g} {d:.5g}z"


def boundary_figure(subject: RunSubject) -> Figure | None:
    """A row with several documents, drawn with its attention; None for a run without rows.

    Where every row that was looked at holds one document, the message says all.
    """
    rows = subject.rows
    if not rows:
        return None
    row = _telling(rows)
    found = segments_of(row.segments)
    guessed = any(one.render.segments == "eos" for one in subject.run.sources.values())
    looked = _over_rows(subject, rows, guessed=guessed)
    return Figure(
        name="boundaries",
        title="What documents in one row may look at",
        message=_message(found, looked),
        drawing=_drawn(row, found) if sum(one > 0 for *_, one in found) > 1 else EMPTY,
        numbers=(_numbers(found),),
        notes=tuple(_notes(subject, looked)),
    )


def _telling(rows: Sequence[PickedRow]) -> PickedRow:
    """The row with the median number of documents, of those that have several."""
    several = sorted((row for row in rows if len(row.spans) > 1), key=lambda row: len(row.spans))
    return several[len(several) // 2] if several else rows[0]


def _drawn(row: PickedRow, found: Sequence[tuple[int, int, int]]) -> Markup:
    blocks = [
        Block(low, high, series(_colour(segment)) if segment else "filler")
        for low, high, segment in found
    ]
    segments = tuple(
        StripSegment(first=low, cells=high - low, words=_words(row, low, high), series=_colour(one))
        for low, high, one in found
        if one
    )
    strip = Strip(
        name=f"step {row.step:,}, row {row.row:,}",
        cells=row.cells,
        segments=segments,
        trained=row.trained,
        about=row.source,
    )
    several = plural(len(segments), "segment")
    panels = (
        ("With boundaries", f"attention inside {several}", False),
        ("Without them", "attention across all segments", True),
    )
    maps = (
        tag("div", tag("h3", title), attention_map(blocks, row.cells, said, all_pairs=crossed))
        for title, said, crossed in panels
    )
    names = {"full": "inside a document", "crossing": "across documents"}
    if any(not one for *_, one in found):
        names["filler"] = "filler"
    return joined(
        [
            strips_html([strip]),
            legend(list(names.values()), classes=list(names)),
            tag("div", *maps, class_="panels squares"),
        ]
    )


def _colour(segment: int) -> int:
    return (segment - 1) % SERIES


def _words(row: PickedRow, low: int, high: int) -> str:
    here = [str(one.document) for one in row.spans if low <= one.at < high]
    return f"document {', '.join(here)}: cells {low:,} to {high - 1:,}"


def crossing_share(cells: Int64) -> float:
    """Share of the causal pairs of a row that would be between two of its documents.

    Args:
        cells: cells of each document of the row [N].

    >>> crossing_share(np.array([2, 2]))  # 4 of 10 pairs
    0.4
    """
    return _crossing(_pairs(cells), _pairs(np.array([cells.sum()])))


def _sizes(found: Sequence[tuple[int, int, int]]) -> Int64:
    """Cells of each segment, without filler."""
    return np.array([high - low for low, high, one in found if one], np.int64)


def _pairs(cells: Int64) -> int:
    sizes = cells.tolist()
    return sum(size * (size + 1) // 2 for size in sizes)


class _Looked(NamedTuple):
    """What is known about the rows of the run.

    Attributes:
        rows: rows that were looked at.
        crossing: the share of their causal pairs that are between documents.
        which: a sentence that says which rows they are; empty: all rows of the run.
        sampled: whether the rows stand for others that were not looked at.
    """

    rows: int
    crossing: float
    which: str = ""
    sampled: bool = False


def _over_rows(subject: RunSubject, rows: Sequence[PickedRow], *, guessed: bool) -> _Looked:
    """All rows of the run, or a sample where that takes too long."""
    run = subject.run.run
    if guessed:  # boundaries are in the tokens
        inside = every = 0
        for row in rows:
            cells = _sizes(segments_of(row.segments))
            inside, every = inside + _pairs(cells), every + _pairs(cells.sum(keepdims=True))
        shown = f"The {plural(len(rows), 'row')} {are(len(rows))} shown"
        which = f"{shown} under “Rows as they are trained”."
        return _Looked(len(rows), _crossing(inside, every), which, sampled=True)
    if subject.examples <= EVERY_ROW:
        found = _counted(run.spans(np.arange(subject.examples)), run.seq_len)
        return _Looked(subject.examples, _crossing(*found))
    counts = [1] * len(run.sources)
    if subject.simulation is not None:
        counts = [one.rows for one in subject.simulation.sources]
    looked, pairs = 0, np.zeros(2)
    for source, count in zip(run.sources, counts, strict=True):
        if not count or not source.rows:
            continue
        # of the first epoch, whose rows are found without the rows before them
        size, stream = math.ceil(SAMPLED * count / sum(counts)), key(0, "boundaries", source.name)
        drawn = draws(stream, np.arange(size, dtype=np.uint64)) % np.uint64(source.rows)
        rows_drawn = np.unique(drawn.astype(np.int64))
        looked += len(rows_drawn)
        spans = source.layout.spans(0, rows_drawn)
        pairs += np.array(_counted(spans, run.seq_len)) * (count / len(rows_drawn))
    from_where = "drawn by a key from an epoch of every source"
    which = f"The {plural(looked, 'row')} {are(looked)} {from_where}."
    return _Looked(looked, _crossing(*pairs), which, sampled=True)


def _crossing(inside: float, every: float) -> float:
    return 1 - inside / every if every else 0.0


def _counted(spans: Spans, seq_len: int) -> tuple[float, float]:
    """Causal pairs inside the documents of some rows, and those of all their tokens."""
    tiles = tile(spans, seq_len)
    real = tiles.segment > 0
    cells = tiles.length[real]
    owner = (tiles.first // tiles.width)[real]
    whole = np.bincount(owner, cells, minlength=tiles.frames).astype(np.int64)
    return float(_pairs(cells)), float(_pairs(whole))


def _message(found: Sequence[tuple[int, int, int]], looked: _Looked) -> str:
    sizes = _sizes(found)
    rows = plural(looked.rows, "row")
    if not looked.crossing and len(sizes) < 2:
        if looked.sampled:
            return f"Each of the {rows} that were looked at holds one document."
        return f"Each of {rows} holds one document: there is no boundary in them."
    if len(sizes) < 2:
        return (
            f"This row holds one document. Over {rows}, {share(looked.crossing)} of the attention "
            "pairs would be between documents if boundaries were ignored."
        )
    here = share(crossing_share(sizes))
    return (
        f"This row has {plural(len(sizes), 'segment')}: {here} of its attention pairs would be "
        f"between documents if boundaries were ignored, and {share(looked.crossing)} over {rows}."
    )


def _numbers(found: Sequence[tuple[int, int, int]]) -> Numbers:
    every = _pairs(_sizes(found).sum(keepdims=True))
    rows = []
    for low, high, segment in found:
        pairs = _pairs(np.array([high - low]))
        part = pairs / every if segment and every else None
        rows.append((segment or "filler", low, high - low, pairs, part))
    return Numbers.of(HEAD, rows, "segments of this row")


def _notes(subject: RunSubject, looked: _Looked) -> Iterator[str]:
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, one in subject.run.sources.items():
        kinds.setdefault(tuple(settings_in_words(one.render)), []).append(name)
    for words, names in kinds.items():
        about = (
            f"{', '.join(names[:3])}{' …' if len(names) > 3 else ''}: " if len(kinds) > 1 else ""
        )
        yield about + " ".join(words)
    yield (
        "A model keeps to these boundaries if its attention gets them: segment_ids, cu_seqlens, or "
        "mask_mod of tokenloom.batch.attention."
    )
    if looked.which:
        yield looked.which


def settings_in_words(render: RenderSpec) -> Iterator[str]:
    """What is trained at a boundary and how positions count, a sentence each.

    >>> list(settings_in_words(RenderSpec()))[0]
    'The first token of a document is not predicted from the document before it.'
    """
    across = "" if render.mask_boundary_loss else " (mask_boundary_loss=False)"
    verb = "is not predicted" if render.mask_boundary_loss else "is predicted"
    yield f"The first token of a document {verb} from the document before it{across}."
    if render.train_on_eos:
        yield "The end of a document (EOS) is trained like any token."
    else:
        which = "an inserted EOS" if render.eos_mask == "inserted" else "EOS"
        yield f"The prediction of {which} is not trained (train_on_eos=False)."
    if render.position_scheme == "reset":
        yield "Positions start from 0 in every document."
    else:
        yield "Positions count through the whole row (position_scheme='absolute')."
    if render.segments == "eos":
        yield "Boundaries are guessed from EOS tokens (segments='eos')."
