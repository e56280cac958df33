"""What evaluations found, whatever form it has: answers in memory, or the files they wrote.

A report asks each evaluation for tables by an axis, for windows, for records over steps
or for a page of tokens, and gets what there is. Files are read back without pickle, with a bound on
their size; what is missing in a file is told, never made up.

==========================  ======================================================================
evaluation.json             what ``tokenloom evaluate -o DIR`` found, without single windows
windows-….npz               every window of it
….npz                       ``answer.to_bytes()`` of losses or windows
results.jsonl               records over steps (`tokenloom.evaluate.Periodic`)
==========================  ======================================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tokenloom.errors import ConfigError, InputError
from tokenloom.evaluate.answer_files import kind_in
from tokenloom.evaluate.extraction import Contrast, Extraction
from tokenloom.evaluate.losses import Losses
from tokenloom.evaluate.periodic import FILE, Periodic, read_records
from tokenloom.evaluate.token_page import TokenPage
from tokenloom.random.keys import key
from tokenloom.random.permute import permutations
from tokenloom.store.files import LOCAL

EVALUATION = "evaluation.json"

MOST_BYTES = 1 << 30  # of a file of answers

MOST_FILES = 64  # of a folder


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Evaluated:
    """What is known about one evaluation; any part may be missing.

    Attributes:
        name: what it is called.
        losses: JSON of losses by place.
        is_whole: whether the losses are of all rows, not of a share of them.
        windows: P(z) of every window.
        counted: P(z) without single windows: the JSON of such an answer.
        control: JSON of a comparison with documents that were held out.
        records: answers over steps, oldest first.
        page: the tokens of a document.
    """

    name: str
    losses: Mapping[str, Any] | None = None
    is_whole: bool = True
    windows: Extraction | None = None
    counted: Mapping[str, Any] | None = None
    control: Mapping[str, Any] | None = None
    records: tuple[Mapping[str, Any], ...] = ()
    page: TokenPage | None = None

    @property
    def overall(self) -> Mapping[str, float]:
        """Figures over all tokens; empty without losses."""
        return inside(self.losses, "all")

    def table(self, axis: str, most: int | None = None) -> dict[str, Mapping[str, float]]:
        """Figures along an axis, by name; of a keyed sample if there are more than `most`."""
        every = inside(inside(self.losses, "by"), axis)
        names = list(every)
        chosen = (names[place] for place in sampled(len(names), most).tolist())
        return {name: every[name] for name in chosen if isinstance(every[name], Mapping)}


def sampled(count: int, most: int | None) -> np.ndarray[Any, np.dtype[np.int64]]:
    """All places below `count`, or a keyed sample of `most` of them, ascending.

    >>> sampled(3, 5).tolist(), len(sampled(1000, 10)), sampled(1000, 10).tolist()[:2]
    ([0, 1, 2], 10, [10, 23])
    """
    if most is None or count <= most:
        return np.arange(count)
    order = permutations(count, [key(0, "report", "sample")])
    return np.sort(order.forward(np.arange(most, dtype=np.uint64)).astype(np.int64))


def inside(value: Any, name: str) -> Mapping[str, Any]:
    """A mapping inside a mapping; an empty one if there is none."""
    found = value.get(name) if isinstance(value, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def evaluated(name: str, answer: Any) -> Evaluated:
    """An answer of `tokenloom.evaluate` as what a report asks.

    Raises:
        ConfigError: it is something else.
    """
    if isinstance(answer, Evaluated):
        return answer
    if isinstance(answer, Losses):
        return Evaluated(name=name, losses=answer.as_json(), is_whole=answer.is_whole)
    if isinstance(answer, Extraction):
        return Evaluated(name=name, windows=answer)
    if isinstance(answer, TokenPage):
        return Evaluated(name=name, page=answer)
    if isinstance(answer, Contrast):
        return Evaluated(name=name, control=answer.as_json())
    if isinstance(answer, Periodic):
        return Evaluated(name=name, records=tuple(answer.records))
    if isinstance(answer, Mapping) and "by" in answer:
        return Evaluated(name=name, losses=answer)
    if isinstance(answer, Mapping) and "histogram" in answer:
        return Evaluated(name=name, counted=answer)
    if isinstance(answer, Sequence) and answer and all(_is_record(one) for one in answer):
        ordered = sorted(answer, key=lambda one: one["step"])
        return Evaluated(name=name, records=tuple(ordered))
    raise ConfigError(
        f"evaluations[{name!r}]: found {type(answer).__name__}, allowed: what evaluate, pz, "
        "contrast, token_page and Periodic of tokenloom.evaluate give, or their JSON."
    )


def _is_record(one: Any) -> bool:
    return isinstance(one, Mapping) and isinstance(one.get("step"), int) and "results" in one


def is_evaluation(path: Path) -> bool:
    """Whether a folder holds what an evaluation wrote."""
    return (path / EVALUATION).is_file() or (path / FILE).is_file()


def read_evaluations(path: Path) -> dict[str, Evaluated]:
    """What an evaluation wrote, by name: a file, or a folder of them.

    Raises:
        InputError: it is something else, or damaged.
    """
    if path.is_dir():
        return _folder(path)
    try:
        if path.suffix == ".jsonl":
            records = _records(path)
            return {path.parent.name or path.stem: records}
        if path.suffix == ".npz":
            found = _answer(path.stem, _read(path))
            return {found.name: found}
        return _summary(path)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise InputError(
            f"{path}: not what an evaluation wrote ({type(error).__name__}: {error!s:.120}). "
            "Evaluate again: tokenloom evaluate RUN --model DIR -o FOLDER."
        ) from None


def _read(path: Path) -> bytes:
    data = LOCAL.read(path, MOST_BYTES)
    if data is None:
        raise InputError(
            f"{path}: no such file, allowed: what tokenloom evaluate -o FOLDER wrote, or FOLDER."
        )
    return data


def _folder(path: Path) -> dict[str, Evaluated]:
    """Everything in a folder; windows of a file join what its summary says about them."""
    found = read_evaluations(path / EVALUATION) if (path / EVALUATION).is_file() else {}
    for file in sorted(path.glob("*.npz"))[:MOST_FILES]:
        title = file.stem.removeprefix("windows-")
        known = next((name for name in found if name.replace("/", "-") == title), title)
        (one,) = read_evaluations(file).values()
        whole = found.get(known, Evaluated(name=known))
        if one.windows is not None:
            found[known] = replace(whole, windows=one.windows)
        elif whole.losses is None:
            found[known] = replace(whole, losses=one.losses, is_whole=one.is_whole)
    if (path / FILE).is_file():
        found |= read_evaluations(path / FILE)
    if not found:
        raise InputError(
            f"{path}: no evaluation in it, allowed: a folder with {EVALUATION}, {FILE} or .npz "
            "files. Write it with: tokenloom evaluate RUN --model DIR -o FOLDER."
        )
    return found


def _records(path: Path) -> Evaluated:
    if not path.is_file():
        _read(path)
    records = read_records(path)
    if not records:
        raise InputError(f"{path}: it is empty, allowed: a line for each evaluation.")
    return evaluated(path.parent.name or path.stem, records)


def _summary(path: Path) -> dict[str, Evaluated]:
    """The JSON of `tokenloom evaluate`."""
    whole = json.loads(_read(path))
    losses, windows, control = (inside(whole, one) for one in ("losses", "windows", "control"))
    names = list(dict.fromkeys([*losses, *windows]))
    if not names:
        raise InputError(
            f"{path}: neither losses nor windows in it, allowed: what tokenloom evaluate wrote. "
            "Evaluate again with -o FOLDER."
        )
    return {
        name: Evaluated(
            name=name,
            losses=losses.get(name),
            counted=windows.get(name),
            control=control.get(name),
        )
        for name in names
    }


def _answer(name: str, data: bytes) -> Evaluated:
    """The answer of an .npz file."""
    kind = kind_in(data)
    if kind == "losses":
        return evaluated(name, Losses.from_bytes(data))
    if kind == "extraction":
        return evaluated(name, Extraction.from_bytes(data))
    raise InputError(
        f"{name}.npz: found {kind or 'no answer'!r}, allowed: losses or windows of an evaluation. "
        "Write one with to_bytes() of an answer."
    )
