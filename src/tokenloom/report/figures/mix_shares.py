"""Which source is trained when: shares over the steps, with what changes them, and their errors.

One idea: shares are those of the stretch between two points, not of everything so far, so that a
stage or an edit is a step and not a slow bend. The eight sources with most tokens have a colour,
all others are the rest. A run of one source has no shares: its figure is in
`tokenloom.report.figures.times_shown`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.mixture.run import MixedRun
from tokenloom.mixture.spec import Edit
from tokenloom.page.charts import SERIES, Mark, areas, both, legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined
from tokenloom.page.numbers import amount, bound, exact, plural, share
from tokenloom.report.consumption import Consumption, deviation_of, deviations_of
from tokenloom.report.figures.times_shown import repeats_table, times_figure
from tokenloom.report.subject import RunSubject

__all__ = ["changes_of", "mixture_figure", "shares_of", "shares_over_steps"]

Float64 = NDArray[np.float64]

MARKS = 12  # that are drawn

LETTERS = 46  # of the words beside a mark

REST = "the rest"

HEAD = (
    *("source", "share of tokens", "tokens", "rows", "rows of an epoch", "epochs"),
    *("first epoch ends at step", "runs out at step"),
)


def shares_of(consumption: Consumption) -> Float64:
    """Shares of tokens of each source between the points [points - 1, sources]."""
    tokens = np.array(
        [[one.tokens for one in point.taken] for point in consumption.points], np.float64
    )
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
    if len(consumption.points) < 2 or not subject.trained:
        message = "The run has no rows, so no source is trained."
        return Figure(name="mixture", title=title, message=message)
    last = consumption.points[-1].taken
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
            *_errors(subject, order),
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
    steps = [subject.step_at(one.examples) for one in consumption.points]
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


def _at_steps(subject: RunSubject) -> Consumption:
    """What was taken where steps start: between two of them a share has a stretch to hold for."""
    whole = subject.consumption
    points = [one for one in whole.points if subject.is_whole(one.examples)]
    return Consumption(tuple(points))


def _drawn(subject: RunSubject, order: Sequence[int]) -> Markup:
    found = shares_over_steps(subject, order)
    return joined([legend(list(found.shares)), both(found.chart)])


def _message(subject: RunSubject, order: Sequence[int]) -> str:
    run, last = subject.run.run, subject.consumption.points[-1].taken
    total = sum(one.tokens for one in last)
    first = last[order[0]]
    told = f"{first.name} gives {share(first.tokens, total)} of all tokens"
    repeated = max(
        (one for one in order if run.sources[one].rows),
        key=lambda one: last[one].rows / run.sources[one].rows,
        default=None,
    )
    if repeated is not None:
        times = last[repeated].rows / run.sources[repeated].rows
        most = "is repeated most" if times > 1 else "gets furthest"
        told += f"; {run.names[repeated]} {most}, {amount(times, 'epoch')}"
    worst = deviation_of(run, subject.consumption)
    if worst is not None:
        unit = "row" if _cost(subject) == "rows" else "token"
        off = bound(abs(worst.amount), unit)
        told += f". At the points looked at, shares are never further than {off} from the weights"
        told += f" ({worst.source} at example {worst.examples:,})" if worst.amount else ""
    return f"{told}."


def _cost(subject: RunSubject) -> str:
    return "rows" if subject.run.rule is None else subject.run.rule.cost


def _totals(subject: RunSubject, order: Sequence[int]) -> Numbers:
    run, last = subject.run.run, subject.consumption.points[-1].taken
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
    names, consumption = subject.run.run.names, _at_steps(subject)
    points, found = consumption.points, shares_of(consumption)
    top = list(order[:SERIES])
    rest = [REST] if len(order) > SERIES else []
    rows = []
    for point, values in zip(points[1:], found, strict=True):
        others = [float(values[list(order[SERIES:])].sum())] if rest else []
        rows.append((subject.step_at(point.examples), *values[top].tolist(), *others))
    head = ("up to step", *(f"share of {one}" for one in [*(names[n] for n in top), *rest]))
    return Numbers.of(head, rows, "share of tokens since the line before")


def _errors(subject: RunSubject, order: Sequence[int]) -> Iterator[Numbers]:
    """How far each source is from its weight, at worst; none where weights do not hold."""
    run = subject.run.run
    found = deviations_of(run, subject.consumption)
    if not found or not isinstance(run, MixedRun):
        return
    weights = {clock.name: clock.weight for clock in run.stages[-1].merge.clocks}
    whole = sum(weights[one] for one in found if one in weights)
    unit = _cost(subject)
    rows = []
    for name in (run.names[number] for number in order):
        if name in found:
            one, weight = found[name], weights.get(name, 0.0)
            step = subject.step_at(one.examples)
            rows.append((name, weight, weight / whole, one.amount, one.examples, step))
    head = (
        *("source", "weight at the end", "share of the weights", f"largest error, {unit}"),
        *("at example", "at step"),
    )
    yield Numbers.of(head, rows, "error against the weights at the points looked at")


def _all_changes(subject: RunSubject) -> Iterator[Numbers]:
    rows = [(at, subject.step_at(at), words) for at, words, _ in _changes(subject)]
    if rows:
        yield Numbers.of(("from example", "from step", "what changes"), rows, "stages and edits")


def _notes(subject: RunSubject, order: Sequence[int]) -> list[str]:
    run, found = subject.run.run, []
    if isinstance(run, MixedRun) and run.shuffle is not None:
        found.append("The mix is shuffled as a whole: no source runs out before the end.")
    changes = changes_of(subject)
    if len(changes) > MARKS:
        found.append(f"{plural(len(changes) - MARKS, 'more change')} not marked.")
    if len(order) > SERIES:
        found.append(f"{plural(len(order) - SERIES, 'source')} not drawn one by one.")
    return found
