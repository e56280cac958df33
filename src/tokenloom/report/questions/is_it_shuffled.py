"""Is it shuffled? A word for every order, with the numbers of a fair shuffle beside its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tokenloom.page.numbers import amount, counted, plural, share
from tokenloom.quality.order_sample import PATTERN, RANDOM, STORED, TINY, WINDOWS, OrderLook
from tokenloom.report.subject import RunSubject, capital
from tokenloom.report.told import Answer, Caution

__all__ = ["FEW_BLOCKS", "answer", "cautions", "judged"]

FEW_BLOCKS = 0.5  # of the blocks that a fair batch has; with fewer, batches look alike

GRAVEST = (STORED, PATTERN, WINDOWS, RANDOM, TINY)

COUNTED = {TINY: f"with {TINY}"}  # words for how many orders are of a kind

TOLD = 3  # warnings of one kind


def answer(subject: RunSubject) -> Answer:
    """The verdict on the largest source, and on how many others."""
    looks = {name: look for name, look in subject.looks.items() if look.rows}
    question = "Is it shuffled?"
    if not looks:
        sentence = "There are no rows to shuffle."
        return Answer(name="shuffled", question=question, sentence=sentence, numbers={"rows": 0})
    name = min(looks, key=lambda one: (GRAVEST.index(looks[one].kind), -looks[one].rows))
    look = looks[name]
    numbers: dict[str, float] = {"rows": look.rows}
    numbers |= (
        {}
        if look.kind == TINY
        else {
            "batch": look.batch,
            "batch_blocks": look.batch_blocks,
            "fair_batch_blocks": look.fair_batch_blocks,
            "same_block": look.same_block,
            "fair_same_block": look.fair_same_block,
            "moved": look.moved,
            "fair_moved": look.fair_moved,
            "window": look.window,
        }
    )
    told = judged(subject, name)
    if len(looks) > 1:
        kinds = Counter(one.kind for one in looks.values())
        words = ", ".join(f"{kinds[one]} {COUNTED.get(one, one)}" for one in GRAVEST if kinds[one])
        told += f". Of the {len(looks):,} largest sources: {words}"
    return Answer(
        name="shuffled",
        question=question,
        sentence=f"{told}.",
        numbers=numbers,
        figure="shuffle",
        headline=None if look.kind == TINY else _headline(look),
    )


def _headline(look: OrderLook) -> tuple[str, str]:
    if look.fair_batch_blocks > 1:
        number, unit = counted(look.batch_blocks, "block")
        return number, f"{unit} in {look.batch:,} rows; {amount(look.fair_batch_blocks)} fair"
    return share(look.moved), f"of an epoch: how far rows move; {share(look.fair_moved)} fair"


def judged(subject: RunSubject, name: str) -> str:
    """The verdict on the order of a source, with its numbers unless they say nothing."""
    look, several = subject.looks[name], len(subject.run.sources) > 1
    if look.kind == TINY:
        return f"{name} has {look.words}" if several else f"There are {look.words}"
    if look.kind == STORED:
        told = f"{name} comes {look.words}" if several else f"rows come {look.words}"
    else:
        told = f"the order of {name} is {look.words}" if several else f"the order is {look.words}"
    if subject.is_shuffled_whole:
        return f"Before the mix is shuffled as a whole, {told}: {measured(look)}"
    told = told if several and look.kind == STORED else capital(told)  # a name stays as it is
    return f"{told}: {measured(look)}"


def measured(look: OrderLook) -> str:
    """An order beside a fair one: blocks of a batch, or moves where there is a single block."""
    if look.blocks > 1:
        return (
            f"{plural(look.batch, 'neighbouring row')} from {_blocks(look.batch_blocks)}, "
            f"{amount(look.fair_batch_blocks)} in a fair shuffle"
        )
    return (
        f"a row moves {share(round(look.moved, 3))} of the epoch on average, "
        f"{share(round(look.fair_moved, 3))} in a fair shuffle"
    )


def _blocks(count: float) -> str:
    return amount(count, "storage block")


def cautions(subject: RunSubject) -> Iterator[Caution]:
    """Orders that are none, that have a pattern, or that mix too little."""
    ordered = sorted(subject.looks.items(), key=lambda one: GRAVEST.index(one[1].kind))
    if subject.is_shuffled_whole:
        ordered = []
    found = (_caution(name, look) for name, look in ordered if look.rows)
    told = [one for one in found if one is not None]
    yield from told[:TOLD]
    if len(told) > TOLD:
        yield Caution(
            words=f"{plural(len(told) - TOLD, 'more source')} with such an order.",
            remedy="Look at the table of the shuffle.",
            figure="shuffle",
        )


def _caution(name: str, look: OrderLook) -> Caution | None:
    if look.kind == STORED and look.rows > look.batch:  # in a single step there is no order
        return Caution(
            words=f"{name} comes in stored order: {share(look.in_a_row)} of its rows follow the "
            "row that is stored before them.",
            remedy="Add .shuffle() or, for few reads, .block_shuffle().",
            figure="shuffle",
        )
    if look.kind == PATTERN:
        return Caution(
            words=f"{name} is {look.words}.",
            remedy="Use perm_type='feistel', the default.",
            figure="shuffle",
        )
    few = look.batch_blocks < FEW_BLOCKS * look.fair_batch_blocks
    if look.kind == WINDOWS and few:
        return Caution(
            words=f"{name} is mixed little: {measured(look)}.",
            remedy="Raise window_blocks (or the length of the stretches) as far as memory allows.",
            figure="shuffle",
        )
    return None
