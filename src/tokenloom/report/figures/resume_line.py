"""The run as a line from its first to its last example, and where a state stands on it.

A position is one integer. What was trained is everything to its left, and what remains is
everything to its right, whatever the ranks, the batch size or the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenloom.page.axes import Mark, Scale, axis_below, drawing, placed, rule
from tokenloom.page.charts import both, legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, plural, share
from tokenloom.report.figures.mixture import changes_of
from tokenloom.report.subject import RunSubject

WORDS = 9  # changes that are marked

ANYWHERE = (
    "A state is loaded by any number of ranks, and with any batch size that starts a step there; "
    "the fingerprint says whether it belongs to this run."
)

HEAD = ("source", "rows trained", "tokens trained", "epochs complete", "rows of an epoch")


def resume_figure(subject: RunSubject) -> Figure | None:
    """The line of a run with the position on it; None if none was given."""
    position = subject.asked.examples
    if position is None:
        return None
    return Figure(
        name="resume",
        title="Where the run stands",
        message=_message(subject, position),
        drawing=_drawn(subject, position),
        numbers=_tables(subject, position),
        notes=(ANYWHERE,),
    )


def _message(subject: RunSubject, position: int) -> str:
    n = subject.run.run.n
    step = subject.steps.count(position, partial=False)
    told = f"{amount(position, 'row')} are trained, {plural(step, 'step')}"
    if n is None:
        return f"{told}; the run is endless."
    if position >= n:
        return f"{told}: all of the run."
    left = max(0, subject.steps.count(n, partial=False) - step)
    rest = f"{amount(n - position, 'row')} and {plural(left, 'step')} remain"
    return f"{told}: {share(position, n)} of the run; {rest}."


def _drawn(subject: RunSubject, position: int) -> Markup:
    end = max(1, subject.examples, position)
    marks = [Mark(at, what) for at, what in changes_of(subject) if at <= end][:WORDS]
    drawn = both(lambda width: _line(position, width, end, marks))
    return joined([legend(["trained", "not trained"], classes=["s1", "filler"]), drawn])


def _line(position: int, width: int, end: int, marks: Sequence[Mark]) -> Markup:
    """A bar from the first to the last example: trained, not trained, and changes."""
    across = Scale(0, end, 12, width - 12, whole=True)
    marked = placed(marks, across)
    low = 8 + marked.above
    high = low + 34
    place = {"y": f"{low:g}", "height": 34}
    parts = [tag("rect", x=12, width=width - 24, **place, class_="filler")]
    if position:
        reach = f"{across(position) - 12:g}"
        words = tag("title", f"{position:,} of {end:,} examples are trained")
        parts.append(tag("rect", words, x=12, width=reach, **place, class_="s1"))
    parts.append(rule(f"M{across(position):g} {low - 5:g}V{high + 5:g}", "stand"))
    parts += axis_below(across, high + 8, "examples")
    parts += marked.drawn(across, low, high, high + 54)
    said = f"{position:,} of {end:,} examples"
    return drawing(width, high + 54 + marked.below, said, parts)


def _tables(subject: RunSubject, position: int) -> tuple[Numbers, ...]:
    run, step = subject.run, subject.steps.count(position, partial=False)
    told = (
        ("examples", position),
        ("step", step),
        ("fingerprint", run.fingerprint),
        ("render", run.render_fingerprint),
        ("wrapped", 0),
    )
    state = Numbers.of(("key", "value"), told, "what decides where a run goes on")
    taken = subject.run.run.consumed(position)
    sizes = {one.name: one.rows for one in subject.run.run.sources}
    rows = [(one.name, one.rows, one.tokens, one.epochs, sizes[one.name]) for one in taken]
    rows.sort(key=lambda row: -int(row[2]))
    return state, Numbers.of(HEAD, rows, "what was taken from each source")
