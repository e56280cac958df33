"""The run as a line from its first to its last example, and where a state stands on it.

One idea: a position is one integer. What was trained is everything to its left, and what remains is
everything to its right, whatever the ranks, the batch size or the machine.
"""

from __future__ import annotations

import json
from typing import Any

from tokenloom.errors import NotKept
from tokenloom.layout.allowance import at_most
from tokenloom.page.axes import Scale, axis_below, drawing, label, rule
from tokenloom.page.charts import NARROW, both
from tokenloom.page.figure import MOST_ROWS, Figure, Numbers
from tokenloom.page.markup import Markup, tag
from tokenloom.page.numbers import amount, plural, share
from tokenloom.report.consumption import taken_at
from tokenloom.report.figures.mix_shares import changes_of
from tokenloom.report.subject import RunSubject

__all__ = ["deciding_part", "resume_figure"]

EDGES = 64  # epochs whose ends are drawn

WORDS = 6  # changes that are named beside their line

ANYWHERE = (
    "A state is loaded by any number of ranks, and with any batch size that starts a step there; "
    "the fingerprint says whether it belongs to this run."
)

HEAD = ("source", "rows trained", "tokens trained", "epochs complete", "rows of an epoch")


def deciding_part(subject: RunSubject, examples: int) -> tuple[dict[str, Any], NotKept | None]:
    """What of a state decides where a run goes on; and sums that are missing to sign it."""
    run, missing = subject.run, None
    try:
        with at_most():
            arrays = run.run.arrays_digest(examples) or ""
    except NotKept as refused:
        missing, arrays = refused, ""
    step = subject.steps.count(examples, partial=False)
    decides: dict[str, Any] = {"examples": examples, "step": step, "fingerprint": run.fingerprint}
    decides |= {"render": run.render_fingerprint, "wrapped": 0, "arrays": arrays}
    return decides, missing


def resume_figure(subject: RunSubject) -> Figure:
    """The line of a run, with the position if there is one."""
    position = subject.position
    decides, missing = deciding_part(subject, position or 0)
    size = len(json.dumps(decides))
    notes = [ANYWHERE]
    if missing is not None:
        notes.append(
            f"The digest of the sums is left out here: {missing.what} ({missing.rows:,} rows) are "
            "not kept."
        )
    return Figure(
        name="resume",
        title="Where the run stands",
        message=_message(subject, size),
        drawing=both(lambda width: _line(subject, width)),
        numbers=_tables(subject, decides),
        code=subject.python(
            f"state = run.state({position or 0})\n"
            "loader = tl.Loader(run, batch_size=…)\n"
            "loader.load_state_dict(state)"
        ),
        notes=tuple(notes),
    )


def _message(subject: RunSubject, size: int) -> str:
    position, n = subject.position, subject.run.run.n
    if position is None:
        return (
            "No position was given. A state is one number, the examples trained, and a "
            f"fingerprint: {size:,} bytes of JSON decide where any run goes on."
        )
    step = subject.steps.count(position, partial=False)
    told = f"{amount(position, 'row')} are trained, {plural(step, 'step')}"
    if n is None:
        return f"{told}; the run is endless."
    if position >= n:
        return f"{told}: all of the run."
    left = max(0, subject.steps.count(n, partial=False) - step)
    rest = f"{amount(n - position, 'row')} and {plural(left, 'step')} remain"
    return f"{told}: {share(position, n)} of the run; {rest}."


def _line(subject: RunSubject, width: int) -> Markup:
    """A bar from the first to the last example: trained, not trained, epochs and changes."""
    end, position = max(1, subject.examples), subject.position
    changes = [one for one in changes_of(subject) if one[0] <= end][:WORDS]
    top = 20 + 17 * len(changes)
    low, high = top, top + 34
    end = max(end, position or 0)
    across = Scale(0, end, 12, width - 12)
    place = {"y": low, "height": high - low}
    parts = [tag("rect", x=12, width=width - 24, **place, class_="filler")]
    if position:
        reach = f"{across(position) - 12:g}"
        words = tag("title", f"{position:,} of {end:,} examples are trained")
        parts.append(tag("rect", words, x=12, width=reach, **place, class_="s1"))
    ends = _epoch_ends(subject, end)
    parts += [rule(f"M{across(at):g} {low}V{high}", "grid") for at in ends]
    for number, (at, what) in enumerate(changes):
        x, y = across(at), 14 + 17 * number
        parts.append(rule(f"M{x:g} {y + 4}V{high}", "mark"))
        anchor = "end" if x > width / 2 else "start"
        most = 30 if width <= NARROW else 60
        parts.append(label(x + (-4 if anchor == "end" else 4), y, what[:most], anchor=anchor))
    if position is not None:
        x = across(position)
        parts.append(rule(f"M{x:g} {low - 6}V{high + 6}", "stand"))
    parts += axis_below(across, high + 8, "examples")
    said = "the line of the run" if position is None else f"{position:,} of {end:,} examples"
    return drawing(width, high + 54, said, parts)


def _epoch_ends(subject: RunSubject, end: int) -> list[int]:
    """Where the epochs of a run of one source end; few of them, or none."""
    run = subject.run.run
    if run.sources[0] is not run or not run.sources[0].rows:
        return []
    source = run.sources[0]
    found: list[int] = []
    for epoch in range(1, EDGES + 2):
        at = source.end_of(epoch)
        if at >= end:
            return found
        found.append(at)
    return []


def _tables(subject: RunSubject, decides: dict[str, Any]) -> tuple[Numbers, ...]:
    state = Numbers.of(("key", "value"), decides.items(), "what decides where a run goes on")
    if subject.position is None:
        return (state,)
    with at_most():
        taken, missing = taken_at(subject.run.run, subject.position)
    sizes = {one.name: one.rows for one in subject.run.run.sources}
    rows = [(one.name, one.rows, one.tokens, one.epochs, sizes[one.name]) for one in taken]
    rows.sort(key=lambda row: -int(row[2]))
    caption = "what was taken from each source" + (", about" if missing is not None else "")
    head, more = HEAD, max(0, len(rows) - MOST_ROWS)
    table = Numbers(head=head, rows=tuple(rows[:MOST_ROWS]), more=more, caption=caption)
    return state, table
