"""How far a report counts, in words: all of a run that ends, the start of one that does not.

One idea: an endless run has no totals, so every number of its report belongs to a stretch at its
start (`RunSubject.examples`, in whole steps), and every sentence with such a number names it. What
is said about a run that ends stays as it is.
"""

from __future__ import annotations

from tokenloom.page.numbers import amount, plural
from tokenloom.report.subject import RunSubject

__all__ = [
    "GOES_ON",
    "has_steps",
    "is_endless",
    "is_first_epoch",
    "reached",
    "reached_note",
    "within",
]

GOES_ON = "The run is endless: more epochs follow"


def is_endless(subject: RunSubject) -> bool:
    """Whether the run never ends, so that only its start is counted."""
    return subject.run.run.n is None


def has_steps(subject: RunSubject) -> bool:
    """Whether what steps show can be told: not of an endless run whose first step goes too far."""
    return not is_endless(subject) or subject.step_count > 0


def is_first_epoch(subject: RunSubject) -> bool:
    """Whether what is counted of an endless run is the first epoch of its source, to the row."""
    sources = subject.run.run.sources
    is_whole = len(sources) == 1 and subject.trained == sources[0].rows
    return is_endless(subject) and subject.step_count > 0 and is_whole


def reached(subject: RunSubject) -> str:
    """What is counted of an endless run: "first epoch", or "first 50 steps".

    Where a step has more rows than that, only rows are counted: "first 400 rows".
    """
    if is_first_epoch(subject):
        return "first epoch"
    count = subject.step_count
    if not count:
        return f"first {amount(subject.trained, 'row')}"
    return "first step" if count == 1 else f"first {plural(count, 'step')}"


def within(subject: RunSubject) -> str:
    """Words for the end of a sentence about an endless run; none for one that ends."""
    return f" in the {reached(subject)}" if is_endless(subject) else ""


def reached_note(subject: RunSubject) -> str:
    """Why a report on an endless run counts that far."""
    verb = "is" if is_first_epoch(subject) or subject.step_count == 1 else "are"
    rows = amount(subject.trained, "row")
    also = f", {rows}" if subject.step_count else ""
    counted = f"The run is endless; counted {verb} the {reached(subject)}{also}"
    if is_first_epoch(subject):
        return f"{counted}."
    sources = subject.run.run.sources
    if len(sources) == 1:
        return f"{counted} of the {amount(sources[0].rows)} of an epoch."
    each = f"{amount(subject.largest[0].rows, 'row')} for each of {len(sources):,} sources"
    return f"{counted}: about {each}, as many as an epoch of the largest has."
