"""A byte source over the files of a folder, which a `FaultSource` counts or breaks."""

from pathlib import Path

import numpy as np

from tokenloom.testing import FaultSource


class PlainSource:
    """Reads the files of a folder, opened anew for each range."""

    def __init__(self, root):
        self.root = Path(root)

    def size(self, name):
        path = self.root / name
        return path.stat().st_size if path.is_file() else None

    def read(self, ranges):
        found = []
        for name, start, size in ranges:
            with open(self.root / name, "rb") as file:
                file.seek(start)
                found.append(np.frombuffer(file.read(size), np.uint8))
        return found


def counted(root, **fault):
    """A source whose `requests` are what a store has asked for."""
    return FaultSource(PlainSource(root), **fault)


def ranges_of(source, part="input_ids"):
    """What a source was asked for about files whose name contains `part`."""
    return [one for request in source.requests for one in request if part in one[0]]
