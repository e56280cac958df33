"""What is trained, and which source when: shares over the steps, with what changes them.

Shares are those of the stretch between two points, not of everything so far, so that a stage or an
edit is a step and not a slow bend. The eight sources with most tokens have a colour, all others are
the rest. A run of one source has no shares: its figure is in `tokenloom.report.figures.repeats`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.mixture.spec import Edit
from tokenloom.page.axes import Mark
from tokenloom.page.charts import SERIES, areas, both, legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined
from tokenloom.page.numbers import amount, counted, exact, plural, share
from tokenloom.report.figures.repeats import repeats_table, times_figure
from tokenloom.report.report_file import Answer, Caution
from tokenloom.report.subject import Point, RunSubject

Float64 = NDArray[np.float64]

MARKS = 12  # that are drawn

LETTERS = 46  # of the words beside a mark

REST = "the rest"

HEAD = (
    *("source", "share of tokens", "tokens", "rows", "rows of an epoch", "epochs"),
    *("first epoch ends at step", "runs out at step"),
)


def trained_answer(subject: RunSubject) -> Answer:
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


def trained_cautions(subject: RunSubject) -> Iterator[Caution]:
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


def shares_of(consumption: Sequence[Point]) -> Float64:
    """Shares of tokens of each source between the points [points - 1, sources]."""
    tokens = np.array([[one.tokens for one in point.taken] for point in consumption], np.float64)
    gained = np.diff(tokens, axis=0)
    shares: Float64 = gained / np.maximum(1, gained.sum(axis=1))[:, None]
    return shares


def changes_of(subject: RunSubject) -> list[tuple[int, str]]:
    """(example, words) of every stage and edit of a run."""
    return [(at, _short(words)) for at, _, words in _changes(subject)]


def _changes(subject: RunSubject) -> list[tuple[int, str, str]]:
    """(example, all of its words, its words beside a line) of every stage and edit."""
    stages, found = subject.run._stages, []
    for number, edit in enumerate(subject.run.edits):
        words = _words(edit)
        name = f"stage {number + 2}" if number < stages else f"edit: {words}"
        found.append((edit.at, f"stage {number + 2}: {words}" if number < stages else name, name))
    return found


def _words(edit: Edit) -> str:
    parts = [f"adds {', '.join(edit.add)}"] if edit.add else []
    parts += [f"removes {', '.join(edit.remove)}"] if edit.remove else []
    parts += [f"appends to {', '.join(edit.append)}"] if edit.append else []
    if edit.quarantine:
        parts.append(f"leaves out {plural(len(edit.quarantine), 'document')}")
    changed = {name: one for name, one in edit.weights.items() if name not in edit.add}
    told = ", ".join(f"{name} {exact(weight)}" for name, weight in changed.items())
    parts += [f"weights {told}"] if changed else []
    return "; ".join(parts) or "nothing"


def _short(words: str) -> str:
    return words if len(words) <= LETTERS else f"{words[: LETTERS - 1]}…"


def mixture_figure(subject: RunSubject) -> Figure | None:
    """Shares of the sources over the steps; how often rows come, for a run of one source."""
    names = subject.run.run.names
    if len(names) < 2:
        return times_figure(subject)
    title = "Which source is trained when"
    consumption = subject.consumption
    if len(consumption) < 2 or not subject.trained:
        message = "The run has no rows, so no source is trained."
        return Figure(name="mixture", title=title, message=message)
    last = consumption[-1].taken
    order = sorted(range(len(names)), key=lambda one: -last[one].tokens)
    return Figure(
        name="mixture",
        title=title,
        message=_message(subject, order),
        drawing=_drawn(subject, order),
        numbers=(
            _totals(subject, order),
            _over_time(subject, order),
            repeats_table(subject),
            *_all_changes(subject),
        ),
        notes=tuple(_notes(subject, order)),
    )


class SharesOverSteps(NamedTuple):
    """What is drawn: places, shares of each source at them, and what changes them."""

    x: list[float]
    shares: dict[str, list[float]]
    marks: list[Mark]

    def chart(self, width: int) -> Markup:
        """The shares as areas above each other; `width` is in pixels."""
        said = f"shares of {plural(len(self.shares), 'source')} over the steps"
        left = "share of tokens"
        return areas(self.x, self.shares, width, said, below="step", beside=left, marks=self.marks)


def shares_over_steps(subject: RunSubject, order: Sequence[int]) -> SharesOverSteps:
    """Shares between the points of a run, the sources in this order."""
    consumption = _at_steps(subject)
    steps = [subject.step_at(one.examples) for one in consumption]
    found = shares_of(consumption)
    x: list[float] = []
    rows = []
    for number, values in enumerate(found):  # a share holds from point to point
        x += [steps[number], steps[number + 1]]
        rows += [values, values]
    stacked = np.array(rows)
    names = subject.run.run.names
    top = list(order[:SERIES])
    shares = {names[one]: stacked[:, one].tolist() for one in top}
    if len(order) > SERIES:
        shares[REST] = stacked[:, list(order[SERIES:])].sum(axis=1).tolist()
    marks = [Mark(subject.step_at(at), words) for at, words in changes_of(subject)[:MARKS]]
    return SharesOverSteps(x, shares, marks)


def _at_steps(subject: RunSubject) -> list[Point]:
    """What was taken where steps start: between two of them a share has a stretch to hold for."""
    return [one for one in subject.consumption if subject.is_whole(one.examples)]


def _drawn(subject: RunSubject, order: Sequence[int]) -> Markup:
    found = shares_over_steps(subject, order)
    return joined([legend(list(found.shares)), both(found.chart)])


def _message(subject: RunSubject, order: Sequence[int]) -> str:
    last = subject.consumption[-1].taken
    first, total = last[order[0]], sum(one.tokens for one in last)
    return f"{first.name} gives {share(first.tokens, total)} of all tokens."


def _totals(subject: RunSubject, order: Sequence[int]) -> Numbers:
    run, last = subject.run.run, subject.consumption[-1].taken
    total = sum(one.tokens for one in last) or 1
    rows = []
    for number, end in zip(subject.by_tokens, subject.ends, strict=True):
        one, size = last[number], run.sources[number].rows
        steps = (
            None if at is None or at > subject.trained else subject.step_at(at)
            for at in (end.first_epoch, end.runs_out)
        )
        epochs = one.rows / size if size else 0.0
        rows.append((one.name, one.tokens / total, one.tokens, one.rows, size, epochs, *steps))
    more = len(order) - len(rows)
    table = Numbers.of(HEAD, rows, "sources at the end of what the report looks at")
    return Numbers(head=table.head, rows=table.rows, more=more, caption=table.caption)


def _over_time(subject: RunSubject, order: Sequence[int]) -> Numbers:
    names, points = subject.run.run.names, _at_steps(subject)
    top = list(order[:SERIES])
    rest = [REST] if len(order) > SERIES else []
    rows = []
    for point, values in zip(points[1:], shares_of(points), strict=True):
        others = [float(values[list(order[SERIES:])].sum())] if rest else []
        rows.append((subject.step_at(point.examples), *values[top].tolist(), *others))
    head = ("up to step", *(f"share of {one}" for one in [*(names[n] for n in top), *rest]))
    return Numbers.of(head, rows, "share of tokens since the line before")


def _all_changes(subject: RunSubject) -> Iterator[Numbers]:
    rows = [(at, subject.step_at(at), words) for at, words, _ in _changes(subject)]
    if rows:
        yield Numbers.of(("from example", "from step", "what changes"), rows, "stages and edits")


def _notes(subject: RunSubject, order: Sequence[int]) -> list[str]:
    found = []
    if subject.is_shuffled_whole:
        found.append("The mix is shuffled as a whole: no source runs out before the end.")
    changes = changes_of(subject)
    if len(changes) > MARKS:
        found.append(f"{plural(len(changes) - MARKS, 'more change')} not marked.")
    if len(order) > SERIES:
        found.append(f"{plural(len(order) - SERIES, 'source')} not drawn one by one.")
    return found
