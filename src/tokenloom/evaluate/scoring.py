"""A model asked about every row of a run, batch by batch.

An evaluation is a run like any other: its rows have indices, and a `Loader` brings any range of
them. So each rank judges a range of its own, and results are put together by sorting.

Where a judged token is in its document and its frame follows from spans. To add an axis, write one
function and name it in `AXES`.

==============  ====================================================================================
document        the document, by its number in its store
source          the source of a mix
index           the token's place in its document, from 0
position        its cell in the frame, from 0; `seq_len` for the token after a row
context         tokens of its segment before it: what the model could see
start           where the row's stretch of the document starts: t of a splice
row             the row itself, by its index in the run
==============  ====================================================================================

Places are counted in bins that double: 0, 1, 2 to 3, 4 to 7, …; ``start`` has a bin for 0 alone, so
that later splices are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import integer
from tokenloom.batch.batch import Batch
from tokenloom.errors import ConfigError
from tokenloom.evaluate.decoding import Decoding, TokenScores
from tokenloom.evaluate.models import NO_TARGET, JudgedRows, Scorer
from tokenloom.layout.spans import BOS, JOINED
from tokenloom.loader.loader import Loader
from tokenloom.loader.ranks import find_ranks
from tokenloom.progress import Progress

Int32 = NDArray[np.int32]

Int64 = NDArray[np.int64]

SOURCE = 1 << 40  # keys of documents: source · 2^40 + document


class Judged(NamedTuple):
    """A batch and what the model says about it.

    Attributes:
        batch: the rows.
        cells: which cells' logits were judged [rows, cells].
        targets: the tokens that they were judged by.
        scores: what was found, row by row from left to right.
    """

    batch: Batch
    cells: NDArray[np.bool_]
    targets: Int32
    scores: TokenScores


class Range(NamedTuple):
    """The examples from `first` to before `last`.

    >>> [Range.of_rank(10, rank, 3) for rank in range(3)]
    [Range(first=0, last=3), Range(first=3, last=6), Range(first=6, last=10)]
    """

    first: int
    last: int

    @staticmethod
    def of_rank(examples: int, rank: int | None = None, world_size: int | None = None) -> Range:
        """The share of a rank: shares are consecutive, and differ by one example at most.

        Args:
            examples: of the whole run.
            rank: the number of this rank, as for `tokenloom.Loader`.
            world_size: the number of ranks.
        """
        rank, ranks = find_ranks(rank, world_size)
        integer("world_size", ranks, 1)
        integer("rank", rank, 0, ranks - 1)
        return Range(examples * rank // ranks, examples * (rank + 1) // ranks)


def judged_batches(
    scorer: Scorer,
    run: Dataset,
    *,
    some: Range,
    targets: Callable[[Batch], Int32],
    decoding: Decoding,
    batch_size: int,
    show: bool | None = None,
    title: str = "evaluating",
) -> Iterator[Judged]:
    """A range of rows once, in order of indices.

    Args:
        scorer: the model, as `scorer_of` gives it; it is set up for evaluation while this runs.
        run: the rows; it must end.
        some: which of them.
        targets: which tokens of a batch are judged.
        decoding: the way of decoding.
        batch_size: rows that the model gets at a time.
        show: whether to draw a bar; None: on a terminal.
        title: the label of the bar.

    Raises:
        ConfigError: the model gives NaN for a row; it is named.
    """
    integer("batch_size", batch_size, 1)
    if some.first == some.last:
        return
    fields = ("segment_ids", "position_ids")
    rows = run._but(file=None)  # how training is loaded says nothing about evaluation
    loader = Loader(rows, batch_size, 0, 1, end="pad", fields=fields, untrained="zero")
    loader.load_state_dict(rows.state(some.first))
    steps = -(-(some.last - some.first) // batch_size)
    with loader, scorer.ready(), Progress(title, total=steps, unit="step", show=show) as bar:
        for place in range(some.first, some.last, batch_size):
            mine = min(batch_size, some.last - place)
            yield _judged(scorer, next(loader).part(0, mine), targets, decoding)
            bar.advance(1)


def _judged(
    scorer: Scorer, batch: Batch, targets: Callable[[Batch], Int32], decoding: Decoding
) -> Judged:
    rows = JudgedRows(batch.tokens, batch.segment_ids, batch.position_ids, targets(batch))
    cells = rows.judged
    scores = scorer(rows, decoding)
    wrong = np.isnan(scores.log_probs)
    if wrong.any():
        row = int(np.repeat(np.arange(len(cells)), cells.sum(1))[wrong.argmax()])
        spans = batch.spans
        first = spans.frame[row]
        raise ConfigError(
            f"model: its logits are NaN, +inf, or -inf for every token at example "
            f"{batch.index[row]} ({batch.source[row]}, document {spans.document[first]}, from "
            f"token {spans.start[first]} on); allowed: numbers, and -inf for some tokens. Try "
            "float32 weights; if they overflow as well, the model has diverged"
        )
    return Judged(batch, cells, rows.targets[cells], scores)


def trained_targets(batch: Batch) -> Int32:
    """The tokens that training on a batch would have as targets, in the cells that predict them."""
    if batch.label_layout == "shifted":
        return batch.labels
    found = np.full_like(batch.labels, NO_TARGET)
    found[:, :-1] = batch.labels[:, 1:]
    return found


class TokenPlaces(NamedTuple):
    """Where judged tokens are; arrays over them, row by row from left to right.

    Attributes:
        cell: the token's own cell, one after the cell that predicts it.
        document, place, context, start, source: as in the table above, where `place` is called
            index; sources by number.
        example: index of its row in the run.
    """

    cell: Int64
    document: Int64
    place: Int64
    context: Int64
    start: Int64
    source: Int64
    example: Int64


def places(one: Judged, sources: Sequence[str]) -> TokenPlaces:
    """The places of all judged tokens of a batch.

    Args:
        one: the batch.
        sources: names of the run's sources; places have their numbers.
    """
    row, cell = np.nonzero(one.cells)
    cell = cell + 1
    spans, width = one.batch.spans, one.batch.spans.width + 1
    owner = np.repeat(np.arange(len(spans)), np.diff(spans.frame))
    firsts = owner * width + spans.at  # ascending: by row, then by cell
    span = np.searchsorted(firsts, row * width + cell, side="right") - 1
    opens = np.flatnonzero((spans.flags & JOINED) == 0)
    opener = opens[np.searchsorted(opens, span, side="right") - 1]
    numbers = np.array([sources.index(name) for name in spans.sources])
    return TokenPlaces(
        cell=cell,
        document=spans.document[span],
        place=spans.start[span] + cell - spans.at[span] - ((spans.flags[span] & BOS) != 0),
        context=cell - spans.at[opener],
        start=spans.start[span],
        source=numbers[spans.source[row]],
        example=one.batch.index[row],
    )


def doubled(values: Int64) -> Int64:
    """The bin of a place: 0 for 0, else one more than its binary logarithm."""
    return np.where(values > 0, np.frexp(np.maximum(values, 1).astype(np.float64))[1], 0)


def bin_name(number: int) -> str:
    """What lies in a bin.

    >>> [bin_name(number) for number in range(4)]
    ['0', '1', '2 to 3', '4 to 7']
    """
    if number < 2:
        return str(number)
    return f"{1 << (number - 1)} to {(1 << number) - 1}"


AXES: dict[str, Callable[[TokenPlaces], Int64]] = {
    "document": lambda at: at.source * SOURCE + at.document,
    "source": lambda at: at.source,
    "index": lambda at: doubled(at.place),
    "position": lambda at: doubled(at.cell),
    "context": lambda at: doubled(at.context),
    "start": lambda at: doubled(at.start),
    "row": lambda at: at.example,
}

DOUBLING = ("index", "position", "context", "start")
