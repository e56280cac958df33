"""What another way of cutting rows would win or lose.

One idea: each way is planned for the same documents (`tokenloom.report.ways_to_pack`), so the run's
own choice stands beside the others with its fill, its losses and its cuts, and one sentence says
what a change would bring.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.layout.splice.rows import Spliced
from tokenloom.page.charts import Bar, bars, both, legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, plural, share
from tokenloom.report.subject import RunSubject, capital
from tokenloom.report.ways_to_pack import BUDGET, WINDOWS, PackingWay, PackingWays, ways_of

__all__ = ["packing_figure", "ways_drawn"]

HEAD = (
    *("source", "way", "this run", "rows", "share of cells filled", "share of tokens lost"),
    *("documents cut", "cut needlessly", "segments a row", "attention"),
)

SHOWN = 8  # sources; the largest

DEAR = 0.1  # a way that costs more is not named

WORTH = 0.005  # of cells, tokens or documents; less is no reason to change anything


def packing_figure(subject: RunSubject) -> Figure | None:
    """Ways of packing side by side; None if every source is spliced."""
    packed = [one for one in subject.run.run.sources if not isinstance(one.layout, Spliced)]
    runs = sorted(packed, key=lambda one: -one.layout.line.tokens)
    shown = runs[:SHOWN]
    tried = {one.name: ways_of(one.layout, BUDGET // len(shown)) for one in shown}
    found = {name: ways for name, ways in tried.items() if ways is not None and ways.tokens}
    if not found:
        return None
    name, largest = next(iter(found.items()))
    several = len(subject.run.sources) > 1
    return Figure(
        name="packing",
        title="How rows are filled, and how else they could be",
        message=_message(largest, f"In {name}, " if several else ""),
        drawing=ways_drawn(largest, name if several else ""),
        numbers=(_numbers(found),),
        code=subject.table_code("packing"),
        notes=tuple(_notes(found, len(runs))),
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
    cut = [_bar(one, one.needless, share(one.needless)) for one in ways.ways if one.needless]
    others = len(ways.ways) - len(cut)
    parts += [
        tag("h3", "Documents that would fit into a frame, but are cut"),
        both(
            lambda width: bars(cut, width, "share of documents cut needlessly", top=max(0.05, most))
        ),
    ]
    if others:
        none = f"The other {plural(others, 'way')} cut{'s' if others == 1 else ''} none of them."
        parts.append(tag("p", none.replace("The other 1 way", "The other way"), class_="soft"))
    return joined(parts)


def _bar(one: PackingWay, value: float, words: str) -> Bar:
    return Bar(one.name, value, words, "s1" if one.own else "rest")


def _filled(one: PackingWay) -> str:
    lost = f", {share(one.lost)} lost" if one.lost else ""
    return f"{share(one.tally.fill)}{lost}"


def _message(ways: PackingWays, start: str) -> str:
    own = ways.chosen
    about = "about " if ways.is_sample else ""
    s = "" if own.name == WINDOWS else "s"  # windows fill, greedy fills
    done = [f"fill{s} {about}{share(own.tally.fill)} of the cells"]
    done += [f"lose{s} {share(own.lost)} of the tokens"] if own.lost else []
    done += [f"cut{s} {share(own.needless)} of the documents needlessly"] if own.needless else []
    name = own.name if start or own.name == WINDOWS else f"the way {own.name}"
    told = capital(f"{start}{name} {_listed(done)}")
    better = _better(ways)
    if better is not None:
        return f"{told}; {_gains(own, better)}."
    dear = [one for one in ways.ways if not one.own and max(_differences(own, one)) > WORTH]
    if not dear:
        return f"{told}: no other way is better by {share(WORTH)} in anything."
    best = max(dear, key=lambda one: sum(_differences(own, one)))
    return f"{told}; no way is better by {share(WORTH)} without a price: {_gains(own, best)}."


def _listed(parts: list[str]) -> str:
    """Words with commas, the last with an "and".

    >>> _listed(["a"]), _listed(["a", "b"]), _listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    """
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last


def _better(ways: PackingWays) -> PackingWay | None:
    """The way that wins most, among those that are worse in nothing."""
    own, best, most = ways.chosen, None, WORTH
    for one in ways.ways:
        gains = _differences(own, one)
        if not one.own and min(gains) > -WORTH and sum(gains) > most:
            best, most = one, sum(gains)
    if best is not None:
        return best
    # no way is better in everything: the one that keeps documents whole, and its price
    whole = [
        one
        for one in ways.ways
        if own.needless - one.needless > 2 * WORTH and min(_differences(own, one)) > -DEAR
    ]
    return max(whole, key=lambda one: sum(_differences(own, one)), default=None)


def _differences(own: PackingWay, other: PackingWay) -> tuple[float, float, float]:
    """What the other way wins: fill, tokens, documents that stay whole."""
    return (
        other.tally.fill - own.tally.fill,
        own.lost - other.lost,
        own.needless - other.needless,
    )


def _gains(own: PackingWay, other: PackingWay) -> str:
    fill, lost, whole = _differences(own, other)
    told = []
    if fill > WORTH / 2:
        fewer = 1 - other.tally.rows / max(1, own.tally.rows)
        rows = f" in {share(fewer)} fewer rows" if fewer > WORTH else ""
        told.append(f"would fill {share(other.tally.fill)}{rows}")
    if lost > WORTH / 2:
        told.append(f"would keep the lost {share(lost)}")
    if whole > WORTH / 2:
        cut = "none" if not other.needless else share(other.needless)
        told.append(f"would cut {cut} of them needlessly")
    paid = [f"{share(-fill)} more filler"] if fill < -1e-4 else []
    paid += [f"{share(-lost)} of the tokens"] if lost < -1e-4 else []
    paid += [f"{share(-whole)} more documents cut"] if whole < -1e-4 else []
    price = f", for {' and '.join(paid)}" if paid else ""
    return f"{other.name} {' and '.join(told)}{price}"


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


def _notes(found: dict[str, PackingWays], sources: int) -> Iterator[str]:
    if sources > len(found):
        yield f"The table has the largest {len(found)} of {sources:,} sources that are not spliced."
    for name, ways in found.items():
        if ways.is_sample:
            own, about = ways.own, f"{name}: " if len(found) > 1 else ""
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
