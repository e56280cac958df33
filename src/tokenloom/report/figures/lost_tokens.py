"""Where the tokens of the stores go: shown, not reached, in no row, not selected.

One idea: every token of a store ends in exactly one of these, so their shares add up, and what is
lost stands beside what is kept, source by source in the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenloom.page.charts import Bar, bars, both
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.numbers import amount, plural, share
from tokenloom.report.leftovers import Leftovers, SourceLeftovers
from tokenloom.report.questions.what_is_lost import REASONS
from tokenloom.report.subject import RunSubject

__all__ = ["lost_figure"]

HEAD = (
    *("source", "documents", "tokens", "not selected", "in no row", "in rows not reached"),
    *("rows of an epoch", "rows not reached", "documents never shown", "quarantined", "filler"),
)

SHOWN = 100  # sources of the table; the largest


def lost_figure(subject: RunSubject) -> Figure | None:
    """Where tokens go; None for a run without any."""
    found = subject.leftovers
    kept = int(found.total("tokens"))
    if not kept:
        return None
    stored = kept + int(found.total("unselected_tokens"))
    parts = list(_parts(found, kept))
    rows = [Bar(name, tokens, share(tokens, stored), colour) for name, tokens, colour in parts]
    reached = parts[0][1]
    return Figure(
        name="lost",
        title="Where the tokens of the stores go",
        message=f"Of {amount(stored, 'token')}, {share(reached, stored)} are shown at least once, "
        f"{share(found.lost, stored)} are in no row, and {share(found.filler)} of the cells shown "
        "are filler.",
        drawing=both(lambda width: bars(rows, width, "where tokens go", top=stored)),
        numbers=(_by_source(found), _by_reason(found)),
        code=subject.python(
            f"print(run.simulate({subject.step_count}, batch_size={subject.batch_size!r}))"
        )
        if found.examples
        else "",
        notes=tuple(_notes(found)),
    )


def _parts(found: Leftovers, kept: int) -> Iterator[tuple[str, int, str]]:
    """(name, tokens, class) of where tokens go; all of them together are those of the stores."""
    never = int(found.total("never_tokens"))
    yield "shown at least once", max(0, kept - found.lost - never), "s1"
    if never:
        yield "in rows that are not reached", never, "s5"
    for name, tokens in sorted(found.reasons.items(), key=lambda one: -one[1]):
        yield REASONS[name].split(",")[0], tokens, "s6"
    left = int(found.total("unselected_tokens"))
    if left:
        yield "not selected", left, "rest"


def _by_source(found: Leftovers) -> Numbers:
    largest = sorted(found.sources, key=lambda one: -one.tokens)
    rows = [_row(one, found.seq_len) for one in largest[:SHOWN]]
    more = max(0, len(largest) - SHOWN)
    about = f"tokens by source, the largest {SHOWN} of {len(largest):,}" if more else "by source"
    return Numbers.of(HEAD, rows, about)


def _row(one: SourceLeftovers, seq_len: int) -> tuple[object, ...]:
    cells = one.shown * seq_len
    filler = max(0.0, 1 - (one.shown_tokens + one.inserted) / cells) if cells else None
    return (
        one.name,
        one.documents,
        one.tokens,
        one.unselected_tokens,
        one.lost,
        one.never_tokens,
        one.rows,
        one.never_rows,
        one.never_documents,
        one.blank,
        filler,
    )


def _by_reason(found: Leftovers) -> Numbers:
    rows = [(REASONS[name], tokens) for name, tokens in found.reasons.items()]
    return Numbers.of(("reason", "tokens in no row"), rows, "why tokens are in no row")


def _notes(found: Leftovers) -> Iterator[str]:
    if found.dropped:
        yield (
            f"The last {plural(found.dropped, 'example')} make no whole step and are not counted "
            "as shown."
        )
    if not found.visited:
        yield (
            "Documents never shown are those that no row holds; those of rows that are not reached "
            "are not counted in a run of this size."
        )
    blank = int(found.total("blank"))
    if blank:
        yield (
            f"Cells of {plural(blank, 'quarantined document')} are filler from their edit on, and "
            "count as shown here: rows and their order stay the same."
        )
    notes = [note for one in found.sources for note in one.notes]
    yield from notes[:3]
    if len(notes) > 3:
        yield f"The same holds for {plural(len(notes) - 3, 'other source')}."
