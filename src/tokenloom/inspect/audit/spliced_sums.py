"""What whole epochs of splices must show, from the closed form of their coverage.

One idea: `tokenloom.inspect.coverage` counts how often each token is shown without listing splices,
document by document. The steps of these counts make the same sum as the stretches that a run
showed (`tokenloom.inspect.audit.boundary_sums`), so the two are compared although neither knows how
the other was made.

Counts take memory for every token of a document, so this is for up to 2^22 tokens; memorization
studies have fewer.
"""

from __future__ import annotations

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.inspect.audit.boundary_sums import ADDRESSES, Covered
from tokenloom.inspect.coverage import coverage
from tokenloom.layout.splice.rows import Spliced
from tokenloom.order.run import SourceRun
from tokenloom.random.keys import draws

__all__ = ["spliced_epochs", "spliced_sum"]

MOST_TOKENS, MOST_DOCUMENTS = 1 << 22, 1 << 14

CLOSED = "the closed form of the splices"


def spliced_epochs(run: Dataset, first: int, last: int) -> int:
    """How many epochs, from the first on, a range of an unedited spliced run covers; 0 for none."""
    source = run.run.sources[0]
    if run.rule is not None or run.edits or first or not isinstance(source.layout, Spliced):
        return 0
    line = source.layout.line
    if line.tokens > MOST_TOKENS or line.documents > MOST_DOCUMENTS or not source.rows:
        return 0
    epochs, rest = source.phases.place(last)
    return 0 if rest or not _are_whole(source, epochs) else epochs


def _are_whole(source: SourceRun, epochs: int) -> bool:
    """Whether the first epochs are as many as a finite run may count: none is cut short."""
    return source.phases.end(epochs) == source.phases.start(epochs)


def spliced_sum(run: Dataset, epochs: int) -> Covered:
    """What the first epochs of a spliced run must show."""
    line, counted = run.run.sources[0].layout.line, coverage(run, epochs=epochs)
    documents, edges = line.bounds(0, line.documents)
    total = tokens = 0
    for document, begin in zip(documents.tolist(), edges[:-1].tolist(), strict=True):
        shown = counted.context(document)
        steps = np.diff(shown, prepend=0, append=0)
        here = np.flatnonzero(steps)
        hashes = draws(ADDRESSES, (here + begin).astype(np.uint64))
        total += int((hashes * steps[here].astype(np.uint64)).sum(dtype=np.uint64))
        tokens += int(shown.sum())
    return Covered(total % (1 << 64), tokens, CLOSED)
