"""A model asked about every row of a run, batch by batch.

An evaluation is a run like any other: its rows have indices, and a `Loader` brings any range of
them. So each rank judges a range of its own, and results are put together by sorting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import integer
from tokenloom.batch.batch import Batch
from tokenloom.errors import ConfigError
from tokenloom.evaluate.decoding import Decoding, TokenScores
from tokenloom.evaluate.models import NO_TARGET, JudgedRows, Scorer
from tokenloom.loader.loader import Loader
from tokenloom.loader.ranks import find_ranks
from tokenloom.progress import Progress

__all__ = ["Judged", "Range", "judged_batches", "trained_targets"]

Int32 = NDArray[np.int32]


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
