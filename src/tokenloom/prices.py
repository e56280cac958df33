"""What the rows of a run cost: stored tokens, or tokens that are trained.

One idea: layouts know the tokens of their rows without reading any, so what the first examples of a
run have cost is a question of order and sums (`tokenloom.costs`), at any place of any run.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.bind import unbind
from tokenloom.costs import Costs, EqualCosts, ShortLastCosts, SummedCosts
from tokenloom.errors import ConfigError
from tokenloom.layout.layout import Epochs
from tokenloom.layout.remembered import remembered_array
from tokenloom.masks import tile
from tokenloom.rendering import RenderSpec
from tokenloom.run import SourceRun, loss_columns
from tokenloom.spans import EOS, Spans

__all__ = ["RunPrices", "TokenCount", "costs_of", "trained_in"]

Int64 = NDArray[np.int64]
TOGETHER = 1 << 16  # rows
WORTH_KEEPING = 1 << 18  # rows; fewer are counted faster than a file is found


class RunPrices:
    """Prices of the rows of a run, in the order in which they come.

    Args:
        run: the rows.
        least: what every row costs at least; 1, so that time never stands still.
        render: count those tokens that are trained when rendered so; None counts all of them.
    """

    def __init__(self, run: SourceRun, least: int, render: RenderSpec | None = None) -> None:
        self._run, self.phases, self._least, self._render = run, run.phases, least, render
        self.most = run.layout.width

    def prices(self, first: int, last: int) -> Int64:
        """See `Priced`."""
        return np.maximum(self._of(*self._run.rows_from(first, last)), self._least)

    def _of(self, epoch: Epochs, rows: Int64) -> Int64:
        layout = self._run.layout
        if self._render is None:
            return layout.costs(epoch, rows)
        if not layout.is_constant:
            return self._count(epoch, rows)
        return self._table[rows].astype(np.int64)

    def _count(self, epoch: Epochs, rows: Int64) -> Int64:
        """Trained tokens of rows, from their boundaries."""
        layout, render = self._run.layout, self._render
        assert render is not None
        width = layout.width if render.label_layout == "shifted" else layout.seq_len
        return trained_in(layout.spans(epoch, rows), width, render)

    @functools.cached_property
    def _table(self) -> NDArray[Any]:
        """Trained tokens of every row of a layout whose rows stay the same [rows]."""
        layout = self._run.layout
        count = int(layout.phases.rows[0])
        identity = {
            "line": layout.line.identity,
            "layout": layout.tag,
            "render": None if self._render is None else unbind(self._render),
        }
        kind = np.dtype(np.min_scalar_type(layout.width))

        def can_be(known: NDArray[Any]) -> bool:
            return known.dtype == kind and len(known) == count

        def make() -> NDArray[Any]:
            made = np.empty(count, kind)
            for low in range(0, count, TOGETHER):
                rows = np.arange(low, min(low + TOGETHER, count))
                made[low : low + TOGETHER] = self._count(0, rows)
            return made

        if count < WORTH_KEEPING:
            return make()
        return remembered_array("trained", identity, can_be, make)

    @property
    def identity(self) -> dict[str, Any]:
        """See `Priced`."""
        render = None if self._render is None else unbind(self._render)
        return {**self._run.identity, "least": self._least, "render": render}

    def is_steady(self, epoch: int) -> bool:
        """See `Priced`."""
        return self._run.layout.is_steady(epoch)


def costs_of(
    run: SourceRun, cost: str, n: int | None, render: RenderSpec | None = None, least: int = 1
) -> Costs:
    """The costs of a run's items.

    Args:
        run: the items.
        cost: "rows", "tokens" or "loss_tokens".
        n: how many there are; None is for ever.
        render: what is trained, for "loss_tokens".
        least: what every item costs at least.
    """
    if cost == "rows":
        return EqualCosts(1, n)
    if cost == "loss_tokens":
        assert render is not None
        _check_countable(run, render)
        return SummedCosts(RunPrices(run, least, render), n)
    each = run.layout.row_tokens
    if each is None:
        return SummedCosts(RunPrices(run, least), n)
    usual, short = (max(least, size) for size in each)
    if usual == short or run.rows <= 1:
        return EqualCosts(short, n)

    def place(epoch: int) -> int:
        """Where the last row stands."""
        return int(run.order(epoch).inverse(np.array([run.rows - 1]))[0])

    return ShortLastCosts(usual, short, run.rows, place, n)


class TokenCount:
    """Stored tokens of the first examples of a run.

    Where rows have tokens of their own and somebody goes on in the epoch in which he asked last,
    only what came since is counted.
    """

    def __init__(self, run: SourceRun) -> None:
        self._costs = costs_of(run, "tokens", None, least=0) if run.rows else None
        self._run, self._phases = run, run.phases
        self._known = 0, 0  # examples, tokens

    def upto(self, examples: int) -> int:
        """Tokens of the first examples."""
        costs = self._costs
        if costs is None:
            return 0
        known, tokens = self._known
        end = min(known + TOGETHER, self._phases.start(self._phases.place(known)[0] + 1))
        if isinstance(costs, SummedCosts) and known <= examples <= end:
            tokens += int(costs.items(known, examples).sum())
        else:
            tokens = costs.upto(examples)
        self._known = examples, tokens
        return tokens

    def of_epoch(self) -> int:
        """Tokens of one epoch, of the last kind if there are several."""
        phases = self._phases
        epoch = int(phases.epoch[-1])
        return self.upto(phases.start(epoch + 1)) - self.upto(phases.start(epoch))

    def of(self, items: Int64) -> int:
        """Tokens of these items."""
        if not len(items):
            return 0
        return int(self._run.layout.costs(*self._run.locate(items)).sum())


def trained_in(spans: Spans, width: int, render: RenderSpec) -> Int64:
    """Predictions of each frame that count, from boundaries alone [frames]."""
    tiles = tile(spans, width)
    row, real = tiles.first // width, tiles.segment > 0
    trained = np.where(real, tiles.length - 1, 0)
    heads = np.zeros(len(real), np.bool_)  # tiles whose first cell counts, too
    if not render.mask_boundary_loss:  # that of a document behind another one
        heads[1:] = real[1:] & real[:-1] & (row[1:] == row[:-1])
    found = np.bincount(row, trained + heads, minlength=tiles.frames)
    blank = np.setdiff1d(tiles.blank, tiles.first[~heads], assume_unique=True)
    found -= np.bincount(blank // width, minlength=tiles.frames)
    if not render.train_on_eos and render.eos_mask == "inserted":
        ends = ((spans.flags & EOS) > 0) & (spans.at + spans.cells <= width) & (spans.cells > 1)
        found -= np.bincount(spans.row[ends], minlength=tiles.frames)
    return found.astype(np.int64)


def _check_countable(run: SourceRun, render: RenderSpec) -> None:
    """Refuse to count what only tokens can tell."""
    by_value = render.ignore_id is not None or render.segments == "eos"
    by_value |= not render.train_on_eos and render.eos_mask == "all"
    columns = loss_columns(run.layout.line.reader)
    if by_value or columns:
        why = f"the columns {', '.join(columns)}" if columns else "the values of tokens"
        raise ConfigError(
            f"cost: found 'loss_tokens', but what is trained of source {run.name!r} depends on "
            f"{why}, which would have to be read. Take cost='tokens'."
        )
