"""Log P(z) over the tokens of a document: what the windows that cover each token say together.

One idea: a token is covered by several windows, and three ways of putting them together are
useful: the largest, the mean of the logarithms, and the logarithm of the mean.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["REDUCTIONS", "spread"]

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


def spread(first: Int64, values: Float64, *, length: int, size: int, reduce: str) -> Float64:
    """One value for each token; NaN where no window is.

    Args:
        first: the first token that each window covers.
        values: of the windows.
        length: tokens that each covers.
        size: tokens of the document.
        reduce: one of `REDUCTIONS`.

    >>> spread(np.array([1, 2]), np.array([-1.0, -3.0]), length=2, size=5, reduce="max").tolist()
    [nan, -1.0, -1.0, -3.0, nan]
    """
    cells = (first[:, None] + np.arange(length)).ravel()
    return REDUCTIONS[reduce](cells, np.repeat(values, length), size)


def _largest(cells: Int64, values: Float64, length: int) -> Float64:
    found = np.full(length, np.nan)
    np.fmax.at(found, cells, values)
    return found


def _mean(cells: Int64, values: Float64, length: int) -> Float64:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.bincount(cells, values, length) / np.bincount(cells, minlength=length)


def _log_mean_exp(cells: Int64, values: Float64, length: int) -> Float64:
    top = _largest(cells, values, length)
    with np.errstate(invalid="ignore", divide="ignore"):
        above = np.exp(values - np.where(np.isneginf(top), 0, top)[cells])
        return np.log(_mean(cells, above, length)) + np.where(np.isneginf(top), 0, top)


REDUCTIONS = {"max": _largest, "mean": _mean, "logmeanexp": _log_mean_exp}
