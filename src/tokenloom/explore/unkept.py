"""What a page would have to wait for: sums of costs that nobody has added up and kept.

One idea: a mix by tokens finds a step with sums over all rows of an epoch. They are added up once
and kept (`tokenloom.order.costs`); until then, a page that needs them says so, with the command
that makes them, instead of letting its reader wait for minutes.
"""

from __future__ import annotations

from tokenloom.api.dataset import Dataset
from tokenloom.mixture.run import MixedRun
from tokenloom.order.costs import ROW_SECONDS, STRIDE, SummedCosts
from tokenloom.page.numbers import amount, seconds
from tokenloom.store.plan_cache import is_kept

__all__ = ["unkept"]

PATIENCE = 1 << 22  # rows that are added up while a reader waits: about 0.1 s


def unkept(run: Dataset) -> str | None:
    """Why steps of a run cannot be shown at once; None: they can.

    The sums of the first epoch of each source are asked for: without these there are no others.
    """
    if not isinstance(run.run, MixedRun):
        return None
    rows = sum(
        _missing(clock.costs)
        for clock in run.run.stages[0].merge.clocks
        if isinstance(clock.costs, SummedCosts)
    )
    if rows <= PATIENCE:
        return None
    return (
        f"The costs of {amount(rows, 'row')} must be added up to know which row comes when, and "
        f"they are not kept yet. It is done once, in about {seconds(rows * ROW_SECONDS)}."
    )


def _missing(costs: SummedCosts) -> int:
    """Rows of the first epoch whose sums are neither in memory nor kept."""
    length, identity = costs._length(0), costs._priced.identity
    if 0 in costs._sums or not length:
        return 0
    if identity is not None:
        named = {**identity, "epoch": 0, "rows": length, "stride": STRIDE}
        if is_kept("sums", named):
            return 0
    return length
