"""Folders of files, put into buckets of memory."""

import itertools
import os
from pathlib import Path

from tokenloom.arguments import place
from tokenloom.remote.client import client_of

NUMBERS = itertools.count()


def uploaded(folder, path=None):
    """The URL of a path below a folder (default: the folder), all of which is in a bucket now."""
    url = f"memory://others/{next(NUMBERS)}"
    for file in sorted(Path(folder).rglob("*")):
        if file.is_file():
            key = place("url", f"{url}/{file.relative_to(folder).as_posix()}").key
            client_of(place("url", url)).put(key, file.read_bytes())
    inside = os.path.relpath(path or folder, folder)
    return url if inside == "." else f"{url}/{inside}"
