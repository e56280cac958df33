"""What a report says, read back: words without special spaces, and the numbers in them."""

from __future__ import annotations

import re

POWERS = {"million": 1e6, "billion": 1e9, "trillion": 1e12, "quadrillion": 1e15}

SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

NUMBER = re.compile(
    r"(?<![\w.,])(-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d{1,2})?)(?!\w)"
    r"(?: (million|billion|trillion|quadrillion|%|B|KiB|MiB|GiB|TiB|µs|ms|s|min|h)\b|( %))?"
)

TIMES = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def plain(text: str) -> str:
    """The same words with common spaces."""
    return text.replace("\N{NO-BREAK SPACE}", " ").replace("\N{NARROW NO-BREAK SPACE}", " ")


def numbers_in(text: str) -> list[tuple[float, float]]:
    """Every number of a text as (least, most) of what it may stand for, rounded as it is."""
    found = []
    for digits, unit, percent in NUMBER.findall(plain(text)):
        scale = POWERS.get(unit) or SIZES.get(unit) or TIMES.get(unit) or (0.01 if percent else 1)
        bare = digits.replace(",", "")
        value = float(bare) * scale
        shown = len(bare.partition("e")[0].partition(".")[2])
        power = int(bare.partition("e")[2] or 0)
        is_exact = unit != "B" and scale == 1 and not shown and not power  # bytes are means
        half = 0.0 if is_exact else 0.5 * 10 ** (power - shown) * scale
        half += abs(value) * 1e-9
        found.append((value - half, value + half))
    return found


def is_among(number: tuple[float, float], values: list[float]) -> bool:
    """Whether one of the values is what a number stands for."""
    low, high = number
    return any(low <= one <= high for one in values)
