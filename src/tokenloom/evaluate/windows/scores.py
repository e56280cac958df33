"""What is found about each window, and the figures of any number of them.

One idea: keep a few numbers for each window, in order of indices, and compute everything from them.
Sums are exact (`math.fsum`), so it does not matter who judged which window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["WindowScores"]

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


class WindowScores(NamedTuple):
    """Arrays over windows.

    Attributes:
        example: index of the window in the run of its offset.
        document: its document's number in the store.
        start: its first token in the document.
        offset: cells of filler before it.
        log_pz: log P(z) of its suffix, natural logarithm.
        greedy: whether greedy decoding gives the suffix.
        margin: the smallest lead of a suffix token's logit over the best other one; negative where
            another is larger.
        k_star: tokens of the longest suffix whose P(z) reaches tau.
    """

    example: Int64
    document: Int64
    start: Int64
    offset: Int64
    log_pz: Float64
    greedy: NDArray[np.bool_]
    margin: NDArray[np.float32]
    k_star: Int64

    @staticmethod
    def joined(parts: Sequence[WindowScores]) -> WindowScores:
        """The windows of all parts, by offset and index."""
        if not parts:
            nothing = np.empty(0, np.int64)
            none = (np.empty(0), nothing > 0, np.empty(0, np.float32), nothing)
            return WindowScores(nothing, nothing, nothing, nothing, *none)
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.lexsort((columns[0], columns[3]))
        return WindowScores._make(column[order] for column in columns)

    def some(self, which: Int64) -> WindowScores:
        """Some of the windows, by number."""
        return WindowScores._make(column[which] for column in self)

    def summary(self) -> dict[str, float]:
        """Figures over all windows: P(z), its logarithm to base 10, and shares.

        A mean of log P(z) is -inf if decoding can't give one of the suffixes.
        """
        count = len(self.example)
        if not count:
            return {"windows": 0}
        chances = np.exp(self.log_pz)
        finite = bool(np.isfinite(self.log_pz).all())
        powers = np.quantile(np.maximum(self.log_pz, -1e300), (0.05, 0.5, 0.95)) / math.log(10)
        low, middle, high = (p if p > -1e200 else -math.inf for p in powers.tolist())
        return {
            "windows": count,
            "mean_pz": math.fsum(chances.tolist()) / count,
            "median_pz": float(np.median(chances)),
            "max_pz": float(chances.max()),
            "mean_log_pz": math.fsum(self.log_pz.tolist()) / count if finite else -math.inf,
            "log10_pz_5": low,
            "log10_pz_50": middle,
            "log10_pz_95": high,
            "greedy": float(self.greedy.mean()),
            "never": int(np.isneginf(self.log_pz).sum()),
        }
