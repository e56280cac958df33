"""Values of options that are more than a word or a number.

One idea: what was typed becomes a plain value, or argparse says which option was wrong; nothing
here needs NumPy.
"""

from __future__ import annotations

import re

__all__ = ["bytes_of", "rows_of_steps"]

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS |= {"KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}


def bytes_of(given: str) -> int:
    """A number of bytes, with a unit or without.

    Units are those of disks and networks (kB, MB, GB) and of memory (KiB, MiB, GiB).

    >>> bytes_of("640MiB"), bytes_of("1.5GB"), bytes_of("1e6")
    (671088640, 1500000000, 1000000)
    """
    found = re.fullmatch(r"([\d.]+(?:[eE]\d+)?)\s*([KMGTkmgt]?[iI]?)[bB]?", given.strip())
    if found is None or found[2].upper() not in UNITS:
        raise ValueError(given)
    return int(float(found[1]) * UNITS[found[2].upper()])


def rows_of_steps(given: str) -> int | list[tuple[int, int]]:
    """A batch size, or a schedule of pairs EXAMPLES:ROWS.

    >>> rows_of_steps("64"), rows_of_steps("0:64,6400:128")
    (64, [(0, 64), (6400, 128)])
    """
    if ":" not in given:
        return int(given)
    pairs = [one.split(":") for one in given.split(",")]
    return [(int(examples), int(rows)) for examples, rows in pairs]
