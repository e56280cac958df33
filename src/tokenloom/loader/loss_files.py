"""Losses that a training loop wrote to a file: JSON lines, CSV, or TensorBoard events.

One idea: a logger writes one record per step, whatever else is in it; the step and the loss have
names, and records without a loss are about something else. A loss is a number (of the step) or a
list (of its rows); with a list, `index` may name the example of each row. A step that was logged
twice, as after a resume, counts as it was logged last.
"""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import InputError, MissingExtra, choices

__all__ = ["ReadLosses", "read_losses"]

INDEX = "index"  # the key of the examples of a record

EVENTS = "tfevents"  # in the name of every TensorBoard file

EXACT = 1 << 53  # floats are exact integers up to here

LINE = 1 << 24  # characters; a longer line is no record


class ReadLosses(NamedTuple):
    """What a file tells.

    Attributes:
        values: a loss for each step, or for each row of each step.
        steps: the steps, ascending; None if rows are named by `examples`.
        examples: the example of each row; None if the file does not tell.
    """

    values: NDArray[np.float64]
    steps: NDArray[np.int64] | None
    examples: NDArray[np.int64] | None


def read_losses(
    path: str | PathLike[str], *, step_key: str = "step", loss_key: str = "loss"
) -> ReadLosses:
    r"""The losses in a file, or in the TensorBoard events of a folder.

    Args:
        path: `.csv` or `.tsv`, a folder or file of TensorBoard events, anything else JSON lines.
        step_key: name of the step in a record.
        loss_key: name of the loss in a record; the tag of a scalar.

    Raises:
        InputError: the file has no such losses.
        MissingExtra: TensorBoard events without the package that reads them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "log.jsonl"
    ...     _ = path.write_text('{"step": 0, "loss": 3.5}\n{"step": 0, "eval": 1}\n')
    ...     read_losses(path).values.tolist()
    [3.5]
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"{place}: there is no such file. Give the path of a log of losses.")
    if place.is_dir() or EVENTS in place.name:
        return _collected(str(place), _events(place, loss_key), step_key, loss_key)
    delimiter = {".csv": ",", ".tsv": "\t"}.get(place.suffix.lower())
    found = _lines(place) if delimiter is None else _table(place, delimiter)
    return _collected(str(place), found, step_key, loss_key)


def _lines(place: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where, record) of every line of JSON."""
    with place.open(encoding="utf-8") as file:
        for number, line in enumerate(iter(lambda: file.readline(LINE), ""), 1):
            if not line.strip():
                continue
            where = f"{place}:{number}"
            try:
                record = json.loads(line)
            except ValueError as bad:
                raise InputError(
                    f"{where}: no JSON ({bad}). Allowed: one object a line; or .csv, .tsv."
                ) from None
            if not isinstance(record, dict):
                raise InputError(f"{where}: found {type(record).__name__}, allowed: an object.")
            yield where, record


def _table(place: Path, delimiter: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where, record) of every line of a table with a header."""
    with place.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter=delimiter)
        for record in reader:
            full = {key: value for key, value in record.items() if key and value}
            yield f"{place}:{reader.line_num}", full


def _events(place: Path, tag: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where, record) of every scalar of a tag, by TensorBoard's own reader."""
    name = "tensorboard.backend.event_processing.event_accumulator"
    try:
        reader = importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(f"Reading {place}", "tensorboard", "tensorboard") from error
    events = reader.EventAccumulator(str(place), size_guidance={reader.SCALARS: 0})
    events.Reload()
    tags = list(events.Tags().get(reader.SCALARS, []))
    if tag not in tags:
        raise InputError(
            f"{place}: no scalars of the tag {tag!r}; it has: {choices(tag, tags)} Name another "
            "with loss_key."
        )
    for one in events.Scalars(tag):
        yield str(place), {"step": one.step, tag: one.value}


def _collected(
    where: str,
    records: Iterable[tuple[str, Mapping[str, Any]]],
    step_key: str,
    loss_key: str,
) -> ReadLosses:
    """The losses of all records that have one."""
    found: dict[int, Any] = {}
    index: dict[int, Any] = {}
    keys: dict[str, None] = {}
    key = "step" if EVENTS in Path(where).name or Path(where).is_dir() else step_key
    for place, record in records:
        keys |= dict.fromkeys(record)
        if loss_key not in record or record[loss_key] is None:
            continue
        if key not in record:
            raise InputError(
                f"{place}: it has a {loss_key!r} but no {key!r}; it has: {choices(key, record)} "
                "Name it with step_key."
            )
        step = _integer(place, key, record[key])
        found[step] = _loss(place, loss_key, record[loss_key])
        if INDEX in record and isinstance(found[step], list):
            index[step] = record[INDEX]
    if not found:
        raise InputError(
            f"{where}: no record has a {loss_key!r}; they have: {choices(loss_key, keys)} Name it "
            "with loss_key."
        )
    return _joined(where, found, index, loss_key)


def _joined(where: str, found: dict[int, Any], index: dict[int, Any], loss_key: str) -> ReadLosses:
    """Losses of all steps as one array."""
    steps = sorted(found)
    kinds = {type(found[step]) for step in steps}
    if len(kinds) > 1:
        raise InputError(
            f"{where}: {loss_key!r} is a number in some records and a list in others, allowed: "
            "one of the two."
        )
    number = np.array(steps, np.int64)
    if kinds == {float}:
        return ReadLosses(np.array([found[step] for step in steps]), number, None)
    if index:
        rows = [_indices(where, index.get(step), found[step], step) for step in steps]
        values = np.concatenate([np.array(found[step], np.float64) for step in steps])
        return ReadLosses(values, None, np.concatenate(rows))
    sizes = {len(found[step]) for step in steps}
    if len(sizes) > 1:
        raise InputError(
            f"{where}: steps have {min(sizes)} to {max(sizes)} rows. Log 'index' beside "
            f"{loss_key!r}, so that each row is known."
        )
    return ReadLosses(np.array([found[step] for step in steps], np.float64), number, None)


def _indices(where: str, given: Any, losses: list[float], step: int) -> NDArray[np.int64]:
    """The examples of the rows of a step."""
    good = isinstance(given, list) and len(given) == len(losses)
    if not good or any(type(one) is not int for one in given):
        raise InputError(
            f"{where}: step {step}: 'index' has another length, allowed: the example of each of "
            f"its {len(losses)} "
            "losses."
        )
    return np.array(given, np.int64)


def _integer(where: str, key: str, value: Any) -> int:
    try:
        number = float(value)
        if number != int(number) or not 0 <= number < EXACT:
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{where}: {key!r} is {value!r:.60}, allowed: an integer of 0 or more."
        ) from None
    return int(number)


def _loss(where: str, key: str, value: Any) -> float | list[float]:
    """A number, or a list of them; None in a list is a row without a loss."""
    try:
        if isinstance(value, list):
            return [float("nan") if one is None else float(one) for one in value]
        return float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: {key!r} is {value!r:.60}, allowed: a number, or a list of them."
        ) from None
