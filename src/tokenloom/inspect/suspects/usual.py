"""What a loss usually is: a running median, and how far losses are from it.

One idea: a loss falls, jumps and drifts while a run trains, so it is judged beside its neighbours.
The median of a window of steps does not follow a spike, and 1.4826 times the median distance from
it (MAD) is the standard deviation of a normal distribution, without its tails.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["deviation", "running", "tail_level"]

Float64 = NDArray[np.float64]

Int64 = NDArray[np.int64]

NORMAL = 1.4826  # standard deviations of a normal distribution in a MAD

EVERY = 20_000  # longer series are looked at in this many places


def deviation(values: Float64) -> float:
    """The standard deviation that the middle of some values shows.

    >>> round(deviation(np.array([1.0, 2.0, 3.0, 4.0, 1000.0])), 2)
    1.48
    """
    if not len(values):
        return 0.0
    return float(NORMAL * np.median(np.abs(values - np.median(values))))


def running(values: Float64, window: int) -> tuple[Float64, Float64]:
    """The median of the `window` values around each, and the deviation of these [N].

    Values at the ends have the first, or last, whole window; NaN is left out.

    >>> usual, spread = running(np.array([1.0, 2.0, 9.0, 2.0, 1.0]), 3)
    >>> usual.tolist()
    [2.0, 2.0, 2.0, 2.0, 2.0]
    """
    window = min(window, len(values))
    views = np.lib.stride_tricks.sliding_window_view(values, window)
    places = np.unique(np.linspace(0, len(views) - 1, min(len(views), EVERY)).astype(np.int64))
    usual, spread = np.empty(len(places)), np.empty(len(places))
    for low in range(0, len(places), 1024):
        some = views[places[low : low + 1024]]
        middle = np.nanmedian(some, axis=1)
        usual[low : low + 1024] = middle
        distance = np.nanmedian(np.abs(some - middle[:, None]), axis=1)
        spread[low : low + 1024] = NORMAL * distance
    centre = places + (window - 1) / 2
    every = np.arange(len(values))
    return np.interp(every, centre, usual), np.interp(every, centre, spread)


def tail_level(values: Float64, chance: float) -> float:
    """A value that none of these should exceed, but with that chance, if the tail is exponential.

    The slope of the tail is that between two high quantiles, which a few outliers do not move.

    >>> rng = np.random.Generator(np.random.PCG64(1))
    >>> clean = rng.exponential(size=10_000)
    >>> spoiled = np.append(clean, [100.0, 200.0, 300.0])
    >>> bool(clean.max() < tail_level(spoiled, 0.01) < 30)
    True
    """
    count = max(1, len(values))
    beyond = min(0.05, max(0.001, 10 / count))  # the share of values above the higher quantile
    low, high = np.quantile(values, [1 - 10 * beyond, 1 - beyond])
    slope = (high - low) / np.log(10)
    return float(high + slope * np.log(max(1.0, beyond * count / chance)))
