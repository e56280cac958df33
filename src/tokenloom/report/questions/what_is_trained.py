"""What is trained? Tokens, rows and steps, and from how many sources.

One idea: the numbers are those of the run's simulation, which counts whole steps: what is left at
the end of a run and fills no step is not trained.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.page.numbers import amount, plural
from tokenloom.report.reached import is_endless, is_first_epoch, reached
from tokenloom.report.subject import RunSubject
from tokenloom.report.told import Answer, Caution

__all__ = ["answer", "cautions"]


def answer(subject: RunSubject) -> Answer:
    """How many tokens of which sources."""
    found = subject.simulation
    tokens, steps, examples = (
        (found.tokens, found.steps, found.examples) if found is not None else (0, 0, 0)
    )
    sources = len(subject.run.sources)
    numbers = {"tokens": tokens, "examples": examples, "steps": steps, "sources": sources}
    rows = f"{amount(tokens, 'token')} in {plural(examples, 'row')} of {subject.run.seq_len:,}"
    told = f"{rows}, {plural(steps, 'step')}, from {plural(sources, 'source')}."
    if is_endless(subject) and subject.examples:
        numbers |= {"endless": 1, "first_epoch": int(is_first_epoch(subject))}
        told = _endless(subject, rows, sources)
    return Answer(
        name="trained",
        question="What is trained?",
        sentence=told,
        numbers=numbers,
        figure="mixture",
    )


def _endless(subject: RunSubject, rows: str, sources: int) -> str:
    """What the first steps of an endless run train."""
    if not subject.step_count:
        return f"The run is endless, and nothing of it is counted here: {_too_short(subject)}."
    steps = subject.step_count
    verb = "have" if steps > 1 and not is_first_epoch(subject) else "has"
    also = f", {plural(steps, 'step')}" if is_first_epoch(subject) else ""
    return (
        f"The run is endless; its {reached(subject)} {verb} {rows}{also}, "
        f"from {plural(sources, 'source')}."
    )


def _too_short(subject: RunSubject) -> str:
    rows, step = subject.examples, plural(subject.steps.size(0), "row")
    return f"{plural(rows, 'row')} {'is' if rows == 1 else 'are'} less than one step of {step}"


def cautions(subject: RunSubject) -> Iterator[Caution]:
    """A run without a whole step trains nothing."""
    if subject.step_count:
        return
    if subject.examples and is_endless(subject):
        yield Caution(
            words="A report on an endless run looks at about an epoch, and here "
            f"{_too_short(subject)}: what steps show is not counted.",
            remedy="Give the report a smaller batch size.",
            gravity=1,
        )
        return
    if subject.examples:
        yield Caution(
            words=f"The run has {plural(subject.examples, 'row')}, less than one step of "
            f"{plural(subject.steps.size(0), 'row')}.",
            remedy="Use a smaller batch size, or give the run more epochs.",
            gravity=3,
        )
        return
    tokens = sum(one.layout.line.tokens for one in subject.run.run.sources)
    none = plural(tokens, "token") if tokens else "no token"
    yield Caution(
        words=f"The run has no row: its sources select {none}.",
        remedy="Use a shorter seq_len, or take more than 0 rows."
        if tokens
        else "Build the stores again with documents that have text, or select others.",
        gravity=3,
    )
