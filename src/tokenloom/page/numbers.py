"""Numbers as people read them: with a unit, and no more digits than they mean.

What a page says in words has three digits, and the table beside it has all of them.
"""

from __future__ import annotations

import math

from tokenloom.errors import binary_size as binary_size
from tokenloom.errors import plural as plural

_POWERS = ((1e15, "quadrillion"), (1e12, "trillion"), (1e9, "billion"), (1e6, "million"))

SMALL = -4  # powers of ten below this one are written as such

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def digits(value: float, count: int = 3) -> str:
    """A number with a few digits, as people write it; a whole one has all of its digits.

    Zeros at the end are kept where they are rounded: 1.9996 is not quite 2.

    Args:
        value: the number.
        count: digits that a number has which is not whole; those before the point all stay.

    >>> digits(0.25), digits(1.9996), digits(12.345), digits(1976.6), digits(1_234_567)
    ('0.25', '2.00', '12.3', '1,977', '1,234,567')
    >>> digits(1e-9), digits(0.00034567), digits(12345.678, 4), digits(float("nan"))
    ('1 × 10⁻⁹', '0.000346', '12,346', 'no value')
    """
    if not math.isfinite(value):
        return "no value" if math.isnan(value) else "infinite"
    if value == int(value):
        return f"{int(value):,}"
    first, _, power = f"{value:.{count - 1}e}".partition("e")
    if int(power) < SMALL:
        return f"{_bare(first, float(first))} × 10{str(int(power)).translate(RAISED)}"
    return _bare(f"{value:,.{max(0, count - 1 - int(power))}f}", value)


def _bare(said: str, value: float) -> str:
    """The same without zeros at its end, unless it was rounded to them."""
    short = said.rstrip("0").rstrip(".") if "." in said else said
    return short if math.isclose(float(short.replace(",", "")), value, rel_tol=1e-9) else said


def are(count: int) -> str:
    """The verb for so many things: "is" or "are"."""
    return "is" if count == 1 else "are"


def amount(value: float, unit: str = "") -> str:
    """A count in words, with three digits; below a million all digits before the point.

    >>> amount(1234, "row"), amount(1_234_567, "token"), amount(1, "row"), amount(2.5e13)
    ('1,234 rows', '1.23 million tokens', '1 row', '25 trillion')
    >>> amount(1821.4, "step"), amount(999_999_600), amount(1.5, "epoch")
    ('1,821 steps', '1.00 billion', '1.5 epochs')
    """
    for power, name in _POWERS:
        if abs(value) >= 0.9995 * power:
            said = f"{digits(value / power)} {name}"
            break
    else:
        said = digits(value)
    if not unit:
        return said
    return f"{said} {unit}" if value == 1 else f"{said} {unit}s"


def counted(value: float, unit: str) -> tuple[str, str]:
    """The number of `amount`, and its unit apart.

    >>> counted(1_234_567, "token"), counted(1, "row")
    (('1.23 million', 'tokens'), ('1', 'row'))
    """
    return amount(value), unit if value == 1 else f"{unit}s"


def bound(value: float, unit: str = "") -> str:
    """A count that is not exceeded: as `amount` writes it, but rounded up.

    >>> bound(6535.27, "token"), bound(0.8333, "row"), bound(1_231_000), bound(0, "row"), bound(2.5)
    ('6,536 tokens', '0.834 rows', '1.24 million', '0 rows', '2.5')
    """
    if not value:
        return amount(value, unit)
    third = 10.0 ** (math.floor(math.log10(value)) - 2)  # what the third digit counts
    step = third if value >= 0.9995e6 else min(1.0, third)
    return amount(round(math.ceil(value / step - 1e-9) * step, 12), unit)


def exact(value: object) -> str:
    """A value of a table: all digits of an integer, four of a real number.

    >>> exact(1234567), exact(0.123456), exact(1e-9), exact(True), exact("a"), exact(None)
    ('1,234,567', '0.1235', '1 × 10⁻⁹', 'yes', 'a', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return digits(value, 4)
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
        return f"{digits(value * 1e6)} µs"
    if value < 1:
        return f"{digits(value * 1000)} ms"
    if value < 60:
        return f"{value:.1f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    if value < 86400:
        return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"
    return f"{int(value // 86400)} d {int(value % 86400 // 3600)} h"
