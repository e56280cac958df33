"""Which files belong together: a file, or all files of a folder whose names differ in numbers only.

Shards of one dataset are named alike and counted, so names are grouped by what is left when digits
are taken out, and ordered by their numbers: `s_2` before `s_10`. A folder with several groups
(`train_*` and `val_*`), or with files that open as different formats (`a.npy` and `b.bin`), is
refused: the user names one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tokenloom.errors import ConfigError
from tokenloom.foreign.places import ForeignPlace

__all__ = ["SUFFIXES", "files_of", "groups_of", "refuse_others"]

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
