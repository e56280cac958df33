"""What another way of cutting rows would win or lose.

Each way is planned for the same documents (`tokenloom.report.ways_to_pack`): the run's own stands
beside the others with its fill, its losses and its cuts.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.layout.layout import Layout
from tokenloom.page.charts import Bar, bars, both, legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, plural, share
from tokenloom.report.subject import RunSubject
from tokenloom.report.ways_to_pack import (
    BUDGET,
    WINDOWS,
    PackingWay,
    PackingWays,
    own_tally,
    spec_of,
    ways_of,
)

HEAD = (
    *("source", "way", "this run", "rows", "share of cells filled", "share of tokens lost"),
    *("documents cut", "cut needlessly", "segments a row", "attention"),
)

SHOWN = 8  # sources; the largest


def packing_figure(subject: RunSubject) -> Figure | None:
    """Ways of packing side by side; None if every source is spliced."""
    packed = {one.name: one.layout for one in subject.run.run.sources if spec_of(one.layout)}
    largest_first = sorted(packed, key=lambda name: -packed[name].line.tokens)
    shown = [name for name in largest_first[:SHOWN] if packed[name].line.tokens]
    found = {
        name: ways_of(packed[name].line, spec, BUDGET // len(shown))
        for name in shown
        if (spec := spec_of(packed[name])) is not None
    }
    if not found:
        return None
    name, largest = next(iter(found.items()))
    several = len(subject.run.sources) > 1
    return Figure(
        name="packing",
        title="How rows are filled, and how else they could be",
        message=_message(largest, f"{name}, " if several else ""),
        drawing=ways_drawn(largest, name if several else ""),
        numbers=(_numbers(found),),
        notes=tuple(_notes(found, packed)),
    )


def ways_drawn(ways: PackingWays, name: str = "") -> Markup:
    """Bars of fill and of documents cut; the run's own are blue."""
    about = f" of {name}" if name else ""
    fill = [_bar(one, one.tally.fill, _filled(one)) for one in ways.ways]
    parts = [
        legend(["this run", "other ways"], classes=["s1", "rest"]),
        tag("h3", f"Cells that hold a token{about}"),
        both(lambda width: bars(fill, width, "share of cells that hold a token", top=1.0)),
    ]
    most = max(one.needless for one in ways.ways)
    if not most:
        parts.append(tag("p", "No way cuts a document that would fit into a frame.", class_="soft"))
        return joined(parts)
    cut = [_bar(one, one.needless, share(one.needless)) for one in ways.ways]
    parts += [
        tag("h3", "Documents that would fit into a frame, but are cut"),
        both(
            lambda width: bars(cut, width, "share of documents cut needlessly", top=max(0.05, most))
        ),
    ]
    return joined(parts)


def _bar(one: PackingWay, value: float, words: str) -> Bar:
    return Bar(one.name, value, words, "s1" if one.own else "rest")


def _filled(one: PackingWay) -> str:
    lost = f", {share(one.lost)} lost" if one.lost else ""
    return f"{share(one.tally.fill)}{lost}"


def _message(ways: PackingWays, start: str) -> str:
    own = ways.chosen
    about = "about " if ways.is_sample else ""
    done = [f"{about}{share(own.tally.fill)} of the cells filled"]
    done += [f"{share(own.lost)} of the tokens lost"] if own.lost else []
    done += [f"{share(own.needless)} of the documents cut needlessly"] if own.needless else []
    return f"{start}{own.name}: {', '.join(done)}."


def _numbers(found: dict[str, PackingWays]) -> Numbers:
    rows = [
        (
            name,
            one.name,
            one.own,
            one.tally.rows,
            one.tally.fill,
            one.lost,
            one.tally.cut,
            one.tally.cut_needlessly,
            one.segments,
            one.attention,
        )
        for name, ways in found.items()
        for one in ways.ways
    ]
    return Numbers.of(HEAD, rows, "what each way makes of the documents looked at")


def _notes(found: dict[str, PackingWays], layouts: dict[str, Layout]) -> Iterator[str]:
    if len(layouts) > len(found):
        every = f"{len(layouts):,} sources that are not spliced"
        yield f"The table has the largest {len(found)} of {every}."
    for name, ways in found.items():
        if ways.is_sample:
            own, about = own_tally(layouts[name]), f"{name}: " if len(found) > 1 else ""
            yield (
                f"{about}estimated from {amount(ways.looked, 'document')} of "
                f"{amount(ways.documents)}, in whole groups. Of all documents, the run's own way "
                f"makes {plural(own.rows, 'row')} and loses {amount(own.lost, 'token')}, exactly."
            )
    if any(one.strategy == WINDOWS for ways in found.values() for one in ways.ways):
        yield (
            "Attention is what attention inside documents costs; 1 is a frame of one document. "
            "Cells are filled by stored and by inserted tokens."
        )
