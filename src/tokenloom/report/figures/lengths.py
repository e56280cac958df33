"""How long documents are, and how much of what is trained comes from short and long ones.

Lengths differ by powers of ten, so a column stands for a doubling; the second column
shows the share of all tokens, which is what a model trains on. A line marks the length of a frame:
what lies to its right does not fit into one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from tokenloom.inspect.length_picture import SHARES, lengths_chart
from tokenloom.page.charts import both, legend
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import EMPTY, joined
from tokenloom.page.numbers import amount, share
from tokenloom.report.some_lengths import (
    EXACT,
    SomeLengths,
    other_lengths,
    some_lengths,
    together,
)
from tokenloom.report.subject import RunSubject
from tokenloom.store.length_counts import Doubling, LengthCounts

HEAD = ("tokens of a document", "documents", "share of documents", "share of tokens")

SOURCE_HEAD = ("source", "documents", "tokens", "min", "median", "mean", "max", "std")

LOOKED_AT = 8  # sources of many; the largest


def length_figure(subject: RunSubject) -> Figure:
    """Lengths of the documents that a run selects, all sources together."""
    found = _looked_at(subject)
    # sources that show the same documents are counted once
    whole = together([one.counts for one in {id(one): one for one in found.values()}.values()])
    return lengths_of(whole, subject.run.seq_len, [*found.values()], _by_source(found))


def lengths_of(
    counts: LengthCounts, frame: int, looked: Sequence[SomeLengths], *tables: Numbers
) -> Figure:
    """The figure of some lengths.

    Args:
        counts: the lengths.
        frame: tokens of a frame.
        looked: what they come from.
        tables: further numbers.
    """
    bins = counts.doublings()
    drawing = EMPTY
    if bins:
        chart = both(lambda width: lengths_chart(bins, width, frame))
        drawing = joined([legend(SHARES), chart])
    return Figure(
        name="lengths",
        title="How long documents are",
        message=_message(counts, frame),
        drawing=drawing,
        numbers=(*tables, _by_length(bins)),
        notes=tuple(_notes(looked)),
    )


def _looked_at(subject: RunSubject) -> dict[str, SomeLengths]:
    """The lengths of the largest sources by name, and those of all others together."""
    every = {one.name: one.layout.line for one in subject.run.run.sources}
    largest = sorted(every, key=lambda name: -every[name].tokens)[:LOOKED_AT]
    known: dict[str, SomeLengths] = {}
    for name in largest:
        line = every[name]
        if line.identity not in known:
            known[line.identity] = some_lengths(line, EXACT // len(largest))
    found = {name: known[every[name].identity] for name in largest}
    others = {one.identity: one for one in every.values() if one.identity not in known}
    if others:
        left = len(every) - len(largest)
        found[f"the {left:,} other sources"] = other_lengths(list(others.values()))
    return found


def _message(counts: LengthCounts, frame: int) -> str:
    if not len(counts.length):
        return "There is no document."
    tokens = counts.length.astype(float) * counts.documents
    longer = counts.length > frame
    documents, part = int(counts.documents[longer].sum()), float(tokens[longer].sum())
    middle = counts.percentile(50)
    half = f"Half of the documents have at most {amount(math.floor(middle), 'token')}"
    every = int(counts.documents.sum())
    if not documents:
        return (
            f"{half}, and every one fits into a frame of {frame:,}: the longest has "
            f"{amount(int(counts.length[-1]), 'token')}."
        )
    if documents == every:
        return f"{half}, and every one is longer than a frame of {frame:,}."
    return (
        f"{half}; the {share(documents, every)} that are longer than a frame of {frame:,} hold "
        f"{share(part, float(tokens.sum()))} of all tokens."
    )


def _by_length(doublings: Sequence[Doubling]) -> Numbers:
    total = sum(one.documents for one in doublings) or 1
    rows = [(one.name, one.documents, one.documents / total, one.share) for one in doublings]
    return Numbers.of(HEAD, rows, "documents by length")


def _by_source(found: Mapping[str, SomeLengths]) -> Numbers:
    rows = []
    for name, one in found.items():
        counts = one.counts
        told: tuple[object, ...] = (name, one.documents, one.tokens)
        if len(counts.length):
            low, high = int(counts.length[0]), int(counts.length[-1])
            told += (low, counts.percentile(50), counts.mean, high, counts.std)
        rows.append(told + (None,) * (len(SOURCE_HEAD) - len(told)))
    return Numbers.of(SOURCE_HEAD, rows, "tokens of a document, by source")


def _notes(looked_at: Sequence[SomeLengths]) -> Iterator[str]:
    sampled = [one for one in looked_at if one.is_sample]
    if sampled:
        looked = sum(one.looked for one in sampled)
        documents = sum(one.documents for one in sampled)
        yield (
            f"Estimated from a keyed sample of {amount(looked, 'document')} of "
            f"{amount(documents)}. The longest and the shortest may be others."
        )
