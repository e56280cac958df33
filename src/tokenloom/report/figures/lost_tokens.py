"""Where the tokens of the stores go: shown, not reached, in no row, not selected.

One idea: every token of a store ends in exactly one of these, so their shares add up, and what is
lost stands beside what is kept, source by source in the table. Bars are shares of all tokens; what
is said of the run, here and in its answers, are shares of those that it selects. A document that
several sources select counts once for each of them; where nobody counted, the bar says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenloom.page.charts import Bar, bars, both
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.numbers import plural, share
from tokenloom.report.leftovers import Leftovers, SourceLeftovers
from tokenloom.report.questions.what_is_lost import REASONS
from tokenloom.report.subject import RunSubject, capital

__all__ = ["lost_figure"]

HEAD = (
    *("source", "documents", "tokens", "not selected", "in no row", "in rows not reached"),
    *("rows of an epoch", "rows not reached", "documents never shown", "quarantined", "filler"),
)

UNSELECTED = "not selected"

SHOWN = 100  # sources of the table; the largest


def lost_figure(subject: RunSubject) -> Figure | None:
    """Where tokens go; None for a run without any."""
    found = subject.leftovers
    if not found.tokens:
        return None
    stored = found.tokens + found.unselected_tokens
    parts = list(_parts(found))
    of_all = " of all" if found.unselected_tokens else ""
    rows = [
        Bar(name, tokens, f"{share(tokens, stored)}{of_all}", colour)
        for name, tokens, colour in parts
    ]
    return Figure(
        name="lost",
        title="Where the tokens of the stores go",
        message=_message(found, stored),
        drawing=both(lambda width: bars(rows, width, "where tokens go", top=stored)),
        numbers=(
            _by_part(parts, found, stored),
            _by_source(found),
            _by_reason(found),
            _by_cell(found),
        ),
        notes=tuple(_notes(found)),
    )


def _message(found: Leftovers, stored: int) -> str:
    once, uncounted = int(found.total("once")), int(found.total("uncounted"))
    tokens = found.tokens
    told = f"Of {found.selected}, "
    if uncounted:
        told += f"{share(uncounted, tokens)} were not counted, "
    known = "known to be " if uncounted else ""
    told += f"{share(once, tokens)} {_are(once)} {known}shown at least once"
    told += f", {share(found.lost, tokens)} {_are(found.lost)} in no row"
    told += f", and {share(found.filler)} of the cells shown are filler" if found.cells else ""
    left = found.unselected_tokens
    if not left:
        return f"{told}."
    return f"{told}. {capital(share(left, stored))} of the tokens in the stores are not selected."


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _parts(found: Leftovers) -> Iterator[tuple[str, int, str]]:
    """(name, tokens, class) of where tokens go; all of them together are those of the stores."""
    yield "shown at least once", int(found.total("once")), "s1"
    never = int(found.total("unreached"))
    if never:
        yield "in rows that are not reached", never, "s5"
    for name, tokens in sorted(found.reasons.items(), key=lambda one: -one[1]):
        yield REASONS[name].split(",")[0], tokens, "s6"
    uncounted = int(found.total("uncounted"))
    if uncounted:
        yield "not counted", uncounted, "s2"
    if found.unselected_tokens:
        yield UNSELECTED, found.unselected_tokens, "rest"


def _by_part(parts: Sequence[tuple[str, int, str]], found: Leftovers, stored: int) -> Numbers:
    rows = [
        (name, tokens, tokens / stored, None if name == UNSELECTED else tokens / found.tokens)
        for name, tokens, _ in parts
    ]
    head = ("where", "tokens", "share of all", "share of the selected")
    return Numbers.of(head, rows, "where tokens go")


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
        one.lost if one.counted else None,
        one.unreached if one.counted else None,
        one.rows,
        one.never_rows,
        one.never_documents,
        one.blank,
        filler,
    )


def _by_reason(found: Leftovers) -> Numbers:
    whole = found.tokens
    rows = [(REASONS[name], tokens, tokens / whole) for name, tokens in found.reasons.items()]
    if len(rows) != 1:
        rows.append(("all of them", found.lost, found.lost / whole))
    head = ("reason", "tokens in no row", "share of the selected")
    return Numbers.of(head, rows, "why tokens are in no row")


def _by_cell(found: Leftovers) -> Numbers:
    filler = found.filler
    rows = [
        ("a token", found.cells * (1 - filler), 1 - filler),
        ("filler", found.cells * filler, filler),
    ]
    head = ("what a cell holds", "cells", "share")
    return Numbers.of(head, rows if found.cells else [], "cells of the rows shown")


def _notes(found: Leftovers) -> Iterator[str]:
    if found.dropped:
        verb = "makes" if found.dropped == 1 else "make"
        yield (
            f"The last {plural(found.dropped, 'example')} {verb} no whole step and "
            f"{_are(found.dropped)} not counted as shown."
        )
    shared = found.shared_documents
    if shared:
        least = "" if all(one.is_exact for one in found.stores) else "at least "
        yield (
            f"{least}{plural(shared, 'document')} {_are(shared)} selected by several sources, and "
            "counted once for each of them."
        ).capitalize()
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
