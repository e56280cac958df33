"""Which source is trained when: shares over the steps, with what changes them, and their errors.

One idea: shares are those of the stretch between two points, not of everything so far, so that a
stage or an edit is a step and not a slow bend. The eight sources with most tokens have a colour,
all others are the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.mixture.run import MixedRun
from tokenloom.mixture.spec import Edit
from tokenloom.page.charts import SERIES, Mark, areas, both, legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined
from tokenloom.page.numbers import amount, plural, share
from tokenloom.report.consumption import Consumption, deviation_of
from tokenloom.report.subject import RunSubject

__all__ = ["changes_of", "mixture_figure", "shares_of"]

Float64 = NDArray[np.float64]

MARKS = 12  # that are drawn

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
    stages = subject.run._stages
    found = []
    for number, edit in enumerate(subject.run.edits):
        what = f"stage {number + 2}" if number < stages else f"edit: {_words(edit)}"
        found.append((edit.at, what))
    return found


def _words(edit: Edit) -> str:
    parts = [f"adds {', '.join(edit.add)}"] if edit.add else []
    parts += [f"removes {', '.join(edit.remove)}"] if edit.remove else []
    parts += [f"appends to {', '.join(edit.append)}"] if edit.append else []
    if edit.quarantine:
        parts.append(f"leaves out {plural(len(edit.quarantine), 'document')}")
    changed = [name for name in edit.weights if name not in edit.add]
    parts += [f"weighs {', '.join(changed)}"] if changed else []
    told = "; ".join(parts) or "nothing"
    return told if len(told) <= 40 else f"{told[:39]}…"


def mixture_figure(subject: RunSubject) -> Figure | None:
    """Shares of the sources over the steps; None for a run of one source."""
    names = subject.run.run.names
    if len(names) < 2:
        return None
    title = "Which source is trained when"
    consumption = subject.consumption
    if len(consumption.points) < 2 or not subject.trained:
        message = "The run has no rows, so no source is trained."
        return Figure(name="mixture", title=title, message=message)
    last = consumption.points[-1].taken
    order = sorted(range(len(names)), key=lambda one: -last[one].tokens)
    if consumption.missing is not None:
        return Figure(
            name="mixture",
            title=title,
            message=_message(subject, order),
            reason=subject.reason_for(consumption.missing),
            numbers=(_totals(subject, order),),
            code=subject.keeping(),
            notes=("Tokens and rows in the table are estimates, as if rows were alike.",),
        )
    return Figure(
        name="mixture",
        title=title,
        message=_message(subject, order),
        drawing=_drawn(subject, order),
        numbers=(_totals(subject, order), _over_time(subject, order)),
        code=subject.python(f"print(run.consumed({subject.trained}))"),
        notes=tuple(_notes(subject, order)),
    )


def _drawn(subject: RunSubject, order: Sequence[int]) -> Markup:
    points = subject.consumption.points
    steps = [subject.step_at(one.examples) for one in points]
    found = shares_of(subject.consumption)
    x, rows = [], []
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
    said = f"shares of {plural(len(shares), 'source')} over the steps"
    chart = both(lambda width: areas(x, shares, width, said, below="step", marks=marks))
    return joined([legend(list(shares)), chart])


def _message(subject: RunSubject, order: Sequence[int]) -> str:
    run, last = subject.run.run, subject.consumption.points[-1].taken
    total = sum(one.tokens for one in last)
    first = last[order[0]]
    about = "about " if subject.consumption.missing is not None else ""
    told = f"{first.name} gives {about}{share(first.tokens, total)} of all tokens"
    repeated = max(
        (one for one in order if run.sources[one].rows),
        key=lambda one: last[one].rows / run.sources[one].rows,
        default=None,
    )
    if repeated is not None:
        times = last[repeated].rows / run.sources[repeated].rows
        told += f"; {run.names[repeated]} is repeated most, {times:,.3g} epochs"
    worst = deviation_of(run, subject.consumption)
    if worst is not None:
        unit = "row" if _cost(subject) == "rows" else "token"
        off = amount(float(f"{abs(worst.amount):.3g}"), unit)
        told += f". Shares are never further than {off} from the weights at the points drawn"
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
    names, points = subject.run.run.names, subject.consumption.points
    top = list(order[:SERIES])
    rest = [REST] if len(order) > SERIES else []
    found = shares_of(subject.consumption)
    rows = []
    for point, values in zip(points[1:], found, strict=True):
        others = [float(values[list(order[SERIES:])].sum())] if rest else []
        rows.append((subject.step_at(point.examples), *values[top].tolist(), *others))
    head = ("up to step", *(names[one] for one in top), *rest)
    return Numbers.of(head, rows, "share of tokens since the line before")


def _notes(subject: RunSubject, order: Sequence[int]) -> list[str]:
    run, found = subject.run.run, []
    if isinstance(run, MixedRun) and run.shuffle is not None:
        found.append("The mix is shuffled as a whole: no source runs out before the end.")
    if run.n is None:
        found.append(f"The run is endless; shown are {amount(subject.trained, 'row')}.")
    changes = changes_of(subject)
    if len(changes) > MARKS:
        found.append(f"{plural(len(changes) - MARKS, 'more change')} not marked.")
    if len(order) > SERIES:
        found.append(f"{plural(len(order) - SERIES, 'source')} drawn as the rest.")
    return found
