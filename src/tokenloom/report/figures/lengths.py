"""How long documents are, and how much of what is trained comes from short and long ones.

One idea: lengths differ by powers of ten, so a bar stands for a doubling; the second bar shows the
share of all tokens, which is what a model trains on.
"""

from __future__ import annotations

from tokenloom.page.charts import Bar, bars, both
from tokenloom.page.figure import Figure, Numbers
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import amount, share
from tokenloom.report.subject import RunSubject
from tokenloom.store.derived.length_counts import Doubling, LengthCounts, count_lengths

__all__ = ["length_figure", "lengths_drawn"]

HEAD = ("tokens of a document", "documents", "share of documents", "share of tokens")


def length_figure(subject: RunSubject) -> Figure:
    """Lengths of the documents of all stores of a run."""
    readers = {id(one.reader): one.reader for one in subject.run.sources.values()}
    (first, *_) = readers.values()
    counts = count_lengths(first)
    return Figure(
        name="lengths",
        title="How long documents are",
        message=_message(counts),
        drawing=lengths_drawn(counts.doublings()),
        numbers=(_numbers(counts.doublings()),),
        code=subject.python("run.sources['main'].reader"),
    )


def lengths_drawn(doublings: list[Doubling]) -> Markup:
    """Two bars for every doubling: documents, and their share of tokens."""
    total = sum(one.documents for one in doublings) or 1
    documents = [
        Bar(one.name, one.documents / total, share(one.documents, total)) for one in doublings
    ]
    tokens = [Bar(one.name, one.share, share(one.share), "s2") for one in doublings]
    return joined(
        [
            tag("h3", "Share of documents, by length in tokens"),
            both(lambda width: bars(documents, width, "share of documents by length")),
            tag("h3", "Share of tokens"),
            both(lambda width: bars(tokens, width, "share of tokens by length")),
        ]
    )


def _message(counts: LengthCounts) -> str:
    return (
        f"The median document has {amount(counts.percentile(50), 'token')}, "
        f"the mean {amount(round(counts.mean), 'token')}."
    )


def _numbers(doublings: list[Doubling]) -> Numbers:
    total = sum(one.documents for one in doublings) or 1
    rows = [(one.name, one.documents, one.documents / total, one.share) for one in doublings]
    return Numbers.of(HEAD, rows, "documents by length")
