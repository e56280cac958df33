"""Where the tokens of the stores go: shown, not reached, in no row, not selected.

Every token of a store ends in exactly one of these, so their shares add up, and what is lost stands
beside what is kept, source by source in the table. Bars are shares of all tokens; what is said of
the run, here and in its answer, are shares of those that it selects. A document that several
sources select counts once for each of them; where nobody counted, the bar says so. Of many sources,
a warning names the one that loses most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.spec import SpliceSpec
from tokenloom.page.charts import Bar, bars, both
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.numbers import amount, are, plural, share
from tokenloom.report.leftovers import Leftovers, SourceLeftovers
from tokenloom.report.report_file import Answer, Caution
from tokenloom.report.subject import RunSubject, capital

MUCH_LOST = 0.01  # of the tokens of a source

LITTLE_FILL, LITTLE_SPLICED = 0.9, 0.5  # of the cells; a splice leaves most of a frame free

MUCH_CUT = 0.05  # of the documents

MUCH_DROPPED = 0.01  # of the examples

REASONS = {
    "tail": "after the last window",
    "filtered": "in documents that min_len or max_len leaves out",
    "truncated": "cut off the ends of documents",
    "overlong": "in documents longer than a frame, which are dropped",
    "short rows": "in rows shorter than min_row_len",
    "splices": "in no splice",
}

REMEDIES = {
    "tail": "Use windows(…, tail='keep'), or pack(…).",
    "filtered": "Lower min_len, or raise max_len.",
    "truncated": "Use overflow='split', or a longer seq_len.",
    "overlong": "Use overflow='split', or a longer seq_len.",
    "short rows": "Lower min_row_len.",
    "splices": "Lower content_length, content_stride or min_copy_len, or show more epochs.",
}

PACKED_BEST = "best_fit_decreasing"

HEAD = (
    *("source", "documents", "tokens", "not selected", "in no row", "in rows not reached"),
    *("rows of an epoch", "rows not reached", "documents never shown", "quarantined", "filler"),
)

UNSELECTED = "not selected"


def _remedy(reason: str, one: SourceLeftovers) -> str:
    """What to do about tokens in no row, of what this source does not do already."""
    spec = one.layout
    if reason == "truncated" and isinstance(spec, PackSpec) and spec.max_doc_tokens is not None:
        cut = "Use overflow='split' and" if spec.overflow == "truncate" else "Use"
        return f"{cut} a larger max_doc_tokens."
    if reason == "splices" and isinstance(spec, SpliceSpec) and not spec.include_tail:
        return f"Set include_tail=True, or {REMEDIES[reason][:1].lower()}{REMEDIES[reason][1:]}"
    return REMEDIES[reason]


def _filling(one: SourceLeftovers) -> str:
    """What to do about filler, of what this source does not do already."""
    spec = one.layout
    if isinstance(spec, PackSpec) and spec.strategy != PACKED_BEST:
        return f"Use strategy='{PACKED_BEST}', or a shorter seq_len."
    if isinstance(spec, SpliceSpec):
        longer = "a larger content_length"
        return f"Use {longer}." if spec.fill == "pack" else f"Use fill='pack', or {longer}."
    return "Use a shorter seq_len, or give the source more documents."


def lost_answer(subject: RunSubject) -> Answer:
    """What is left out, the largest part first."""
    found = subject.leftovers
    tokens = found.tokens
    names = ("never_rows", "once", "uncounted")
    numbers: dict[str, float] = {name: found.total(name) for name in names}
    numbers |= {"never_tokens": found.total("unreached")}
    numbers |= {"unselected_documents": found.unselected_documents}
    numbers |= {"unselected_tokens": found.unselected_tokens}
    numbers |= {"tokens": tokens, "lost": found.lost, "filler": found.filler}
    numbers |= {"never_documents": found.total("never_documents"), "dropped": found.dropped}
    numbers |= {"blank_documents": found.total("blank"), "examples": found.examples}
    numbers |= {f"lost_{name.replace(' ', '_')}": one for name, one in found.reasons.items()}
    return Answer(
        name="lost",
        question="What is lost?",
        sentence=". ".join(_clauses(found)) + ".",
        numbers=numbers,
        figure="lost" if tokens else "",
        headline=_headline(found),
    )


def _headline(found: Leftovers) -> tuple[str, str] | None:
    if not found.tokens:
        return None
    if not found.counted:
        return share(found.filler), "of the cells are filler"
    which = "selected tokens" if found.unselected_tokens else "tokens"
    return share(found.lost, found.tokens), f"of the {which} are in no row"


def _clauses(found: Leftovers) -> Iterator[str]:
    if not found.tokens:
        yield "The run selects no token, so there is none to lose"
        return
    yield from _in_no_row(found)
    never, rows = int(found.total("never_rows")), int(found.total("rows"))
    alone = never == found.dropped and len(found.sources) == 1
    if never and not alone:
        missing = f"{plural(never, 'row')} ({share(never, rows)} of an epoch)"
        yield f"{missing} {are(never)} not shown"
    if found.examples:
        yield capital(f"{share(found.filler)} of the cells are filler")
        if found.dropped:
            verb = "makes" if found.dropped == 1 else "make"
            last = "row" if found.dropped == 1 else plural(found.dropped, "row")
            yield f"The last {last} of the run {verb} no whole step"
    elif found.dropped:
        yield f"No whole step can be made of {plural(found.dropped, 'row')}"
    blank, left = int(found.total("blank")), found.unselected_documents
    if blank:
        yield f"{plural(blank, 'document')} {are(blank)} quarantined"
    if left:
        yield f"The selection leaves out {amount(left, 'document')}"


def _in_no_row(found: Leftovers) -> Iterator[str]:
    tokens = found.tokens
    if found.lost:
        reasons = sorted(found.reasons.items(), key=lambda one: -one[1])
        told = " and ".join(f"{amount(many)} {REASONS[name]}" for name, many in reasons[:2])
        more = f", and {plural(len(reasons) - 2, 'other reason')}" if len(reasons) > 2 else ""
        part = share(found.lost, tokens)
        yield capital(f"{part} of {found.selected} {are(found.lost)} in no row: {told}{more}")
    if not found.counted:
        left = share(found.total("uncounted"), tokens)
        yield f"Of {found.selected}, {left} were not counted: it takes long for splices"
    elif not found.lost:
        yield f"Every one of {found.selected} is in a row"


def lost_cautions(subject: RunSubject) -> Iterator[Caution]:
    """Losses that are larger than anybody would expect, each with what to do."""
    found = subject.leftovers
    yield from _lost(found.sources)
    yield from _unreached(found)
    yield from _unfilled(found)
    yield from _cut(found.sources)
    examples = found.examples + found.dropped
    if found.examples and found.dropped > MUCH_DROPPED * examples:
        verbs = "makes no whole step and is" if found.dropped == 1 else "make no whole step and are"
        last = "" if found.dropped == 1 else f" {found.dropped:,}"
        yield Caution(
            words=f"The last{last} of {plural(examples, 'row')} "
            f"({share(found.dropped, examples)}) {verbs} dropped.",
            remedy="Use end='pad', or another batch size.",
            figure="lost",
            gravity=1,
        )


def _lost(sources: Sequence[SourceLeftovers]) -> Iterator[Caution]:
    """Tokens in no row: one warning for each reason."""
    for reason in REMEDIES:

        def part(one: SourceLeftovers, reason: str = reason) -> float:
            return one.reasons.get(reason, 0) / one.tokens if one.tokens else 0.0

        worst, others = _worst(sources, part, MUCH_LOST)
        if worst is not None:
            lost = worst.reasons[reason]
            yield Caution(
                words=f"{_named(worst, sources)}{amount(lost, 'token')} ({share(part(worst))}) "
                f"{are(lost)} in no row, {REASONS[reason]}{others}.",
                remedy=_remedy(reason, worst),
                figure="lost",
            )


def _unreached(found: Leftovers) -> Iterator[Caution]:
    """Sources that no step shows, although others are."""
    unseen = [one.name for one in found.sources if one.tokens and not one.shown]
    if unseen and found.examples:
        more = f" and {plural(len(unseen) - 3, 'other source')}" if len(unseen) > 3 else ""
        yield Caution(
            words=f"No step shows {', '.join(unseen[:3])}{more}.",
            remedy="Give them more weight or rows, or take them out of the mix.",
            figure="lost",
            gravity=3,
        )


def _unfilled(found: Leftovers) -> Iterator[Caution]:
    def missing(one: SourceLeftovers) -> float:
        cells = one.shown * found.seq_len
        fill = (one.shown_tokens + one.inserted) / cells if cells else 1.0
        least = LITTLE_SPLICED if isinstance(one.layout, SpliceSpec) else LITTLE_FILL
        return 1 - fill if fill < least else 0.0

    worst, others = _worst(found.sources, missing, 0.0)
    if worst is not None:
        yield Caution(
            words=f"{_named(worst, found.sources)}{share(missing(worst))} of the cells are "
            f"filler{others}.",
            remedy=_filling(worst),
            figure="rows" if isinstance(worst.layout, SpliceSpec) else "packing",
            gravity=1,
        )


def _cut(sources: Sequence[SourceLeftovers]) -> Iterator[Caution]:
    def needless(one: SourceLeftovers) -> float:
        return one.cut_needlessly / one.documents if one.documents else 0.0

    worst, others = _worst(sources, needless, MUCH_CUT)
    if worst is not None:
        yield Caution(
            words=f"{_named(worst, sources)}{amount(worst.cut_needlessly, 'document')} "
            f"({share(needless(worst))}) would fit into a frame, but "
            f"{are(worst.cut_needlessly)} cut{others}.",
            remedy=f"Use strategy='{PACKED_BEST}', which cuts only longer ones.",
            figure="packing",
        )


def _worst(
    sources: Sequence[SourceLeftovers], part: Callable[[SourceLeftovers], float], least: float
) -> tuple[SourceLeftovers | None, str]:
    """The source with the largest share above `least`, and how many others have such a share."""
    found = [one for one in sources if part(one) > least]
    worst = max(found, key=part, default=None)
    others = len(found) - 1
    return worst, f" (and in {plural(others, 'other source')})" if others > 0 else ""


def _named(one: SourceLeftovers, sources: Sequence[SourceLeftovers]) -> str:
    return f"{one.name}: " if len(sources) > 1 else ""


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
        message=lost_answer(subject).sentence,
        drawing=both(lambda width: bars(rows, width, "where tokens go", top=stored)),
        numbers=(
            _by_part(parts, found, stored),
            _by_source(found),
        ),
        notes=tuple(_notes(found)),
    )


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
    largest_first = sorted(found.sources, key=lambda one: -one.tokens)
    rows = [_row(one, found.seq_len) for one in largest_first]
    return Numbers.of(HEAD, rows, "tokens by source, the largest first")


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


def _notes(found: Leftovers) -> Iterator[str]:
    if found.dropped:
        verb = "makes" if found.dropped == 1 else "make"
        yield (
            f"The last {plural(found.dropped, 'example')} {verb} no whole step and "
            f"{are(found.dropped)} not counted as shown."
        )
    shared = sum(one.shared for one in found.stores)
    if shared:
        least = "" if all(one.is_exact for one in found.stores) else "at least "
        yield (
            f"{least}{plural(shared, 'document')} {are(shared)} selected by several sources, and "
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
