"""docs/results.md and its pictures, written from the records alone.

One idea: the page is a function of the JSON files. For each claim it has what was asked, a table
with means and 95 % intervals over seeds, a picture, each ordering with its numbers, and the
command.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from science.plan import Experiment
from science.records import Shelf
from science.registry import EXPERIMENTS
from science.verdicts import Check, Found, Interval, verdict
from tokenloom.store.files import replace_file

__all__ = ["checks_in_words", "table", "write_report"]

HEAD = """\
# Results

What we claim about data, tested by training small models on one CPU: 0.3 million parameters, a few
hundred steps, three seeds or more. Every section has a question, a picture, a verdict, the numbers
and the command. Points are means over seeds and bars their 95 % intervals (Student's t). An
ordering holds if the interval of the differences, paired by seed, excludes zero; it is not shown if
only the means are in that order. Absolute numbers would change with the size of the model; only
orderings are claimed. Limits and factors were fixed before these seeds were run; two sections name
what was not. Real text beside made languages has one seed, and nothing is claimed of it.

`make science` measures all of it in half an hour on two cores, skips what it has in
`science/results/`, and rewrites this page; `python -m science NAME` measures one section, and
`python -m science --quick` two arms of each.
"""


def write_report(shelf: Shelf, docs: Path) -> Path:
    """Write the page and its pictures.

    Args:
        shelf: the results.
        docs: the folder of the documentation.

    Returns:
        The page.
    """
    found = {name: Found(shelf.read(one)) for name, one in EXPERIMENTS.items()}
    parts = [HEAD, "\n".join(_summary(found)) + "\n"]
    (docs / "pictures").mkdir(parents=True, exist_ok=True)
    for name, one in EXPERIMENTS.items():
        if found[name].records:
            picture = docs / "pictures" / f"results-{name.replace('_', '-')}.svg"
            replace_file(picture, one.picture(found[name]).encode())
            parts.append("\n".join(_section(one, found[name], picture.name)) + "\n")
    page = docs / "results.md"
    replace_file(page, "\n".join(parts).encode())
    return page


def _summary(found: dict[str, Found]) -> Iterator[str]:
    yield "| question | verdict | orderings that hold | trainings |"
    yield "|---|---|---:|---:|"
    for name, one in EXPERIMENTS.items():
        checks = [check for check in one.judge(found[name]) if check.holds is not None]
        claims = [check.holds for check in checks if not check.control]
        held = f"{sum(map(bool, claims))} of {len(claims)}" if claims else ""
        count = len(found[name].records)
        title = f"[{one.title}](#{_anchor(one.title)})" if count else one.title
        yield f"| {title} | {verdict(checks)} | {held} | {count or ''} |"


def _anchor(title: str) -> str:
    """What a heading is called in links.

    >>> _anchor("1, 5, 10 and 50 documents")
    '1-5-10-and-50-documents'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _section(one: Experiment, found: Found, picture: str) -> Iterator[str]:
    missing = len(one.trials()) - len(found.records)
    checks = one.judge(found)
    yield f"## {one.title}"
    yield f"\n{one.asks}"
    yield f"\n![{one.title}](pictures/{picture})\n"
    yield f"**Verdict: {verdict(checks)}.** {one.lesson}".rstrip()
    if missing:
        yield f"\n{missing} of {len(one.trials())} trainings have not been measured yet."
    yield ""
    yield "| ordering | holds | numbers |"
    yield "|---|---|---|"
    for check in checks:
        answer = check.answer if check.holds else f"**{check.answer}**"
        yield f"| {check.says} | {answer} | {check.numbers} |"
    yield ""
    yield from table(one, found)
    yield f"\n{one.setting} {one.steps} steps a training."
    yield f"\n`python -m science {one.name}`: {_cost(found)}."


def table(one: Experiment, found: Found) -> Iterator[str]:
    """Means and intervals of every arm that was measured, as Markdown."""
    shown = [name for name in one.columns if any(found.values(arm, name) for arm in found.arms)]
    yield "| arm | seeds | " + " | ".join(one.columns[name] for name in shown) + " |"
    yield "|---|---:|" + "---:|" * len(shown)
    for arm in one.arms:
        if arm.name in found.arms:
            seeds = max(len(found.values(arm.name, name)) for name in shown)
            cells = (_cell(found.interval(arm.name, name)) for name in shown)
            yield f"| {arm.name} | {seeds} | " + " | ".join(cells) + " |"


def checks_in_words(one: Experiment, checks: Sequence[Check]) -> Iterator[str]:
    """A verdict as lines of plain text, without what was not measured."""
    yield f"\n{one.name}: {verdict(checks)}"
    for check in (check for check in checks if check.holds is not None):
        yield f"  {check.answer:<12} {check.says}: {check.numbers}"


def _cell(one: Interval | None) -> str:
    if one is None:
        return ""
    mean = _number(one.mean)
    if math.isnan(one.half) or one.half <= 1e-9 * abs(one.mean):  # equal but for rounding
        return mean
    return f"{mean} ± {_number(one.half)}"


def _number(value: float) -> str:
    """Three digits that matter, without exponents where people count.

    >>> [_number(value) for value in (0.01234, 12.3, 123456.0, 3e-7, 0.0, 70.0, 6.949e7)]
    ['0.0123', '12.3', '123,456', '3e-07', '0', '70', '69.5 M']
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g} M"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _cost(found: Found) -> str:
    seconds = [one["about"]["cpu_seconds"] for one in found.records]
    versions = sorted({one["about"]["torch"] for one in found.records})
    return (
        f"{len(seconds)} trainings of about {sum(seconds) / len(seconds):.0f} CPU-seconds, "
        f"torch {', '.join(versions)}"
    )
