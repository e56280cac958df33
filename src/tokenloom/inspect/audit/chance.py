"""How likely a sample misses a defect, exactly.

One idea: N rows drawn without replacement from n, of which D are defective, hold none of the D with
probability ``C(n - D, N) / C(n, N)`` (hypergeometric). As a product it is one division of two
integers, which Python rounds correctly, so the number is the same on every machine.

Worked example: 100 of 1,000 rows are looked at, 10 are defective: (900 · 899 · … · 891) / (1,000 ·
999 · … · 991) = 0.347.
"""

from __future__ import annotations

import math

__all__ = ["chances", "miss_chance", "smallest_found"]

SIZES = (1, 10, 100, 1_000, 10_000)  # defective rows that a certificate names

RARELY = 0.01


def miss_chance(rows: int, looked_at: int, defective: int) -> float:
    """The probability that a sample shows none of the defective rows.

    Args:
        rows: all rows, n.
        looked_at: rows of the sample, N.
        defective: defective rows among all, D.

    >>> miss_chance(1000, 100, 1), round(miss_chance(1000, 100, 10), 3), miss_chance(10, 6, 5)
    (0.9, 0.347, 0.0)
    """
    if looked_at + defective > rows:
        return 0.0
    few, many = sorted((looked_at, defective))
    above = _product(rows - many - few + 1, rows - many + 1)
    below = _product(rows - few + 1, rows + 1)
    return above / below


def _product(low: int, high: int) -> int:
    """The product of range(low, high), by halves: the factors stay of one size."""
    if high - low <= 32:
        return math.prod(range(low, high))
    middle = (low + high) // 2
    return _product(low, middle) * _product(middle, high)


def smallest_found(rows: int, looked_at: int, chance: float = RARELY) -> int:
    """The fewest defective rows that a sample misses with at most this probability.

    >>> smallest_found(1000, 100), smallest_found(1000, 1000)
    (43, 1)
    """
    most = max(1, rows - looked_at + 1)  # that many can't be missed

    def is_enough(size: int) -> bool:
        return miss_chance(rows, looked_at, size) <= chance

    # drawn with replacement it would be about this many; a search from there takes a few steps
    share = math.log1p(-looked_at / rows) if looked_at < rows else -math.inf
    guess = min(max(1, int(math.log(chance) / share)), most) if share else most
    low, high, step = guess, guess, 1
    while low > 1 and is_enough(low):
        low, step = max(1, low - step), 2 * step
    step = 1
    while high < most and not is_enough(high):
        high, step = min(most, high + step), 2 * step
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low


def chances(rows: int, looked_at: int) -> dict[str, float]:
    """Defective rows → the probability that none was looked at.

    Sizes are powers of ten, and the smallest that is missed with at most 1 %.

    >>> chances(1000, 100)["10"] == miss_chance(1000, 100, 10), list(chances(1000, 100))
    (True, ['1', '10', '43'])
    """
    found = smallest_found(rows, looked_at)
    sizes = [size for size in SIZES if size < found]
    return {str(size): miss_chance(rows, looked_at, size) for size in [*sizes, found]}
