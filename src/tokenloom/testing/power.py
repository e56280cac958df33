"""Power loss: what the disk may hold when the machine stops after the N-th effect.

One idea: `CrashFiles` works on a real directory and writes down every effect. From that log alone,
any number of *crash states* can be made afterwards, each in a directory of its own, and opened,
verified and built on like the real thing.

The model is as unkind as POSIX allows:

- The bytes of a file are safe once it was closed (`Files` syncs there). Before, the file may be
  empty, whole, cut anywhere, zeroed, or a patchwork of zeros and written sectors.
- A name in a directory (created, linked, renamed, removed) is safe once that directory was
  synced. Before, each change may have happened or not, whatever the order.
- A rename inside one directory is atomic; between two it is two changes.

Permissions and locks are not modelled. A kill without power loss is another matter: it loses no
byte that was written, see `FaultFiles`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenloom.store.files import LOCAL, Files, OutFile

__all__ = ["CrashFiles", "Effect", "mix"]

NOTHING_KEPT, NAMES_KEPT, ALL_KEPT = 0, 1, 2  # the seeds of the three extreme states
SECTOR = 512  # bytes that reach the disk together
_MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """A 64-bit hash of some integers (splitmix64), the same on every machine.

    >>> mix(0), mix(1, 2) == mix(2, 1)
    (16294208416658607535, False)
    """
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that was done to the disk; paths are relative to the watched directory."""

    name: str
    path: str
    target: str = ""
    data: bytes = b""


class CrashFiles:
    """Passes calls on to `inner`, and remembers every effect.

    Args:
        root: the directory to watch; what is in it now is safe.
        inner: who does the work.
        forget: calls that are passed on but make nothing safe (`"close"`, `"sync_directory"`): a
            harness that finds no fault in a writer without them finds nothing at all.

    Attributes:
        log: the effects so far.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = CrashFiles(Path(folder.name, "disk"))
    >>> out = files.create(files.root / "a")
    >>> out.write(b"hello")
    >>> out.close()
    >>> files.crash(Path(folder.name, "after"), at=3, seed=0)  # the name was never synced
    >>> sorted(os.listdir(folder.name + "/after"))
    []
    >>> files.sync_directory(files.root)
    >>> files.crash(Path(folder.name, "later"), at=4, seed=0)
    >>> Path(folder.name, "later/a").read_bytes()
    b'hello'
    >>> folder.cleanup()
    """

    def __init__(self, root: Path, inner: Files = LOCAL, *, forget: Collection[str] = ()) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root, self.inner, self.forget = root, inner, forget
        self.log: list[Effect] = []
        self._before = _scan(root)

    def crash(self, target: Path, *, at: int, seed: int) -> None:
        """Write what a power loss after `at` effects may leave into the new directory `target`.

        Seed 0 keeps only what is safe, 1 all names but no unsynced byte, 2 everything; any other
        seed keeps a sample of its own.
        """
        disk = _copy(self._before)
        for effect in self.log[:at]:
            _EFFECTS[effect.name](disk, effect)
        _write_folder(disk, target, _Chance(seed))

    def _note(self, name: str, path: Path, target: Path | None = None, data: bytes = b"") -> None:
        if name not in self.forget:
            places = [os.path.relpath(place, self.root) for place in (path, target) if place]
            self.log.append(Effect(name, *places, data=data))

    # -- Files -----------------------------------------------------------------------------

    def create(self, path: Path) -> OutFile:
        """See `Files`."""
        out = self.inner.create(path)
        self._note("create", path)
        return _CrashOut(self, path, out)

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """See `Files`."""
        self.inner.mkdir(path, mode)
        self._note("mkdir", path)

    def rename_new(self, source: Path, target: Path) -> bool:
        """See `Files`."""
        done = self.inner.rename_new(source, target)
        if done:
            self._note("rename", source, target)
        return done

    def link_new(self, source: Path, target: Path) -> bool:
        """See `Files`."""
        done = self.inner.link_new(source, target)
        if done:
            self._note("link", source, target)
        return done

    def chmod_like(self, path: Path, model: Path) -> None:
        """See `Files`."""
        self.inner.chmod_like(path, model)

    def sync_directory(self, path: Path) -> None:
        """See `Files`."""
        self.inner.sync_directory(path)
        self._note("sync_directory", path)

    def list(self, path: Path) -> list[str]:
        """See `Files`."""
        return self.inner.list(path)

    def read(self, path: Path, limit: int) -> bytes | None:
        """See `Files`."""
        return self.inner.read(path, limit)

    def remove(self, path: Path) -> None:
        """See `Files`."""
        there = os.path.lexists(path)
        self.inner.remove(path)
        if there:
            self._note("remove", path)

    def lock(self, path: Path) -> contextlib.AbstractContextManager[bool | None]:
        """See `Files`."""
        return self.inner.lock(path)


class _CrashOut:
    """A file whose bytes are remembered."""

    def __init__(self, files: CrashFiles, path: Path, inner: OutFile) -> None:
        self._files, self._path, self._inner = files, path, inner

    def write(self, data: Any) -> None:
        self._inner.write(data)
        self._files._note("write", self._path, data=bytes(memoryview(data).cast("B")))

    def close(self) -> None:
        self._inner.close()
        self._files._note("close", self._path)


# -- the disk ------------------------------------------------------------------------------


@dataclass(slots=True)
class _File:
    """Bytes as a process sees them, and how many of them are safe."""

    data: bytes = b""
    safe: int = 0


@dataclass(slots=True)
class _Folder:
    """Names as a process sees them, those that are safe, and the changes in between."""

    names: dict[str, _File | _Folder] = field(default_factory=dict)
    safe: dict[str, _File | _Folder] = field(default_factory=dict)
    pending: list[dict[str, _File | _Folder | None]] = field(default_factory=list)

    def change(self, names: dict[str, _File | _Folder | None]) -> None:
        """Change names (None removes one); together they survive or do not."""
        self.pending.append(names)
        _apply(self.names, names)

    def sync(self) -> None:
        self.safe = dict(self.names)
        self.pending.clear()


def _apply(names: dict[str, _File | _Folder], change: dict[str, _File | _Folder | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _scan(path: Path) -> _Folder:
    """A directory as it is now, all of it safe."""
    folder = _Folder()
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            folder.names[entry.name] = _scan(Path(entry.path))
        else:
            data = Path(entry.path).read_bytes()
            folder.names[entry.name] = _File(data, len(data))
    folder.sync()
    return folder


def _copy(folder: _Folder) -> _Folder:
    """A copy whose names can be changed; everything in `folder` is safe."""
    twin = _Folder(
        {
            name: _copy(node) if isinstance(node, _Folder) else node
            for name, node in folder.names.items()
        }
    )
    twin.sync()
    return twin


def _folder(disk: _Folder, path: str) -> _Folder:
    for name in path.split("/"):
        if name not in ("", "."):
            node = disk.names[name]
            assert isinstance(node, _Folder)  # the real directory had it
            disk = node
    return disk


def _at(disk: _Folder, path: str) -> tuple[_Folder, str]:
    """The folder that a path lies in, and its name there."""
    parent, _, name = path.rpartition("/")
    return _folder(disk, parent), name


def _file(disk: _Folder, path: str) -> _File:
    folder, name = _at(disk, path)
    node = folder.names[name]
    assert isinstance(node, _File)  # only files are written
    return node


def _create(disk: _Folder, effect: Effect) -> None:
    folder, name = _at(disk, effect.path)
    folder.change({name: _File() if effect.name == "create" else _Folder()})


def _write(disk: _Folder, effect: Effect) -> None:
    _file(disk, effect.path).data += effect.data


def _close(disk: _Folder, effect: Effect) -> None:
    file = _file(disk, effect.path)
    file.safe = len(file.data)


def _move(disk: _Folder, effect: Effect) -> None:
    (old, name), (new, target) = _at(disk, effect.path), _at(disk, effect.target)
    node, gone = old.names[name], {name: None} if effect.name == "rename" else {}
    if old is new:
        old.change({target: node, **gone})
    else:
        new.change({target: node})
        old.change({**gone})


def _remove(disk: _Folder, effect: Effect) -> None:
    folder, name = _at(disk, effect.path)
    node = folder.names[name]
    if isinstance(node, _Folder):
        for child in list(node.names):  # a process removes name after name
            _remove(disk, Effect("remove", f"{effect.path}/{child}"))
    folder.change({name: None})


def _sync(disk: _Folder, effect: Effect) -> None:
    _folder(disk, effect.path).sync()


_EFFECTS: dict[str, Callable[[_Folder, Effect], None]] = {
    "create": _create,
    "mkdir": _create,
    "write": _write,
    "close": _close,
    "rename": _move,
    "link": _move,
    "remove": _remove,
    "sync_directory": _sync,
}


# -- what is left of it --------------------------------------------------------------------


class _Chance:
    """Decisions about what survives, all from one seed."""

    def __init__(self, seed: int) -> None:
        self._seed, self._count = seed, 0

    def below(self, number: int) -> int:
        self._count += 1
        return mix(self._seed, self._count) % number

    def keeps_name(self) -> bool:
        return self._seed != NOTHING_KEPT and (self._seed <= ALL_KEPT or self.below(2) == 0)

    def bytes_of(self, file: _File) -> bytes:
        safe, risky = file.data[: file.safe], file.data[file.safe :]
        if self._seed <= NAMES_KEPT or not risky:
            return safe
        kind = 1 if self._seed == ALL_KEPT else self.below(5)
        if kind == 0:
            return safe
        if kind == 1:
            return file.data
        if kind == 2:
            return safe + risky[: self.below(len(risky))]
        if kind == 3:
            return safe + bytes(len(risky))
        sectors = [risky[i : i + SECTOR] for i in range(0, len(risky), SECTOR)]
        return safe + b"".join(s if self.below(2) else bytes(len(s)) for s in sectors)


def _write_folder(folder: _Folder, target: Path, chance: _Chance) -> None:
    target.mkdir()
    names = dict(folder.safe)
    for change in folder.pending:
        if chance.keeps_name():
            _apply(names, change)
    for name, node in names.items():
        if isinstance(node, _Folder):
            _write_folder(node, target / name, chance)
        else:
            (target / name).write_bytes(chance.bytes_of(node))
