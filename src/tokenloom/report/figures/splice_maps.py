"""What splices show: how often each start and place of a document comes, and each token is trained.

What an epoch shows of a document is counted before it is trained
(`tokenloom.inspect.coverage`), so the longest, the median and the shortest document are drawn, and
the others are in the table as far as counting them is cheap. What would take long is left out, with
the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.inspect.coverage import Coverage, coverage
from tokenloom.inspect.picture import most_splices, start_map, target_chart
from tokenloom.layout.splice.rows import Spliced
from tokenloom.page.axes import short
from tokenloom.page.charts import NARROW, both, heat_legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.histogram import columns
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, are, plural, share
from tokenloom.report.subject import RunSubject

Int64 = NDArray[np.int64]

HEAD = (
    *("document", "tokens", "splices", "targets min", "targets mean", "targets max"),
    *("variation of targets", "starts", "starts shown", "share of starts shown"),
)

SPLICES = 1 << 18  # of an epoch, that are visited one by one

TOKENS = 1 << 20  # of the documents of the table

LISTED = 100  # documents of the table

ALONE = {"only": "The only document", "counted": "The one document that is counted"}

CAN_BE = "targets: of tokens that can be one"

CANNOT = (
    "Targets are counted for tokens that can be one: not for a first token that nothing precedes, "
    "nor for tokens without loss. The curves show 0 for these."
)

BARS, BINS = 48, (120, 60)  # of a histogram and a map


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class CountedSplices:
    """What one epoch of a spliced source shows.

    Attributes:
        found: the counts.
        drawn: documents to draw, and what each is called.
        listed: documents of the table.
        notes: what was left out, and why.
    """

    found: Coverage
    drawn: dict[int, str]
    listed: list[int]
    notes: list[str] = field(default_factory=list)


def splice_figure(subject: RunSubject) -> Figure | None:
    """Coverage of the largest spliced source; None for a run without one."""
    spliced = [
        (one.layout.line.tokens, number)
        for number, one in enumerate(subject.run.run.sources)
        if isinstance(one.layout, Spliced)
    ]
    if not spliced:
        return None
    number = max(spliced)[1]
    name = subject.run.run.names[number]
    counted = counted_of(_alone(subject.run, name))
    several = len(subject.run.sources) > 1
    title = "What splices show of a document"
    more = len(spliced) - 1
    own = counted.notes + [CANNOT] * _without_targets(counted)
    notes = own + (
        [f"This is {name}; {plural(more, 'other source')} of the run {are(more)} spliced, too."]
        if more
        else []
    )
    return Figure(
        name="splices",
        title=f"{title} of {name}" if several else title,
        message=_message(counted),
        drawing=joined(_drawn(counted)),
        numbers=(_table(counted),),
        notes=tuple(notes),
        reason=""
        if counted.drawn
        else f"Each document has more than {amount(SPLICES, 'splice')} an epoch, so counting takes "
        "long. Run tokenloom.inspect.coverage for documents=[…].",
    )


def _alone(run: Dataset, name: str) -> Dataset:
    """The source as a run of its own; which splices an epoch has does not depend on the mix."""
    return run if run.rule is None else Dataset({"main": run.sources[name]})


def counted_of(run: Dataset) -> CountedSplices:
    """What the first epoch of a spliced run shows, bounded by what it costs to count."""
    layout = run.run.sources[0].layout
    assert isinstance(layout, Spliced)
    part = layout.parts[0]
    lengths, quota = part.length - layout.lead * (part.length > 0), part.quota
    order = np.argsort(-lengths, kind="stable")
    order = order[(lengths > 0)[order]]
    cheap = order[quota[order] <= SPLICES]
    few = cheap[:LISTED]
    few = few[np.cumsum(lengths[few] + quota[few]) <= TOKENS]
    notes = []
    if 0 < len(cheap) < len(order):
        left = len(order) - len(cheap)
        notes.append(
            f"Left out: {plural(left, 'document')} with more than {amount(SPLICES, 'splice')} an "
            "epoch, because counting them takes long. tokenloom.inspect.coverage does it."
        )
    places = _extremes(cheap[quota[cheap] > 0])
    if len(places) == 1 and len(cheap) < len(order):
        places = dict.fromkeys(places, "counted")
    drawn = {int(layout.documents[place]): words for place, words in places.items()}
    listed: list[int] = layout.documents[few].tolist()
    if 0 < len(listed) < len(order):
        notes.append(
            f"The table has {amount(len(listed))} of {amount(len(order), 'document')}, the longest "
            "first, as far as they are quickly counted."
        )
    wanted = list(dict.fromkeys([*drawn, *listed]))
    found = coverage(run, documents=wanted, epochs=1)
    if run.run.n is not None and run.run.n < int(layout.phases.end(1)):
        notes.append(f"The run ends in its first epoch, after {plural(run.run.n, 'example')}.")
    return CountedSplices(found=found, drawn=drawn, listed=listed, notes=notes)


def _extremes(order: Int64) -> dict[int, str]:
    """The longest, the middle and the shortest of documents that are ordered by length."""
    if not len(order):
        return {}
    longest, middle, shortest = order[0], order[len(order) // 2], order[-1]
    names = {int(longest): "longest", int(shortest): "shortest", int(middle): "median"}
    wanted = dict.fromkeys([int(longest), int(middle), int(shortest)])
    return {place: "only" if len(order) == 1 else names[place] for place in wanted}


def _message(counted: CountedSplices) -> str:
    found = counted.found
    if not counted.drawn:
        return "No document is counted here."
    document, words = next(iter(counted.drawn.items()))
    about = found.about(document)
    targets, variation = about["targets"], about["targets"]["cv"]
    low, high = targets["min"], targets["max"]
    times = plural(low, "time") if low == high else f"{low:,} to {high:,} times"
    evenly = "" if variation is None else f" (coefficient of variation {variation:.2f})"
    many = "" if words in ALONE else f"the {words}, "
    which = " that can be a target" if _without_targets(counted) else ""
    return (
        f"In an epoch, a token of document {document:,} ({many}{amount(about['length'], 'token')})"
        f"{which} is trained {times}{evenly}, and "
        f"{share(about['starts_shown'], about['starts'])} of its possible starts are shown."
    )


def _without_targets(counted: CountedSplices) -> bool:
    """Whether a document that is drawn has tokens that can be no target."""
    found = counted.found
    return any(len(found.trained(one)) < len(found.targets(one)) for one in counted.drawn)


def _drawn(counted: CountedSplices) -> Iterator[Markup]:
    for document, words in counted.drawn.items():
        about = counted.found.about(document)
        size = f"{plural(about['length'], 'token')}, {plural(about['splices'], 'splice')}"
        named = ALONE.get(words, f"The {words} document")
        yield tag("h3", f"{named}, number {document:,}: {size}")
        if not about["splices"]:
            yield tag("p", "It is never shown.", class_="soft")
            continue
        yield from _map(counted.found, document)
        charts = (_starts(counted.found, document), _targets(counted.found, document))
        yield tag("div", *charts, class_="panels")


def _map(found: Coverage, document: int) -> Iterator[Markup]:
    """Starts against places; one place, or one start, is told in words."""
    if found.splices[found.documents == document].max(initial=0) > SPLICES:
        yield tag("p", "Its splices are too many for a map of starts and places.", class_="soft")
        return
    grid = found.grid(document, BINS)
    rows = np.flatnonzero(grid.counts.any(axis=0))
    if len(rows) == 1:
        first, end = grid.s.edges[rows[0] : rows[0] + 2].tolist()
        cells = (
            f"cell {first:,}" if end - first == 1 else f"one of the cells {first:,} to {end - 1:,}"
        )
        yield tag("p", f"All its splices start at {cells} of the frame.", class_="soft")
    if len(rows) < 2 or len(grid.t) < 2:
        return
    length, seq_len = int(found.lengths[found.documents == document][0]), found.dataset.seq_len
    yield both(lambda width: start_map(grid, width, length=length, seq_len=seq_len))
    yield heat_legend(*most_splices(grid))


def _starts(found: Coverage, document: int) -> Markup:
    """The histogram of starts; of bins their means, because the last may have fewer starts."""
    starts = found.starts(document)
    each = _round_up(-(-len(starts.t) // BARS))
    cuts = np.arange(0, len(starts.t), each)
    size = np.diff(np.append(cuts, len(starts.t)))
    names = [short(one) for one in starts.t[cuts].tolist()]
    values = {"splices": (np.add.reduceat(starts.shown, cuts) / size).tolist()}
    below = "start t, tokens" if each == 1 else f"start t, the mean of {each:,} starts a column"
    first = int(starts.t[0]) if len(starts.t) else 0
    ends = None if each == 1 else (first, first + each * len(cuts))  # an axis with round numbers
    said = "splices of a start"
    drawn = columns(names, values, NARROW, said, below=below, beside="splices", x=ends)
    return tag("div", tag("p", "Splices of each start", class_="soft"), drawn)


def _round_up(least: int) -> int:
    """The first of 1, 2, 5, 10, 20, 50, … that is not less.

    >>> [_round_up(n) for n in (1, 3, 6, 11, 101, 500)]
    [1, 5, 10, 20, 200, 500]
    """
    power: int = 10 ** (len(str(max(1, least))) - 1)
    return next(power * k for k in (1, 2, 5, 10) if power * k >= least)


def _targets(found: Coverage, document: int) -> Markup:
    """How often each token is trained, as a line."""
    drawn = target_chart(found.targets(document), NARROW)
    return tag("div", tag("p", "How often a token is a target", class_="soft"), drawn)


def _table(counted: CountedSplices) -> Numbers:
    rows = []
    for document in counted.listed:
        about = counted.found.about(document)
        targets = about["targets"]
        rows.append(
            (
                document,
                about["length"],
                about["splices"],
                targets["min"],
                targets["mean"],
                targets["max"],
                targets["cv"],
                about["starts"],
                about["starts_shown"],
                about["starts_shown"] / max(1, about["starts"]),
            )
        )
    return Numbers.of(HEAD, rows, f"what one epoch shows of each document; {CAN_BE}")
