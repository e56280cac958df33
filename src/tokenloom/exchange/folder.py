"""A new folder that appears whole or not at all.

One idea: everything is written below a temporary name beside the wanted one and moved there when
it is complete and synced. A process that dies leaves only the temporary folder, which nobody reads
(its name starts with ``.tmp-``); remove it when you like.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tokenloom.arguments import local_path
from tokenloom.errors import StoreExists
from tokenloom.ingest.target import make_directory
from tokenloom.store.files import Files, OutFile, temporary_name


class CountedFile:
    """A file being written; counts its bytes, and looks enough like a file for others to use it."""

    def __init__(self, out: OutFile) -> None:
        self._out, self.size, self.closed = out, 0, False

    def write(self, data: Any) -> int:
        """Append a contiguous buffer."""
        size = memoryview(data).nbytes
        self._out.write(data)
        self.size += size
        return size

    def writable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Bytes written."""
        return self.size

    def flush(self) -> None:
        """Nothing: every write goes to the system at once."""

    def close(self) -> None:
        """Sync the file and close it."""
        if not self.closed:
            self.closed = True
            self._out.close()


class Folder:
    """A folder under its temporary name.

    Attributes:
        path: where it is now.
        sizes: bytes of each file that was made in it, by its name.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files, self.path = files, path
        self._made = [path]
        self._open: dict[str, CountedFile] = {}
        files.mkdir(path, 0o700)  # private until it is published

    @contextmanager
    def file(self, name: str) -> Iterator[CountedFile]:
        """A new file, synced at the end; folders in its name are made."""
        place = self.path / name
        for folder in reversed(place.relative_to(self.path).parents[:-1]):
            if self.path / folder not in self._made:
                self._files.mkdir(self.path / folder)
                self._made.append(self.path / folder)
        out = self._open[name] = CountedFile(self._files.create(place))
        try:
            yield out
        finally:
            out.close()

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by name."""
        return {name: out.size for name, out in self._open.items()}

    def publish(self, target: Path) -> None:
        """Give the folder its name."""
        for folder in reversed(self._made):
            self._files.chmod_like(folder, target.parent)
            self._files.sync_directory(folder)
        if not self._files.rename_new(self.path, target):
            raise _taken(target)
        self._files.sync_directory(target.parent)


@contextmanager
def fresh_folder(files: Files, out: object) -> Iterator[Folder]:
    """A folder to fill, which gets its name when the block ends well, and is removed if not."""
    target = Path(os.path.abspath(local_path("out", out)))
    if os.path.lexists(target) and not (target.is_dir() and not files.list(target)):
        raise _taken(target)
    make_directory(files, target.parent)
    folder = Folder(files, target.parent / temporary_name())
    try:
        yield folder
        folder.publish(target)
    except BaseException:
        files.remove(folder.path)
        raise


def _taken(target: Path) -> StoreExists:
    return StoreExists(
        f"{target}: something is already here. Name a new folder, or remove this one."
    )


def npy_header(dtype: str, length: int) -> bytes:
    """The start of a .npy file of a flat array, which the elements follow.

    >>> npy_header("<u2", 3)[1:6], len(npy_header("<u2", 3))
    (b'NUMPY', 128)
    """
    out = io.BytesIO()
    about = {"descr": dtype, "fortran_order": False, "shape": (length,)}
    np.lib.format.write_array_header_1_0(out, about)
    return out.getvalue()
