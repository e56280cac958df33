"""Numbers as people read them: with a unit, and no more digits than they mean.

One idea: what a page says in words has three digits, and the table beside it has all of them.
"""

from __future__ import annotations

import math

from tokenloom.errors import binary_size, plural

__all__ = ["amount", "binary_size", "exact", "plural", "ratio", "seconds", "share"]

_POWERS = ((1e15, "quadrillion"), (1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


def amount(value: float, unit: str = "") -> str:
    """A count in words, with three digits.

    >>> amount(1234, "row"), amount(1_234_567, "token"), amount(1, "row"), amount(2.5e13)
    ('1,234 rows', '1.23 million tokens', '1 row', '25 trillion')
    """
    for power, name in _POWERS:
        if abs(value) >= 0.9995 * power:
            said = f"{value / power:.3g} {name}"
            break
    else:
        whole = value == int(value) if math.isfinite(value) else False
        said = f"{int(value):,}" if whole else f"{value:,.3g}"
    if not unit:
        return said
    return f"{said} {unit}" if value == 1 else f"{said} {unit}s"


def exact(value: object) -> str:
    """A value of a table: all digits of an integer, four of a real number.

    >>> exact(1234567), exact(0.123456), exact(1e-9), exact(True), exact("a"), exact(None)
    ('1,234,567', '0.1235', '1e-09', 'yes', 'a', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if math.isnan(value):
            return "no value"
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:,.4g}"
    return str(value)


def share(part: float, whole: float = 1.0) -> str:
    """A share in per cent; what is not quite all or nothing never reads as such.

    >>> share(1, 3), share(0, 5), share(5, 5), share(1, 10**6), share(999_999, 10**6), share(1, 0)
    ('33.3 %', '0 %', '100 %', 'below 0.01 %', 'above 99.99 %', 'none')
    """
    if not whole:
        return "none"
    found = part / whole
    if 0 < found < 1e-4:
        return "below 0.01 %"
    if 0.9999 < found < 1:
        return "above 99.99 %"
    if found in (0, 1):
        return f"{found:.0%}".replace("%", " %")
    digits = 1 if 0.01 <= found <= 0.99 else 2
    return f"{found * 100:.{digits}f} %"


def ratio(value: float) -> str:
    """How many times.

    >>> ratio(1.0), ratio(1.234), ratio(12345.0)
    ('1.00 times', '1.23 times', '12,345 times')
    """
    return f"{value:,.2f} times" if value < 100 else f"{value:,.0f} times"


def seconds(value: float) -> str:
    """A length of time.

    >>> seconds(6.9e-8), seconds(0.00004), seconds(0.25), seconds(3.21), seconds(75)
    ('below 1 µs', '40 µs', '250 ms', '3.2 s', '1 min 15 s')
    >>> seconds(7300), seconds(200_000), seconds(0)
    ('2 h 1 min', '2 d 7 h', '0 s')
    """
    if value < 1e-6:
        return "below 1 µs" if value else "0 s"
    if value < 1e-3:
        return f"{value * 1e6:.3g} µs"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    if value < 60:
        return f"{value:.1f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    if value < 86400:
        return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"
    return f"{int(value // 86400)} d {int(value % 86400 // 3600)} h"
