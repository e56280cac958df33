"""What a model gives back: P(z) over the tokens of documents, and how many windows reach it.

One idea: a document is a line of colours, and documents below each other show at a glance whether
whole documents, their starts, or single places are remembered. The control, if there is one, says
how much of that would be guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tokenloom.evaluate.windows.extraction import Extraction
from tokenloom.evaluate.windows.heat_map import pieces_of
from tokenloom.page.charts import Bar, bars, both, heat, heat_legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import EMPTY, Markup, joined, tag
from tokenloom.page.numbers import amount, exact, plural, share
from tokenloom.report.evaluations.read_back import Evaluated

__all__ = ["MOST_MAPS", "pz_answer", "pz_figures"]

MOST_MAPS = 6  # evaluations with a figure of their own

DOCUMENTS, COLUMNS = 40, 160  # of a map

LOWEST = 16  # P(z) of 10^-LOWEST and less has the first colour

BINS = 12  # of the histogram

RAISED = str.maketrans("-.0123456789", "⁻·⁰¹²³⁴⁵⁶⁷⁸⁹")

NO_MAP = (
    "The file has no single windows, so there is no map over documents; the folder of tokenloom "
    "evaluate -o has them."
)


def pz_figures(every: Sequence[Evaluated]) -> Iterator[Figure]:
    """A figure for each evaluation of windows."""
    known = [
        one for one in every if one.windows is not None or one.counted or _figures(one.control)
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


def pz_answer(every: Sequence[Evaluated]) -> tuple[str, dict[str, float]] | None:
    """The sentence about the first evaluation of windows, and its numbers."""
    for one in every:
        whole = one.windows.summary() if one.windows is not None else (one.counted or {}).get("all")
        if isinstance(whole, Mapping) and whole.get("windows"):
            told = (
                f"Greedy decoding gives back {share(float(whole['greedy']))} of "
                f"{amount(int(whole['windows']), 'window')} of {one.name}; the mean P(z) is "
                f"{exact(float(whole['mean_pz']))}, the largest {exact(float(whole['max_pz']))}."
            )
            verdicts = {str(o.get("verdict")) for o in _figures(one.control).values()}
            if verdicts:
                told += f" Beside the control: {', '.join(sorted(verdicts))}."
            names = ("windows", "greedy", "mean_pz", "max_pz")
            return told, {name: float(whole[name]) for name in names}
    return None


def _drawn(one: Evaluated, found: Extraction, name: str, title: str) -> Figure:
    chosen = _chosen(found)
    whole = found.summary()
    asked = found.settings
    notes = list(one.notes)
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
        code="from tokenloom.evaluate import pz\n\nfound = pz(model, documents, "
        f"prefix={asked['prefix']}, suffix={asked['suffix']}, stride={asked['stride']})\n"
        "found.heat(document)",
        notes=tuple(notes),
    )


def _message(whole: Mapping[str, Any]) -> str:
    if not whole.get("windows"):
        return "No document is long enough for a window."
    return (
        f"{share(float(whole['greedy']))} of {amount(int(whole['windows']), 'window')} come back "
        f"with greedy decoding; the median P(z) is {exact(float(whole['median_pz']))}."
    )


def _chosen(found: Extraction) -> list[int]:
    """The documents with the largest P(z), in order of their numbers."""
    order = np.argsort(found.windows.document, kind="stable")
    numbers, first = np.unique(found.windows.document[order], return_index=True)
    if not len(numbers):
        return []
    values = np.exp(found.windows.log_pz[order])
    largest = np.maximum.reduceat(values, first)
    means = np.add.reduceat(values, first) / np.diff(np.append(first, len(values)))
    best = np.lexsort((numbers, -means, -largest))[:DOCUMENTS]
    chosen: list[int] = sorted(numbers[best].tolist())
    return chosen


def _map(found: Extraction, chosen: Sequence[int]) -> Markup:
    if not chosen:
        return EMPTY
    longest = max(found.lengths[one] for one in chosen)
    piece = -(-longest // COLUMNS)
    grid = np.zeros((len(chosen), -(-longest // piece)))
    for row, document in enumerate(chosen):
        powers = pieces_of(found.heat(document), piece) / math.log(10)
        levels = np.clip(LOWEST + powers, 0.05, LOWEST)  # what is there is never nothing
        grid[row, : len(powers)] = np.where(np.isnan(powers), 0.0, levels)
    names = [f"document {one}" for one in chosen]
    said = f"largest P(z) over the tokens of {plural(len(chosen), 'document')}"
    drawn = both(
        lambda width: heat(
            grid,
            width,
            said,
            x=(0, longest),
            below="token of the document",
            rows=names,
            top=LOWEST,
        )
    )
    return joined(
        [drawn, heat_legend(f"P(z) of {_power(-LOWEST)} and less", "1; empty: no window")]
    )


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
        name = f"{_power(some[0][0])} to {_power(some[-1][1])}"
        rows.append(Bar(name, count, f"{count:,}"))
    said = "windows by P(z)"
    head = tag("h3", "Windows by their P(z)")
    return joined([head, both(lambda width: bars(rows, width, said))])


def _power(exponent: float) -> str:
    """A power of ten.

    >>> _power(0), _power(-12)
    ('1', '10⁻¹²')
    """
    return f"10{f'{exponent:g}'.translate(RAISED)}" if exponent else "1"


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


def _figures(control: Any) -> Mapping[str, Mapping[str, Any]]:
    found = control.get("figures") if isinstance(control, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _beside(one: Evaluated, name: str) -> Figure:
    """A comparison without the windows that were compared."""
    verdicts = sorted({str(each.get("verdict")) for each in _figures(one.control).values()})
    return Figure(
        name=name,
        title=f"{one.name}: beside documents that were held out",
        message=f"Of {plural(len(_figures(one.control)), 'figure')}: {', '.join(verdicts)}.",
        drawing=_control(one.control),
        numbers=tuple(_control_numbers(one.control)),
        code="from tokenloom.evaluate import contrast\n\ncontrast(trained, held)",
    )


def _control(control: Any) -> Markup:
    figures = _figures(control)
    if not figures:
        return EMPTY
    items = (
        tag("li", tag("b", f"{name}: "), f"{exact(one.get('trained'))} trained, ",
            f"{exact(one.get('held_out'))} held out: {one.get('verdict')}")
        for name, one in figures.items()
    )  # fmt: skip
    return joined([tag("h3", "Beside documents that were held out"), tag("ul", *items)])


def _control_numbers(control: Any) -> Iterator[Numbers]:
    rows = [
        (name, one.get("trained"), one.get("held_out"), one.get("ratio"), one.get("verdict"))
        for name, one in _figures(control).items()
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
        notes=(NO_MAP, *one.notes),
    )
