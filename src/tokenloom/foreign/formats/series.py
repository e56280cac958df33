"""Which files belong together: a file, or all files of a folder whose names differ in numbers only.

One idea: shards of one dataset are named alike and counted. So names are grouped by what is left
when digits are taken out. If a folder has several groups (`train_*` and `val_*`), nobody may join
them silently: the user names one by the start of its names.
"""

from __future__ import annotations

import re

from tokenloom.errors import ConfigError
from tokenloom.foreign.places import ForeignPlace

__all__ = ["files_of", "groups_of"]


def groups_of(names: list[str]) -> dict[str, list[str]]:
    """Names that differ only in their numbers, each group in order of name.

    >>> groups_of(["val_0.bin", "train_1.bin", "train_0.bin"])
    {'val_#.bin': ['val_0.bin'], 'train_#.bin': ['train_0.bin', 'train_1.bin']}
    """
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(re.sub(r"[0-9]+", "#", name), []).append(name)
    return {pattern: sorted(group) for pattern, group in found.items()}


def files_of(place: ForeignPlace, suffix: str) -> list[str]:
    """The files that a path means, in order of name; none if there are none with that suffix.

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
