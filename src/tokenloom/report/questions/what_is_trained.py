"""What is trained? Tokens, rows and steps, and from how many sources.

One idea: the numbers are those of the run's simulation, which counts whole steps: what is left at
the end of a run and fills no step is not trained.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.page.numbers import amount, counted, plural
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
    if examples and subject.run.run.n is None:
        told += " The run is endless: this report counts its start, and nothing after it."
    return Answer(
        name="trained",
        question="What is trained?",
        sentence=told,
        numbers=numbers,
        figure="mixture",
        headline=counted(tokens, "token"),
    )


def cautions(subject: RunSubject) -> Iterator[Caution]:
    """A run without a whole step trains nothing."""
    if subject.step_count:
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
