"""How often rows and documents come: epochs, repeats, how far apart they are, and equal documents.

Rows come again with the epochs of their source, documents with their rows. Both are counted by the
simulation; a run of one source has them as its figure, a mix as a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tokenloom.errors import TokenloomError
from tokenloom.inspect.simulate.result import SourceRepeats
from tokenloom.page.charts import Bar, bars, both
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.numbers import amount, are, counted, plural, share
from tokenloom.report.leftovers import StoreUse
from tokenloom.report.report_file import Answer, Caution
from tokenloom.report.subject import RunSubject, capital
from tokenloom.store.hashes import hash_blocks

MANY_EPOCHS = 4  # after which repeated data is worth much less than new data

HASHED = 1 << 18  # documents; the hashes of more take too long for a page

COPIES = 0.01  # of all documents; more are worth a warning

TOLD = 3  # warnings of one kind

_NO_HASH = np.empty((0, 2), np.uint64)

HEAD = (
    *("source", "tokens", "rows", "rows of an epoch", "epochs", "least times of a row"),
    *("most times of a row", "documents followed", "rows of a document"),
    *("steps to its next row: least", "median", "mean", "most"),
)


def repeated_answer(subject: RunSubject) -> Answer:
    """How often the rows of the source that is repeated most come."""
    found = subject.simulation
    repeats = [one for one in (found.repeats if found is not None else ()) if one.rows]
    if not repeats:
        return _told("Nothing is shown, so nothing is repeated.", {"most": 0, "least": 0})
    rows = {one.name: one.rows for one in (found.sources if found is not None else ())}
    worst = max(repeats, key=lambda one: (rows[one.name] / one.rows, one.most))
    epochs = rows[worst.name] / worst.rows
    numbers = {"most": worst.most, "least": worst.least, "epochs": epochs}
    numbers |= {"shown": worst.shown, "sources": len(repeats)}
    number, unit = counted(epochs, "epoch")
    if len(repeats) > 1:
        most = "is repeated most" if worst.most > 1 else "gets furthest"
        unit = f"{unit} of the source that {most}"
    times, often = _times_in_words(worst), amount(epochs, "epoch")
    if len(repeats) == 1:
        told = f"{capital(times)}, {often}"
    elif all(one.most <= 1 for one in repeats):
        told = f"No row comes twice; {worst.name} gets furthest, {often}"
    else:
        told = f"{worst.name} is repeated most: {times}, {often}"
    if worst.gaps is not None:
        numbers["median_gap"] = worst.gaps[1]
        told += f"; {_gap(worst.gaps[1])}"
    return _told(f"{told}.", numbers, (number, unit))


def _gap(steps: float) -> str:
    """How far apart rows of one document are, in the median."""
    if not steps:
        return "the next row of a document comes in the same step (median)"
    return f"the next row of a document comes {amount(steps, 'step')} later (median)"


def _told(
    sentence: str, numbers: dict[str, float], headline: tuple[str, str] | None = None
) -> Answer:
    return Answer(
        name="repeated",
        question="How often is it repeated?",
        sentence=sentence,
        numbers=numbers,
        figure="mixture",
        headline=headline,
    )


def _times_in_words(one: SourceRepeats) -> str:
    if one.most <= 1:
        return "no row comes twice" if one.least else "each row comes at most once"
    if one.least == one.most:
        return f"each row comes {one.most:,} times"
    return f"each row comes {one.least:,} to {one.most:,} times"


class _Copies(NamedTuple):
    """Documents that are there more than once, of those that are selected and have tokens.

    Attributes:
        documents: all of them.
        within: those equal to an earlier one of the same store.
        holders: the stores that have such documents, those with most first.
        across: different documents of a store that an earlier store has as well.
        sharers: the stores that have documents of another one, those with most first.
    """

    documents: int
    within: int
    holders: tuple[StoreUse, ...]
    across: int
    sharers: tuple[StoreUse, ...]


def _copies_in(subject: RunSubject) -> _Copies | None:
    """Copies by the hashes that stores keep; None if there are too many documents or no hashes."""
    stores = subject.leftovers.stores
    if sum(one.reader.manifest.documents for one in stores) > HASHED:
        return None
    own, within = [], []
    try:
        for one in stores:
            hashes = np.concatenate([_NO_HASH, *(some for _, some in hash_blocks(one.reader))])
            kept = np.asarray(one.reader.lengths()) > 0
            kept = kept if one.chosen is None else kept & one.chosen
            own.append(np.unique(hashes[kept], axis=0))
            within.append(int(kept.sum()) - len(own[-1]))
    except (TokenloomError, KeyError):  # a foreign store without hashes
        return None
    sizes = [len(one) for one in own]
    _, inverse, times = np.unique(
        np.concatenate([_NO_HASH, *own]), axis=0, return_inverse=True, return_counts=True
    )
    # of each document, whether another store has it; of each store, how many of these it has
    shared = np.repeat(np.arange(len(own)), sizes)[times[inverse.reshape(-1)] > 1]
    return _Copies(
        documents=sum(sizes) + sum(within),
        within=sum(within),
        holders=_most(stores, within),
        across=sum(sizes) - len(times),
        sharers=_most(stores, np.bincount(shared, minlength=len(own)).tolist()),
    )


def _most(stores: Sequence[StoreUse], counts: Sequence[int]) -> tuple[StoreUse, ...]:
    """The stores that have any, those with most first."""
    order = sorted(range(len(stores)), key=lambda number: -counts[number])
    return tuple(stores[number] for number in order if counts[number])


def _copies(found: _Copies) -> Iterator[Caution]:
    """Documents that are in a store twice, and those in several stores: other calls list them."""

    def many(count: int) -> str:
        of = f"{found.documents:,} ({share(count, found.documents)})"
        return f"{plural(count, 'document')} of {of} {are(count)}"

    if found.within:
        yield Caution(
            words=f"{many(found.within)} equal to another document of the same store "
            f"({_sources_of(found.holders)}).",
            remedy="store.duplicates() of this store lists them; select the others."
            if len(found.holders) == 1
            else "store.duplicates() of each of these stores lists them; select the others.",
            figure="lengths",
        )
    if found.across:
        yield Caution(
            words=f"{many(found.across)} equal to a document of another store "
            f"({_sources_of(found.sharers)}).",
            remedy="store.document_hashes(range(store.num_documents)) has the same hash for them "
            "in both stores; select the others in one of the two.",
            figure="lengths",
        )


def _sources_of(stores: Sequence[StoreUse]) -> str:
    names = [name for one in stores for name in one.sources]
    more = f" and {len(names) - TOLD:,} more" if len(names) > TOLD else ""
    return ", ".join(names[:TOLD]) + more


def repeated_cautions(subject: RunSubject) -> Iterator[Caution]:
    """Sources that are repeated very often, that run out, and stores that are there twice."""
    found = subject.simulation
    if found is None:
        return
    rows = {one.name: one.rows for one in found.sources}
    often = [one for one in found.repeats if one.rows and rows[one.name] > MANY_EPOCHS * one.rows]
    often.sort(key=lambda one: -rows[one.name] / one.rows)
    figure = "mixture"
    for one in often[:TOLD]:
        yield Caution(
            words=f"{one.name} is repeated {amount(rows[one.name] / one.rows, 'epoch')}"
            f"; beyond about {MANY_EPOCHS} a repetition is worth much less than "
            "new data.",
            remedy="Lower its weight or its epochs, set max_epochs, or add documents.",
            figure=figure,
        )
    if len(often) > TOLD:
        yield Caution(
            words=f"{plural(len(often) - TOLD, 'more source')} of more than {MANY_EPOCHS} epochs.",
            remedy="Look at the table of the mixture.",
            figure=figure,
        )
    yield from _ends(subject)
    copies = _copies_in(subject)
    if copies is not None and copies.within + copies.across > COPIES * copies.documents:
        yield from _copies(copies)
    shared = sorted(subject.leftovers.stores, key=lambda one: -one.shared)
    for store in [use for use in shared if use.shared][:TOLD]:
        yield Caution(
            words=f"{_sources_of([store])} select {_shared(store)}, which may come in each of "
            "them.",
            remedy="Split or select the documents, if they should come once.",
            figure=figure,
        )


def _shared(one: StoreUse) -> str:
    least = "" if one.is_exact else "at least "
    where = "of one store" if len(one.paths) == 1 else "of stores with the same content"
    return f"{least}{plural(one.shared, 'document')} {where} more than once"


def _ends(subject: RunSubject) -> Iterator[Caution]:
    """Sources that run out before the run does."""
    names, told = subject.run.run.names, 0
    removed = {name for edit in subject.run.edits for name in edit.remove}
    for number, end in zip(subject.by_tokens, subject.ends, strict=False):
        if end.runs_out is None or end.runs_out >= subject.trained or told == TOLD:
            continue
        if names[number] in removed:
            continue
        told += 1
        step = f"step {subject.step_at(end.runs_out):,} of {subject.step_count:,}"
        yield Caution(
            words=f"{names[number]} runs out at {step}; from there on the others take its share.",
            remedy="Lower its weight, or let it start over with stop='restart' and no max_epochs.",
            figure="mixture",
        )


def times_figure(subject: RunSubject) -> Figure | None:
    """How often rows of a run of one source come; None for a run without a step."""
    found = subject.simulation
    if found is None or not found.repeats or not found.repeats[0].rows:
        return None
    (one,), rows = found.repeats, found.examples
    bar = [Bar(*some) for some in _times(one, rows)]
    return Figure(
        name="mixture",
        title="How often rows come",
        message=repeated_answer(subject).sentence,
        drawing=both(lambda width: bars(bar, width, "rows by how often they come", top=one.rows)),
        numbers=(repeats_table(subject),),
        notes=tuple(_notes(one)),
    )


def _times(one: SourceRepeats, shown: int) -> Iterator[tuple[str, float, str, str]]:
    """(name, rows, words, class) for each number of times; only rows that are there."""
    often = shown - one.least * one.rows if one.most > one.least else one.rows
    for times, rows in ((one.most, often), (one.least, one.rows - often)):
        if rows > 0:
            name = "never" if not times else "once" if times == 1 else f"{times:,} times"
            told = f"{plural(rows, 'row')}, {share(rows, one.rows)}"
            yield name, rows, told, "s1" if times else "rest"


def repeats_table(subject: RunSubject) -> Numbers:
    """Rows, epochs and repeats by source, as `simulate` counts them."""
    found = subject.simulation
    if found is None:
        return Numbers.of(HEAD, [], "how often rows and documents come")
    totals = {one.name: one for one in found.sources}
    rows = []
    for one in sorted(found.repeats, key=lambda some: -totals[some.name].tokens):
        shown = totals[one.name]
        epochs = shown.rows / one.rows if one.rows else 0.0
        gaps = one.gaps or (None,) * 4
        row = (one.name, shown.tokens, shown.rows, one.rows, epochs, one.least, one.most)
        rows.append((*row, one.documents, one.shown, *gaps))
    return Numbers.of(HEAD, rows, "how often rows and documents come")


def _notes(one: SourceRepeats) -> Iterator[str]:
    if one.is_sample and one.documents:
        yield f"Documents were followed in a keyed sample of {plural(one.documents, 'document')}."
    if one.note:
        yield one.note
