"""Rows of a step: the first words of each, a thin drawing of its documents, its source and epoch.

A strip has as many segments as can be seen. Rows of a million cells with ten thousand documents
become at most `MOST_SEGMENTS` of them, from arrays; where several documents fall together, the
segment says how many. A strip does not tell what a row is about, so a few tokens from the start of
its first document are read, all rows of a source in one request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import StoreError
from tokenloom.explore.session import ExploredRun
from tokenloom.explore.shell import link
from tokenloom.layout.spans import Spans
from tokenloom.page.charts import SERIES, legend, series
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import plural, share
from tokenloom.page.strips import MOST_SEGMENTS, Strip, StripSegment, strip_svg
from tokenloom.store.reader import Reader

TOKENS_OF_A_ROW = 64  # that are read for its first words

MOST_LETTERS = 200  # of the first words

UNREAD = "(its tokens cannot be read)"


@dataclass(frozen=True, slots=True)
class StripRow:
    """A row of a step.

    Attributes:
        row: its number in the step.
        index: its number in the run.
        source, epoch: where it comes from.
        edges: first cell of each piece, and the cell after it [pieces, 2].
        documents: documents in each piece [pieces].
        first: the first document of each piece [pieces].
        width: cells of the row.
        words: the first words of the row.
    """

    row: int
    index: int
    source: str
    epoch: int
    edges: NDArray[np.int64]
    documents: list[int]
    first: list[int]
    width: int
    words: str


def rows_of_step(
    explored: ExploredRun, indices: NDArray[np.int64], first_row: int = 0
) -> list[StripRow]:
    """Some examples as strips; a few tokens of each are read."""
    run = explored.run.run
    if not len(indices):
        return []
    spans, (epochs, _) = run.spans(indices), run.locate(indices)
    sources = [spans.sources[one] for one in spans.source.tolist()]
    words = _first_words(explored, spans)
    return [
        StripRow(
            first_row + number,
            index,
            sources[number],
            int(epochs[number]),
            *_pieces(spans.frames(number, number + 1), run.width),
            run.width,
            words[number],
        )
        for number, index in enumerate(indices.tolist())
    ]


def _pieces(spans: Spans, width: int) -> tuple[NDArray[np.int64], list[int], list[int]]:
    """The pieces of one row: its documents, those that are too thin together."""
    begin, end, document = spans.at, spans.at + spans.cells, spans.document
    if len(begin) > MOST_SEGMENTS:
        place = begin * MOST_SEGMENTS // width
        starts = np.flatnonzero(np.diff(place, prepend=-1))
        counts = np.diff(np.append(starts, len(begin)))
        begin, document = begin[starts], document[starts]
        end = end[np.append(starts[1:], len(end)) - 1]
        return np.stack([begin, end], 1), counts.tolist(), document.tolist()
    return np.stack([begin, end], 1), [1] * len(begin), document.tolist()


def _first_words(explored: ExploredRun, spans: Spans) -> list[str]:
    """The first words of each row, on one line; empty for a row of filler alone [rows]."""
    found = [""] * len(spans)
    rows: dict[str, list[int]] = {}
    for row in np.flatnonzero(np.diff(spans.frame)).tolist():
        rows.setdefault(spans.sources[int(spans.source[row])], []).append(row)
    for name, some in rows.items():
        at = spans.frame[np.array(some)]
        reader = explored.stores[name].reader
        first = reader.bounds(spans.document[at])[0] + spans.start[at]
        last = first + np.minimum(spans.length[at], TOKENS_OF_A_ROW)
        pieces = list(zip(some, first.tolist(), last.tolist(), strict=True))
        try:
            for row, ids in read_pieces(reader, pieces):
                text = explored.text(name, ids)
                found[row] = _one_line(" ".join(map(str, ids.tolist())) if text is None else text)
        except StoreError:  # strips need no token, and the page of a row says what is wrong
            for row in some:
                found[row] = UNREAD
    return found


def read_pieces(
    reader: Reader, pieces: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, NDArray[np.int32]]]:
    """(name, tokens) of each of some pieces (name, first address, last), in one request."""
    begin = np.array([one[1] for one in pieces], np.int64)
    end = np.array([one[2] for one in pieces], np.int64)
    views = reader.read(begin, end)
    flat = np.concatenate([np.empty(0, np.int32), *views], dtype=np.int32, casting="unsafe")
    parts = np.split(flat, np.cumsum(end - begin)[:-1].tolist()) if len(pieces) else []
    yield from zip((one[0] for one in pieces), parts, strict=True)


def _one_line(text: str) -> str:
    r"""A text without line ends and halves of letters at its edges, bounded.

    >>> _one_line("\ufffd two\n  words \ufffd"), len(_one_line("a" * 999))
    ('two words', 200)
    """
    return " ".join(text.strip("\ufffd").split())[:MOST_LETTERS]


def by_share(rows: Iterable[StripRow]) -> list[tuple[str, int]]:
    """(source, rows) of each source, the largest first; ties go by name, as on every machine."""
    counts = Counter(one.source for one in rows)
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


def strip_rows(
    explored: ExploredRun,
    rows: Sequence[StripRow],
    *,
    colours: Mapping[str, int],
    differs: Iterable[int] = (),
    to: Callable[[StripRow], str] | None = None,
) -> Markup:
    """A list of strips.

    Args:
        explored: their run.
        rows: what to draw.
        colours: number of the colour of each source, from 1 on.
        differs: rows to be marked as different.
        to: where the name of a row leads; default: to the page of the row.
    """
    others, number = set(differs), explored.number or None
    leads = to or (lambda one: link("row", index=one.index, run=number))
    items = (
        tag(
            "li",
            tag("a", _name(one), _words(one), _strip(one, colours[one.source]), href=leads(one)),
            class_="differs" if one.row in others else None,
        )
        for one in rows
    )
    return tag("ol", *items, class_="rows")


def _name(one: StripRow) -> Markup:
    row = tag("span", f"row {one.row:,}", class_="row-number")
    about = tag("span", " ", tag("bdi", one.source), f", epoch {one.epoch:,}", class_="soft")
    said = f"{one.source}, epoch {one.epoch:,}"  # a very long name is cut
    return tag("span", row, about, class_="row-name", title=said)


def _words(one: StripRow) -> Markup:
    """What the row starts with, and the document that it is from."""
    if not one.first:
        return tag("span", "filler", class_="row-words soft")
    more = sum(one.documents) - 1
    said = f"document {one.first[0]:,}" + (f" and {more:,} more" if more else "")
    about = tag("span", said, class_="row-document")
    return tag("span", about, " ", tag("bdi", one.words), class_="row-words")


def _strip(one: StripRow, colour: int) -> Markup:
    """The row in the colour of its source; neighbouring documents differ in their shade."""
    pieces = zip(one.edges.tolist(), one.documents, one.first, strict=True)
    segments = tuple(
        StripSegment(
            first=begin,
            cells=end - begin,
            words=f"{f'document {first:,}' if documents == 1 else f'{documents:,} documents'}: "
            f"cells {begin:,} to {end - 1:,}",
            series=colour - 1,
        )
        for (begin, end), documents, first in pieces
    )
    return strip_svg(Strip(name=f"row {one.row:,}", cells=one.width, segments=segments))


def source_legend(rows: Sequence[StripRow], colours: Mapping[str, int], note: str = "") -> Markup:
    """What the rows come from, the largest share first; those without a colour are counted."""
    counts = by_share(rows)
    shown = [(name, count) for name, count in counts if colours[name] <= SERIES]
    names = []
    for name, count in shown:
        epochs = sorted({one.epoch for one in rows if one.source == name})
        span = f"{epochs[0]:,}" if len(epochs) == 1 else f"{epochs[0]:,} to {epochs[-1]:,}"
        about = f": {plural(count, 'row')}, {share(count, len(rows))}, epoch {span}"
        names.append(tag("span", tag("bdi", name), about))
    classes = [series(colours[name] - 1) for name, _ in shown]
    rest = len(counts) - len(shown)
    if rest:
        left = sum(count for _, count in counts) - sum(count for _, count in shown)
        names.append(tag("span", f"{plural(rest, 'other source')}: {plural(left, 'row')}"))
        classes.append(series(SERIES))
    if any(_has_filler(one) for one in rows):
        names.append(tag("span", "filler"))
        classes.append("filler")
    last = tag("p", note, class_="more") if note else None
    return joined([legend(names, classes=classes), last])


def _has_filler(one: StripRow) -> bool:
    """Whether cells of a row are in no document."""
    return int((one.edges[:, 1] - one.edges[:, 0]).sum()) < one.width
