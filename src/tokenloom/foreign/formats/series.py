"""Which files belong together: a file, or all files of a folder whose names differ in numbers only.

Shards of one dataset are named alike and counted, so names are grouped by what is left when digits
are taken out, and ordered by their numbers: `s_2` before `s_10`. A folder with several groups
(`train_*` and `val_*`), or with files that open as different formats (`a.npy` and `b.bin`), is
refused: the user names one of them.

Files without an index do not say where documents end, either. Only the user knows which token ends
or starts one, so it is said (`eos`, `bos`) and never guessed. Without it, every file is one
document, as the projects themselves read such files, and that is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError
from tokenloom.foreign.described import Delimiter
from tokenloom.foreign.pieces import Piece, RawPiece
from tokenloom.foreign.places import ForeignPlace

Int64 = NDArray[np.int64]

WHOLE_FILES = (
    "no token that ends documents (eos=) or starts them (bos=) was named, so every file is one "
    "document"
)

SUFFIXES = {
    "parquet": (".parquet",),
    "arrow": (".arrow", ".feather", ".ipc"),
    "datatrove": (".ds",),
    "llm.c": (".bin",),
    "npy": (".npy",),
    "flat": (".npy", ".bin", ".dat", ".ds"),
}
"""The names of files of the formats that have no index which lists their files."""


def groups_of(names: list[str]) -> dict[str, list[str]]:
    """Names that differ only in their numbers, each group in order of these numbers.

    >>> groups_of(["val_0.bin", "train_10.bin", "train_9.bin"])
    {'val_#.bin': ['val_0.bin'], 'train_#.bin': ['train_9.bin', 'train_10.bin']}
    """
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(re.sub(r"[0-9]+", "#", name), []).append(name)
    return {pattern: sorted(group, key=_numbers) for pattern, group in found.items()}


def _numbers(name: str) -> tuple[list[int], str]:
    return [int(digits) for digits in re.findall(r"[0-9]+", name)], name


def files_of(place: ForeignPlace, suffix: str) -> list[str]:
    """The files with a suffix that a path means, in order of their numbers; none if there are none.

    A path that is no file and no folder is the start of names, to which numbers are added.

    Raises:
        ConfigError: there are several series.
    """
    if not place.is_folder and place.size(place.name) is not None:
        return [place.name] if place.name.endswith(suffix) else []
    names = [
        name for name in place.names() if name.endswith(suffix) and _is_of(place, name, suffix)
    ]
    names = [name for name in names if place.size(name) is not None]
    groups = groups_of(names)
    if len(groups) > 1:
        told = ", ".join(f"{group[0]} ({len(group)})" for group in list(groups.values())[:4])
        raise ConfigError(
            f"{place.path}: found {len(groups)} series of files: {told}; allowed: one. Name the "
            "start of its names, or one file, and mix several with `tokenloom.mix`."
        )
    return next(iter(groups.values()), [])


def _is_of(place: ForeignPlace, name: str, suffix: str) -> bool:
    if place.is_folder or not name.endswith(suffix):
        return name.endswith(suffix)
    rest = name.removesuffix(suffix).removeprefix(place.name)
    return name.startswith(place.name) and re.fullmatch(r"[-_.0-9]*", rest) is not None


def refuse_others(place: ForeignPlace, kind: str, files: Sequence[str]) -> None:
    """Refuse a folder, or a start of names, in which files of other formats lie beside these.

    Args:
        place: what was pointed at.
        kind: the format of the files.
        files: the files.

    Raises:
        ConfigError: there are others, and no `format` says which are meant.
    """
    alone = not place.is_folder and place.size(place.name) is not None
    if alone or not place.folder.lists:
        return
    kinds = [kind] if place.said.format else SUFFIXES
    suffixes = {suffix for one in kinds for suffix in SUFFIXES[one]}
    left = (name for name in place.names() if name not in files)
    others = [name for name in left if any(_is_of(place, name, suffix) for suffix in suffixes)]
    others = [name for name in others if place.size(name) is not None]
    if others:
        raise ConfigError(
            f"{place.path}: found {files[0]} (format {kind}) and {others[0]} beside it, allowed: "
            "files of one kind in a folder. Name the file, the start of the names, or the format "
            "(`format=`), and mix several with `tokenloom.mix`."
        )


def documents_by(
    place: ForeignPlace, pieces: Sequence[Piece]
) -> tuple[Callable[[], Int64] | Delimiter, tuple[str, ...]]:
    """How documents are told apart, and what to tell about it.

    Raises:
        ConfigError: the token that was named cannot be in these files.
    """
    said = place.said
    for name, one, at in (("eos", said.eos, "end"), ("bos", said.bos, "start")):
        if one is not None:
            _check_possible(place, pieces, name, one)
            return Delimiter(id=one, at=at), ()
    sizes = np.array([piece.elements for piece in pieces], np.int64)
    return lambda: sizes, (WHOLE_FILES,)


def _check_possible(place: ForeignPlace, pieces: Sequence[Piece], name: str, token: int) -> None:
    """Refuse a token that no id of the files can be: all of them would be one document."""
    stored = {np.dtype(piece.dtype) for piece in pieces if isinstance(piece, RawPiece)}
    widest = max(stored, key=lambda dtype: np.iinfo(dtype).max, default=np.dtype(np.int64))
    largest = int(np.iinfo(widest).max)
    if token > largest:
        raise ConfigError(
            f"{name}: found {token} for {place.path}, whose ids are stored as {widest.name}, "
            f"allowed: 0 to {largest}. Name the token of the tokenizer that wrote these files."
        )
