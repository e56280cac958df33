"""Values of options that are more than a word.

One idea: what was typed becomes a plain value, or the command line says which option was wrong,
what was typed, and what is allowed; nothing here needs NumPy.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS |= {"KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}


def _wrong(given: str, allowed: str) -> argparse.ArgumentTypeError:
    """What argparse prints after the name of the option."""
    return argparse.ArgumentTypeError(f"found {given!r}, allowed: {allowed}")


def whole(given: str) -> int:
    """An integer.

    >>> whole("8192"), whole("-1")
    (8192, -1)
    """
    try:
        return int(given)
    except ValueError:
        raise _wrong(given, "an integer") from None


def real(given: str) -> float:
    """A number.

    >>> real("0.4"), real("1e-9")
    (0.4, 1e-09)
    """
    try:
        return float(given)
    except ValueError:
        raise _wrong(given, "a number") from None


def json_of(given: str) -> Any:
    """A value written as JSON.

    >>> json_of('{"tools": null}')
    {'tools': None}
    """
    try:
        return json.loads(given)
    except ValueError as error:
        raise _wrong(given, f"JSON ({error})") from None


def document_number(way: str) -> Callable[[str], int]:
    """What reads the number of a document, and says what to do with an id instead.

    Args:
        way: what to type for an id, where {id} is put.

    >>> document_number("--id {id}")("17")
    17
    """

    def number(given: str) -> int:
        if re.fullmatch(r"-?\d+", given):
            return int(given)
        way_out = way.format(id=shlex.quote(given))
        raise _wrong(given, f"the number of a document, from 0. For that id: {way_out}")

    return number


def bytes_of(given: str) -> int:
    """A number of bytes, with a unit or without.

    Units are those of disks and networks (kB, MB, GB) and of memory (KiB, MiB, GiB).

    >>> bytes_of("640MiB"), bytes_of("1.5GB"), bytes_of("1e6")
    (671088640, 1500000000, 1000000)
    """
    found = re.fullmatch(r"(\d+\.?\d*(?:[eE]\d+)?)\s*([KMGTkmgt]?[iI]?)[bB]?", given.strip())
    if found is None or found[2].upper() not in UNITS:
        raise _wrong(given, "a number of bytes, such as 1000000, 500MB or 2GiB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def rows_of_steps(given: str) -> int | list[tuple[int, int]]:
    """A batch size, or a schedule of pairs EXAMPLES:ROWS.

    >>> rows_of_steps("64"), rows_of_steps("0:64,6400:128")
    (64, [(0, 64), (6400, 128)])
    """
    if re.fullmatch(r"-?\d+", given):
        return int(given)
    if not re.fullmatch(r"\d+:\d+(,\d+:\d+)*", given):
        raise _wrong(given, "rows of a step, or pairs EXAMPLES:ROWS, such as 64 or 0:64,6400:128")
    pairs = [one.split(":") for one in given.split(",")]
    return [(int(examples), int(rows)) for examples, rows in pairs]
