"""What a model gives back: P(z) over the tokens of documents, and how many windows reach it.

A document is a line of colours, and documents below each other show at a glance whether
whole documents, their starts, or single places are remembered. The control, if there is one, says
how much of that would be guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tokenloom.evaluate.extraction import Extraction
from tokenloom.evaluate.heat_map import most_remembered, power, pz_colours, pz_map
from tokenloom.page.charts import Bar, bars, both, heat_legend
from tokenloom.page.figure import Figure, Numbers, numbers_html
from tokenloom.page.markup import EMPTY, Markup, joined, tag
from tokenloom.page.numbers import amount, exact, plural, share
from tokenloom.report.evaluations.read_back import Evaluated, inside
from tokenloom.report.report_file import Answer
from tokenloom.report.subject import capital

MOST_MAPS = 6  # evaluations with a figure of their own

DOCUMENTS, COLUMNS = 40, 160  # of a map

BINS = 12  # of the histogram

NO_MAP = (
    "The file has no single windows, so there is no map over documents; the folder of tokenloom "
    "evaluate -o has them."
)


def pz_figures(every: Sequence[Evaluated]) -> Iterator[Figure]:
    """A figure for each evaluation of windows."""
    known = [
        one
        for one in every
        if one.windows is not None or one.counted or inside(one.control, "figures")
    ]
    for number, one in enumerate(known[:MOST_MAPS]):
        title = "What the model gives back" if len(known) == 1 else f"P(z) of {one.name}"
        name = "pz" if not number else f"pz-{number + 1}"
        if one.windows is not None:
            yield _drawn(one, one.windows, name, title)
        elif one.counted is not None:
            yield _counted(one, one.counted, name, title)
        else:
            yield _beside(one, name)


def pz_answer(every: Sequence[Evaluated]) -> Answer | None:
    """What the first evaluation of windows gives back; None without one."""
    for one in every:
        whole = one.windows.summary() if one.windows is not None else (one.counted or {}).get("all")
        if isinstance(whole, Mapping) and whole.get("windows"):
            names = ("windows", "greedy", "mean_pz", "max_pz")
            numbers = {name: float(whole[name]) for name in names}
            greedy = share(numbers["greedy"])
            told = (
                f"Greedy decoding gives back {greedy} of "
                f"{amount(int(whole['windows']), 'window')} of {one.name}; the mean P(z) is "
                f"{exact(numbers['mean_pz'])}, the largest {exact(numbers['max_pz'])}."
            )
            verdicts = {str(o.get("verdict")) for o in inside(one.control, "figures").values()}
            if verdicts:
                told += f" Beside the control: {', '.join(sorted(verdicts))}."
            return Answer(
                name="given_back",
                question="What does the model give back?",
                sentence=told,
                numbers=numbers,
                figure="pz",
                headline=(greedy, "of the windows, decoded greedily"),
            )
    return None


def _drawn(one: Evaluated, found: Extraction, name: str, title: str) -> Figure:
    chosen = most_remembered(found, DOCUMENTS)
    whole = found.summary()
    asked = found.settings
    notes = []
    if len(chosen) < len(found.lengths):
        notes.append(
            f"The {plural(len(chosen), 'document')} with the largest P(z), of "
            f"{len(found.lengths):,}."
        )
    notes.append(
        f"Windows of {asked['prefix']} tokens given and {asked['suffix']} asked for, one every "
        f"{plural(asked['stride'], 'token')}; a piece has the colour of the largest P(z) of the "
        "windows whose suffix covers it."
    )
    return Figure(
        name=name,
        title=title,
        message=_message(whole),
        drawing=joined([_map(found, chosen), _bars(found.histogram()), _control(one.control)]),
        numbers=(_documents(found, chosen), *_intervals(found), *_control_numbers(one.control)),
        notes=tuple(notes),
    )


def _message(whole: Mapping[str, Any]) -> str:
    if not whole.get("windows"):
        return "No document is long enough for a window."
    return (
        f"{share(float(whole['greedy']))} of {amount(int(whole['windows']), 'window')} come back "
        f"with greedy decoding; the median P(z) is {exact(float(whole['median_pz']))}."
    )


def _map(found: Extraction, chosen: Sequence[int]) -> Markup:
    if not chosen:
        return EMPTY
    drawn = both(lambda width: pz_map(found, chosen, width, columns=COLUMNS))
    return joined([drawn, heat_legend(*pz_colours(found, chosen, columns=COLUMNS))])


def _bars(histogram: Sequence[Sequence[float]]) -> Markup:
    """How many windows have which P(z), a bar for every few powers of ten."""
    known = [(float(low), float(high), int(count)) for low, high, count in histogram]
    if not any(count for *_, count in known):
        return EMPTY
    step = max(1, -(-len(known) // BINS))
    rows = []
    for last in range(len(known), 0, -step):
        some = known[max(0, last - step) : last]
        count = sum(one[2] for one in some)
        name = f"{power(some[0][0])} to {power(some[-1][1])}"
        rows.append(Bar(name, count, f"{count:,}"))
    said = "windows by P(z)"
    head = tag("h3", "Windows by their P(z)")
    return joined([head, both(lambda width: bars(rows, width, said))])


def _documents(found: Extraction, chosen: Sequence[int]) -> Numbers:
    rows = []
    for number in chosen:
        some = found.windows.some(np.flatnonzero(found.windows.document == number)).summary()
        figures = (some["windows"], some["mean_pz"], some["max_pz"], some["greedy"])
        rows.append((number, found.lengths[number], *figures))
    head = ("document", "tokens", "windows", "mean P(z)", "largest P(z)", "greedy")
    return Numbers.of(head, rows, "documents of the map")


def _intervals(found: Extraction) -> Iterator[Numbers]:
    if not len(found):
        return
    rows = [(name, *one) for name, one in found.intervals(draws=200).items()]
    yield Numbers.of(("figure", "mean", "low", "high"), rows, "intervals of 95 % over documents")


def _beside(one: Evaluated, name: str) -> Figure:
    """A comparison without the windows that were compared."""
    verdicts = Counter(str(each.get("verdict")) for each in inside(one.control, "figures").values())
    every = "all " if len(verdicts) == 1 and len(inside(one.control, "figures")) > 1 else ""
    told = "; ".join(
        f"{word} in {every}{plural(many, 'figure')}" for word, many in verdicts.items()
    )
    return Figure(
        name=name,
        title=f"Beside documents that were held out: {one.name}",
        message=f"{capital(told)}.",
        drawing=_control_table(one.control),
        numbers=tuple(_control_numbers(one.control)),
    )


def _control(control: Any) -> Markup:
    figures = inside(control, "figures")
    if not figures:
        return EMPTY
    verdicts = {str(one.get("verdict")) for one in figures.values()}
    told = f": {verdicts.pop()}" if len(verdicts) == 1 else ""
    head = tag("h3", f"Beside documents that were held out{told}")
    return joined([head, _control_table(control)])


def _control_table(control: Any) -> Markup:
    """The figures of both sides, and what the differences mean, if that is not always the same."""
    figures = inside(control, "figures")
    few = len({str(one.get("verdict")) for one in figures.values()}) < 2
    head = ("figure", "trained", "held out", "verdict")[: 3 if few else 4]
    rows = [
        (name, one.get("trained"), one.get("held_out"), one.get("verdict"))[: len(head)]
        for name, one in figures.items()
    ]
    return numbers_html(Numbers.of(head, rows), wraps=True)


def _control_numbers(control: Any) -> Iterator[Numbers]:
    rows = [
        (name, one.get("trained"), one.get("held_out"), one.get("ratio"), one.get("verdict"))
        for name, one in inside(control, "figures").items()
    ]
    if rows:
        yield Numbers.of(
            ("figure", "trained", "held out", "ratio", "verdict"), rows, "beside the control"
        )


def _counted(one: Evaluated, counted: Mapping[str, Any], name: str, title: str) -> Figure:
    """Without single windows there is no map, but all the rest."""
    documents = counted.get("documents", {})
    rows = [
        (number, some.get("windows"), some.get("mean_pz"), some.get("max_pz"), some.get("greedy"))
        for number, some in documents.items()
    ]
    rows.sort(key=lambda row: -(row[3] or 0))
    head = ("document", "windows", "mean P(z)", "largest P(z)", "greedy")
    return Figure(
        name=name,
        title=title,
        message=_message(counted.get("all", {})),
        drawing=joined([_bars(counted.get("histogram", [])), _control(one.control)]),
        numbers=(Numbers.of(head, rows, "documents"), *_control_numbers(one.control)),
        notes=(NO_MAP,),
    )
