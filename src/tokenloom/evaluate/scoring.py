"""A model asked about every row of a run, batch by batch.

One idea: an evaluation is a run like any other. Its rows have indices, a `Loader` brings them,
ranks share them, and what is found about a row is kept with its index. So four ranks find what one
finds, and results are put together by sorting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.arguments import integer, wrong_type
from tokenloom.batch.batch import Batch
from tokenloom.errors import ConfigError
from tokenloom.evaluate.decoding import Decoding, TokenScores
from tokenloom.evaluate.models.in_torch import TorchScorer
from tokenloom.evaluate.models.scorers import NO_TARGET, ArrayScorer, JudgedRows, Scorer
from tokenloom.loader.loader import Loader
from tokenloom.loader.ranks import find_ranks
from tokenloom.progress import Progress

__all__ = ["Judged", "judged_batches", "scorer_of", "trained_targets", "whole_steps"]

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


def scorer_of(model: Any) -> Scorer:
    """A scorer of a model, whatever it is.

    Raises:
        ConfigError: it can't be called.
    """
    if hasattr(model, "ready") and hasattr(model, "told"):
        found: Scorer = model
        return found
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return TorchScorer(model)
    if not callable(model):
        raise wrong_type("model", model, "a callable (tokens, segment_ids, position_ids) → logits")
    return ArrayScorer(model)


def judged_batches(
    scorer: Scorer,
    run: Dataset,
    *,
    targets: Callable[[Batch], Int32],
    decoding: Decoding,
    batch_size: int,
    rank: int | None = None,
    world_size: int | None = None,
    show: bool | None = None,
    title: str = "evaluating",
) -> Iterator[Judged]:
    """Every row of this rank once, in order of indices.

    Args:
        scorer: the model, as `scorer_of` gives it; it is set up for evaluation while this runs.
        run: the rows; it must end.
        targets: which tokens of a batch are judged.
        decoding: the way of decoding.
        batch_size: rows of a step over all ranks.
        rank: the number of this rank, as for `tokenloom.Loader`.
        world_size: the number of ranks.
        show: whether to draw a bar; None: on a terminal.
        title: the label of the bar.

    Raises:
        ConfigError: the model gives NaN for a row; it is named.
    """
    fields = ("segment_ids", "position_ids")
    rank, world_size = find_ranks(rank, world_size)
    steps = whole_steps(len(run), batch_size, world_size)
    loader = Loader(run, steps, rank, world_size, end="pad", fields=fields, untrained="zero")
    with loader, scorer.ready(), Progress(title, total=len(loader), unit="step", show=show) as bar:
        for batch in loader:
            real = int((batch.index >= 0).sum())  # rows of filler come last
            if real:
                yield _judged(scorer, batch.part(0, real), targets, decoding)
            bar.advance(1)


def whole_steps(examples: int, batch_size: int, ranks: int = 1) -> list[tuple[int, int]]:
    """Steps whose last one has what is left, so that its rows are shared evenly, too.

    Args:
        examples: of the run.
        batch_size: rows of every step but the last.
        ranks: rows that a step has at least.

    >>> whole_steps(100, 32), whole_steps(64, 32), whole_steps(5, 32), whole_steps(33, 32, ranks=4)
    ([(0, 32), (96, 4)], [(0, 32)], [(0, 5)], [(0, 32), (32, 4)])
    """
    integer("batch_size", batch_size, max(1, ranks))
    rest = examples % batch_size
    full = [(0, batch_size)] if examples > rest else []
    return [*full, (examples - rest, max(rest, ranks))] if rest else full


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
