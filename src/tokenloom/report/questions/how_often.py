"""How often is it repeated? Epochs, rows that come again, and how far apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenloom.errors import TokenloomError
from tokenloom.inspect.simulate.answer import SourceRepeats
from tokenloom.page.numbers import amount, plural, share
from tokenloom.report.chosen_documents import StoreUse
from tokenloom.report.reached import GOES_ON, has_steps, is_endless, is_first_epoch, within
from tokenloom.report.subject import RunSubject
from tokenloom.report.told import Answer, Caution
from tokenloom.store.derived.duplicates import hash_blocks

__all__ = ["MANY_EPOCHS", "answer", "cautions", "copies_in"]

MANY_EPOCHS = 4  # after which repeated data is worth much less than new data

HASHED = 1 << 18  # documents; the hashes of more take too long for a page

COPIES = 0.01  # of all documents; more are worth a warning

TOLD = 3  # warnings of one kind


def answer(subject: RunSubject) -> Answer:
    """How often the rows of the source that is repeated most come."""
    found = subject.simulation
    repeats = [one for one in (found.repeats if found is not None else ()) if one.rows]
    if not repeats and not has_steps(subject):
        return _told("Not counted: a step has more rows than this report looks at.", {})
    if not repeats:
        return _told("Nothing is shown, so nothing is repeated.", {"most": 0, "least": 0})
    rows = {one.name: one.rows for one in (found.sources if found is not None else ())}
    worst = max(repeats, key=lambda one: (rows[one.name] / one.rows, one.most))
    epochs = rows[worst.name] / worst.rows
    numbers = {"most": worst.most, "least": worst.least, "epochs": epochs}
    numbers |= {"shown": worst.shown, "sources": len(repeats)}
    times, often = f"{_times(worst)}{within(subject)}", amount(epochs, "epoch")
    if len(repeats) == 1:
        told = f"{times[:1].upper()}{times[1:]}" + ("" if is_first_epoch(subject) else f", {often}")
    elif all(one.most <= 1 for one in repeats):
        told = f"No row comes twice{within(subject)}; {worst.name} gets furthest, {often}"
    else:
        told = f"{worst.name} is repeated most: {times}, {often}"
    if worst.gaps is not None:
        numbers["median_gap"] = worst.gaps[1]
        told += f"; {_gap(worst.gaps[1])}"
    if is_endless(subject):
        numbers |= {"endless": 1, "steps": subject.step_count}
        told += f". {GOES_ON}"
    return _told(f"{told}.", numbers)


def _gap(steps: float) -> str:
    """How far apart rows of one document are, in the median."""
    if not steps:
        return "the next row of a document comes in the same step (median)"
    return f"the next row of a document comes {amount(steps, 'step')} later (median)"


def _told(sentence: str, numbers: dict[str, float]) -> Answer:
    return Answer(
        name="repeated",
        question="How often is it repeated?",
        sentence=sentence,
        numbers=numbers,
        figure="mixture",
    )


def _times(one: SourceRepeats) -> str:
    if one.most <= 1:
        return "no row comes twice" if one.least else "each row comes at most once"
    if one.least == one.most:
        return f"each row comes {one.most:,} times"
    return f"each row comes {one.least:,} to {one.most:,} times"


def copies_in(subject: RunSubject) -> tuple[int, int] | None:
    """Documents that are equal to an earlier one, and all with tokens, of those that are selected.

    From the hashes that stores keep; None where there are too many documents, or no hashes.
    """
    stores = subject.leftovers.stores
    if sum(one.reader.manifest.documents for one in stores) > HASHED:
        return None
    found = [np.empty((0, 2), np.uint64)]
    try:
        for one in stores:
            hashes = [some for _, some in hash_blocks(one.reader)]
            kept = np.asarray(one.reader.lengths()) > 0
            kept = kept if one.chosen is None else kept & one.chosen
            found.append(np.concatenate([np.empty((0, 2), np.uint64), *hashes])[kept])
    except (TokenloomError, KeyError):  # a store of others without hashes
        return None
    every = np.concatenate(found)
    different = len(np.unique(every, axis=0)) if len(every) else 0
    return len(every) - different, len(every)


def cautions(subject: RunSubject) -> Iterator[Caution]:
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
            f"{within(subject)}; beyond about {MANY_EPOCHS} a repetition is worth much less than "
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
    copies = copies_in(subject)
    if copies is not None and copies[0] > COPIES * copies[1]:
        yield Caution(
            words=f"{plural(copies[0], 'document')} of {copies[1]:,} ({share(*copies)}) "
            f"{'is a copy' if copies[0] == 1 else 'are copies'} of another one that is selected.",
            remedy="store.duplicates() lists them; select the others.",
            figure="lengths",
        )
    shared = sorted(subject.leftovers.stores, key=lambda one: -one.shared)
    for store in [use for use in shared if use.shared][:TOLD]:
        yield Caution(
            words=f"{_names(store)} select {_shared(store)}, which may come in each of them.",
            remedy="Split or select the documents, if they should come once.",
            figure=figure,
        )


def _names(one: StoreUse) -> str:
    more = len(one.sources) - TOLD
    return ", ".join(one.sources[:TOLD]) + (f" and {more:,} more" if more > 0 else "")


def _shared(one: StoreUse) -> str:
    least = "" if one.is_exact else "at least "
    where = "of one store" if len(one.paths) == 1 else "of stores with the same content"
    return f"{least}{plural(one.shared, 'document')} {where} more than once"


def _ends(subject: RunSubject) -> Iterator[Caution]:
    """Sources that run out before the run does."""
    run, told = subject.run.run, 0
    for number, end in zip(subject.by_tokens, subject.ends, strict=False):
        if end.runs_out is None or end.runs_out >= subject.trained or told == TOLD:
            continue
        if number in subject.removed:
            continue
        told += 1
        step = f"step {subject.step_at(end.runs_out):,}"
        step += "" if is_endless(subject) else f" of {subject.step_count:,}"
        yield Caution(
            words=f"{run.names[number]} runs out at {step}; from "
            "there on the others take its share.",
            remedy="Lower its weight, or let it start over with stop='restart' and no max_epochs.",
            figure="mixture",
        )
