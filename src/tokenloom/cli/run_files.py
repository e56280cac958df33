"""Runs named on the command line: the one place where a file becomes a run.

A run is a JSON file with what `Dataset.describe()` gave, such as ``json.dump(run.describe(),
file)`` writes. Paths of stores in it are relative to the working directory, as in Python.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.config import from_config
from tokenloom.errors import InputError, StoreNotFound
from tokenloom.store.format import read_json

__all__ = ["batch_size_of", "load_run"]

LARGEST = 1 << 28  # bytes of a description: a split may list millions of documents


def load_run(path: str) -> Dataset:
    """The run that a file describes.

    Raises:
        StoreNotFound: there is no such file.
        InputError: it is no JSON.
        ConfigError: it is no description, or of another store.
    """
    place = Path(path)
    if not place.is_file():
        raise StoreNotFound(
            f"{path}: there is no such file. Write one with json.dump(run.describe(), file)."
        )
    if place.stat().st_size > LARGEST:
        raise InputError(f"{path}: {place.stat().st_size:,} bytes, allowed: {LARGEST:,}.")
    try:
        config: Any = read_json(place.read_bytes())
    except ValueError as error:
        raise InputError(
            f"{path}: no JSON ({error}). Allowed: what json.dump(run.describe(), file) writes."
        ) from None
    return from_config(config)


def batch_size_of(given: str) -> int | list[tuple[int, int]]:
    """A batch size, or a schedule of pairs EXAMPLES:ROWS.

    >>> batch_size_of("64"), batch_size_of("0:64,6400:128")
    (64, [(0, 64), (6400, 128)])
    """
    if ":" not in given:
        return int(given)
    pairs = [one.split(":") for one in given.split(",")]
    return [(int(examples), int(rows)) for examples, rows in pairs]
