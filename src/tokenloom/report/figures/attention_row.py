"""Boundaries: one row with the attention that its documents allow, and without them.

One idea: documents in one row should not look at each other. The map of a row shows what each cell
may look at, and how much more that would be if a model ignored the boundaries. The share over many
rows comes from spans alone; no token is read for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.tiles import tile
from tokenloom.layout.spans import Spans
from tokenloom.order.run import SourceRun
from tokenloom.page.charts import SERIES, series
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import EMPTY, Markup, joined, tag
from tokenloom.page.numbers import plural, share
from tokenloom.page.strips import Strip, StripSegment, strips_html
from tokenloom.page.triangles import Block, attention_map
from tokenloom.random.keys import draws, key
from tokenloom.report.picked_rows import PickedRow, segments_of
from tokenloom.report.subject import RunSubject

__all__ = ["boundary_figure", "crossing_share", "settings_in_words"]

Int64 = NDArray[np.int64]

LOOKED_AT = 256  # rows of a run that are all looked at

PLACES, NEIGHBOURS = 8, 32  # of a longer one: places, and rows at each

HEAD = ("segment", "first cell", "cells", "pairs inside", "share of all causal pairs")


def boundary_figure(subject: RunSubject) -> Figure | None:
    """A row with several documents, drawn with its attention; None for a run without rows.

    Where every row that was looked at holds one document, the message says all.
    """
    rows = subject.rows
    if not rows:
        return None
    row = _telling(rows)
    found = segments_of(row)
    guessed = any(one.render.segments == "eos" for one in subject.run.sources.values())
    looked, crossing = _over_rows(subject, rows, guessed=guessed)
    return Figure(
        name="boundaries",
        title="What documents in one row may look at",
        message=_message(row, found, looked, crossing),
        drawing=_drawn(row, found) if sum(one > 0 for *_, one in found) > 1 else EMPTY,
        numbers=(_numbers(found),),
        code=subject.table_code("boundaries"),
        notes=tuple(_notes(subject, looked, guessed=guessed)),
    )


def _telling(rows: Sequence[PickedRow]) -> PickedRow:
    """The row with the median number of documents, of those that have several."""
    several = sorted((row for row in rows if len(row.spans) > 1), key=lambda row: len(row.spans))
    return several[len(several) // 2] if several else rows[0]


def _drawn(row: PickedRow, found: Sequence[tuple[int, int, int]]) -> Markup:
    blocks = [Block(low, high, _class(segment)) for low, high, segment in found]
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
    items = [("swatch full", "inside a document"), ("swatch crossing", "across documents")]
    if any(not one for *_, one in found):
        items.append(("swatch filler", "filler"))
    listed = (tag("li", tag("span", class_=c, aria_hidden="true"), words) for c, words in items)
    return joined(
        [
            strips_html([strip]),
            tag("ul", *listed, class_="legend"),
            tag("div", *maps, class_="panels squares"),
        ]
    )


def _colour(segment: int) -> int:
    return (segment - 1) % SERIES


def _class(segment: int) -> str:
    return series(_colour(segment)) if segment else "filler"


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
    inside, every = _pairs(cells), _pairs(np.array([cells.sum()]))
    return 1 - inside / every if every else 0.0


def _pairs(cells: Int64) -> int:
    sizes = cells.tolist()
    return sum(size * (size + 1) // 2 for size in sizes)


def _over_rows(
    subject: RunSubject, rows: Sequence[PickedRow], *, guessed: bool
) -> tuple[int, float]:
    """Rows that were looked at, and the share of their causal pairs between documents."""
    run, inside, every, looked = subject.run.run, 0.0, 0.0, 0
    if guessed:  # boundaries are in the tokens
        for row in rows:
            cells = np.array([high - low for low, high, one in segments_of(row) if one], np.int64)
            inside, every = inside + _pairs(cells), every + _pairs(cells.sum(keepdims=True))
        looked = len(rows)
    elif subject.examples <= LOOKED_AT:
        inside, every = _counted(run.spans(np.arange(subject.examples)), subject.run.seq_len)
        looked = subject.examples
    else:
        shown = [1] * len(run.sources)
        if subject.simulation is not None:
            shown = [one.rows for one in subject.simulation.sources]
        largest = sorted(range(len(shown)), key=lambda number: -shown[number])[:PLACES]
        for number in largest:
            some = _some_rows(run.sources[number], PLACES // len(largest))
            if shown[number] and len(some):
                spans = run.sources[number].layout.spans(0, some)
                found = _counted(spans, subject.run.seq_len)
                inside += found[0] * shown[number] / len(some)
                every += found[1] * shown[number] / len(some)
                looked += len(some)
    return looked, 1 - inside / every if every else 0.0


def _some_rows(source: SourceRun, places: int) -> Int64:
    """Rows of the first epoch: stretches of neighbours, so that few offsets are read."""
    rows, stream = int(source.phases.rows[0]), key(0, "report", "boundaries", source.name)
    if rows <= places * NEIGHBOURS:
        return np.arange(rows)
    free = np.uint64(rows - NEIGHBOURS + 1)
    begin = (draws(stream, np.arange(places, dtype=np.uint64)) % free).astype(np.int64)
    return np.unique(begin[:, None] + np.arange(NEIGHBOURS))  # [places, neighbours]


def _counted(spans: Spans, seq_len: int) -> tuple[float, float]:
    """Causal pairs inside the documents of some rows, and those of all their tokens."""
    tiles = tile(spans, seq_len)
    real = tiles.segment > 0
    cells = tiles.length[real]
    owner = (tiles.first // tiles.width)[real]
    whole = np.bincount(owner, cells, minlength=tiles.frames).astype(np.int64)
    return float(_pairs(cells)), float(_pairs(whole))


def _message(
    row: PickedRow, found: Sequence[tuple[int, int, int]], looked: int, crossing: float
) -> str:
    sizes = np.array([high - low for low, high, one in found if one], np.int64)
    if not crossing and len(sizes) < 2:
        return f"Each of {plural(looked, 'row')} holds one document: there is no boundary in them."
    if len(sizes) < 2:
        return (
            f"This row holds one document. Over {plural(looked, 'row')}, {share(crossing)} of the "
            "attention pairs would be between documents if boundaries were ignored."
        )
    here = share(crossing_share(sizes))
    return (
        f"This row has {plural(len(sizes), 'segment')}: {here} of its attention pairs would be "
        f"between documents if boundaries were ignored, and {share(crossing)} over "
        f"{plural(looked, 'row')}."
    )


def _numbers(found: Sequence[tuple[int, int, int]]) -> Numbers:
    every = _pairs(np.array([sum(high - low for low, high, one in found if one)]))
    rows = []
    for low, high, segment in found:
        pairs = _pairs(np.array([high - low]))
        part = pairs / every if segment and every else None
        rows.append((segment or "filler", low, high - low, pairs, part))
    return Numbers.of(HEAD, rows, "segments of this row")


def _notes(subject: RunSubject, looked: int, *, guessed: bool) -> Iterator[str]:
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
    if looked < subject.examples:
        rows = "The row is" if looked == 1 else f"The {looked:,} rows are"
        kind = (
            "shown under “Rows as they are trained”" if guessed else "chosen by a key in an epoch"
        )
        yield f"{rows} {kind}."


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
