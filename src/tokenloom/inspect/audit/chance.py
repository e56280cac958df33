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
    low, high = 1, max(1, rows - looked_at + 1)  # that many can't be missed
    while low < high:
        middle = (low + high) // 2
        enough = miss_chance(rows, looked_at, middle) <= chance
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


def chances(rows: int, looked_at: int) -> dict[str, float]:
    """Defective rows → the probability that none was looked at, for some sizes.

    >>> chances(1000, 100)["10"] == miss_chance(1000, 100, 10), list(chances(50, 5))
    (True, ['1', '10'])
    """
    return {str(size): miss_chance(rows, looked_at, size) for size in SIZES if size <= rows}
