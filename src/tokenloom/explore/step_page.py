"""A step: its rows as strips, its sources, and ways to any other step, row, source or document.

A row has its first words, a thin drawing of its documents, its source and its epoch. A strip has as
many segments as can be seen. Rows of a million cells with ten thousand documents become at most
`MOST_SEGMENTS` of them, from arrays; where several documents fall together, the segment says how
many. A strip does not tell what a row is about, so a few tokens from the start of its first
document are read, all rows of a source in one request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, StoreError
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import (
    ExplorerPage,
    Query,
    button,
    field,
    hidden,
    link,
    number_form,
    pager,
    select,
    turns_of_steps,
)
from tokenloom.layout.spans import Spans
from tokenloom.order.schedule import examples_of_step
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


ROWS_OF_A_PAGE = 32

LISTED_SOURCES = 200  # of a choice


def step_page(session: Session, query: Query) -> ExplorerPage:
    """The page of a step."""
    explored = session.run(query.whole("run", 0, 1))
    step = query.whole("step", 0)
    count = explored.step_count
    if not count and count is not None:
        body = joined([tag("p", "This run has no examples.", class_="reason"), go_to(explored)])
        return ExplorerPage(title="Steps", body=body, way="step", run=explored.number)
    indices = examples_of_step(explored.run.run, explored.steps, step)
    first = query.whole("first", 0)
    first = min(first, max(0, len(indices) - 1) // ROWS_OF_A_PAGE * ROWS_OF_A_PAGE)
    rows = rows_of_step(explored, indices[first : first + ROWS_OF_A_PAGE], first)
    number = explored.number or None
    colours = explored.colours(name for name, _ in by_share(rows))
    note = "" if len(rows) == len(indices) else "of the rows on this page"
    parts = [
        _turns(explored, step, count),
        go_to(explored, step=step),
        source_legend(rows, colours, note),
        strip_rows(explored, rows, colours=colours),
        pager("step", first, ROWS_OF_A_PAGE, len(indices), "rows", step=step, run=number),
    ]
    turns = turns_of_steps(explored, step)
    if rows:
        turns.append(("down", link("row", index=rows[0].index, run=number)))
    low, high = int(indices.min()), int(indices.max())
    last = "The run is endless" if count is None else f"The last step is {count - 1:,}"
    return ExplorerPage(
        title=f"Step {step:,}",
        body=joined(parts),
        way="step",
        lead=f"{plural(len(indices), 'row')} of {explored.run.seq_len:,} tokens, examples {low:,} "
        f"to {high:,} · {last}.{_short(explored, step, len(indices))}",
        turns=tuple(turns),
        run=explored.number,
    )


def _short(explored: ExploredRun, step: int, rows: int) -> str:
    """What becomes of a last step with too few rows; nothing for the others."""
    if rows == explored.steps.size(step):
        return ""
    file = explored.run.file
    end = "drop" if file is None else str(file.loader.get("end", "drop"))
    kept = "a loader drops it, unless it has end='pad' or end='wrap'"
    return f" This step is short: {kept if end == 'drop' else f'end={end!r} fills it'}."


def _turns(explored: ExploredRun, step: int, count: int | None) -> Markup:
    """Ways to the steps around and to any other, and how far the run has come."""
    number, last = explored.number or None, None if count is None else count - 1
    places = (
        ("« first", 0, step > 0),
        ("‹ previous", step - 1, step > 0),
        ("next ›", step + 1, last is None or step < last),
        ("last »", last, last is not None and step < last),
    )
    ways = [
        button(words, link("step", step=at, run=number), there=there) for words, at, there in places
    ]
    bar = None
    if count is not None:
        said = f"{share(step + 1, count)} of the run"
        bar = tag("progress", value=step + 1, max=count, aria_label=said, title=said)
    # the key "/" leads to the box
    box = number_form("step", "step", step, "Step", "Step", {"run": number}, id="go")
    return tag("nav", joined(ways), box, bar, class_="pager", aria_label="steps")


def go_to(explored: ExploredRun, *, step: int = 0, index: int | None = None) -> Markup:
    """Forms that lead to an example, a row of a step, a source or a document; folded.

    Args:
        explored: the run.
        step: the step that is shown.
        index: the example that is shown, on the page of a row; only there is a step asked for, too.
    """
    after = explored.steps.begin(step + 1) - 1 if index is None else index
    number = {"run": explored.number or None}
    numeric = {"inputmode": "numeric"}
    example = "" if index is None else index
    forms = [
        ("row", [field("index", "Example", example, **numeric), field("cell", "Cell", **numeric)]),
        ("row", [field("step", "Step", step, **numeric), field("row", "Row", **numeric)]),
        ("goto", [source_field(explored, "Next row of"), *hidden({"after": after})]),
        ("document", [source_field(explored, "Source"), field("document", "Document", **numeric)]),
    ]
    if index is not None:
        forms.insert(0, ("step", [field("step", "Step", step, **numeric, id="go")]))
    lines = (
        tag("form", *parts, *hidden(number), tag("button", "Go"), action=page)
        for page, parts in forms
    )
    summary = tag("summary", "Go to a row, cell, source or document")
    return tag("details", summary, tag("div", *lines, class_="goto"), class_="elsewhere")


def source_field(explored: ExploredRun, label: str, chosen: str = "", first: str = "") -> Markup:
    """A choice among the sources; a box to type in where there are very many."""
    names = list(explored.run.run.names)
    if len(names) > LISTED_SOURCES:
        return field("source", label, chosen)
    return select("source", label, names, chosen, first)


def named_source(explored: ExploredRun, name: str) -> str:
    """A source by its name; a single one need not be named."""
    names = explored.run.run.names
    if not name and len(names) == 1:
        return names[0]
    if name not in names:
        raise ConfigError(f"source: found {name!r:.80}, allowed: a source of the run.")
    return name
