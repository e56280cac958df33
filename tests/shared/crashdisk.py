"""Power loss: what the disk may hold when the machine stops after the N-th effect of a writer.

`CrashFiles` works on a real directory and keeps every effect. From these alone, any number of crash
states can be made afterwards, each in a directory of its own, and opened, verified and built on
like the real thing. (A kill without power loss is another matter: it loses no byte that was
written, see ``FaultFiles(action="stop")``.)

The disk is modelled in memory. Every change is kept twice, as a process sees it and as it is safe.
A sync makes the two equal; a power loss takes the safe state and lets chance add any of the changes
since. The model is as unkind as POSIX allows:

- The bytes of a file are safe once it was closed (`Files` syncs there). Before, the file may be
  empty, whole, cut anywhere, zeroed, or a patchwork of zeros and written sectors.
- A name in a directory (created, linked, renamed, removed) is safe once that directory was
  synced. Before, each change may have happened or not, whatever the order.
- A rename inside one directory is atomic; between two it is two changes.

Permissions and locks are not modelled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tokenloom.testing import FaultFiles

__all__ = ["CrashFiles", "mix"]

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
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state


class CrashFiles(FaultFiles):
    """Writes files, and remembers every effect.

    Args:
        root: the directory to watch, made if missing; what is in it now is safe.
        inner: see `FaultFiles`.
        forget: calls that are passed on but make nothing safe (`"close"`, `"sync_directory"`). A
            harness that finds no fault in a writer without them finds nothing at all.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = CrashFiles(Path(folder.name, "disk"))
    >>> out = files.create(files.root / "a")
    >>> out.write(b"hello")
    >>> out.close()
    >>> files.crash(Path(folder.name, "after"), at=3, seed=0)  # the name was never synced
    >>> os.listdir(folder.name + "/after")
    []
    >>> files.sync_directory(files.root)
    >>> files.crash(Path(folder.name, "later"), at=4, seed=0)
    >>> Path(folder.name, "later/a").read_bytes()
    b'hello'
    >>> folder.cleanup()
    """

    def __init__(self, root: Path, inner=None, *, forget: Collection[str] = ()) -> None:
        super().__init__(inner, only=_EFFECTS.keys() - set(forget))
        root.mkdir(parents=True, exist_ok=True)
        self.root, self._before = root, scan(root)
        self._log: list[Effect] = []
        self._looked_at = 0

    @property
    def log(self) -> list[Effect]:
        """The effects so far; only this disk is modelled."""
        for call in self.calls[self._looked_at :]:
            path, target = (call.path, None) if call.source is None else (call.source, call.path)
            where = os.path.relpath(path, self.root)
            if call.done and not where.startswith(".."):
                to = os.path.relpath(target, self.root) if target else ""
                self._log.append(Effect(call.name, where, to, call.data))
        self._looked_at = len(self.calls)
        return self._log

    def crash(self, target: Path, *, at: int, seed: int) -> None:
        """Write what a power loss after `at` effects may leave into the new directory `target`.

        Seed 0 keeps only what is safe, 1 all names but no unsafe byte, 2 everything; any other
        seed keeps a sample of its own.
        """
        write_after_crash(play(self._before, self.log[:at]), target, seed)


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that was done to the disk; paths are relative to the watched directory."""

    name: str
    path: str
    target: str = ""
    data: bytes = b""


@dataclass(slots=True)
class _File:
    """Bytes as a process sees them, and how many of them are safe."""

    data: bytes = b""
    safe: int = 0


@dataclass(slots=True)
class Folder:
    """Names as a process sees them, those that are safe, and the changes in between."""

    names: dict[str, _File | Folder] = field(default_factory=dict)
    safe: dict[str, _File | Folder] = field(default_factory=dict)
    pending: list[dict[str, _File | Folder | None]] = field(default_factory=list)

    def change(self, names: dict[str, _File | Folder | None]) -> None:
        """Change names (None removes one); together they survive or do not."""
        self.pending.append(names)
        _apply(self.names, names)

    def sync(self) -> None:
        """Make all names safe."""
        self.safe = dict(self.names)
        self.pending.clear()


def _apply(names: dict[str, _File | Folder], change: dict[str, _File | Folder | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def scan(path: Path) -> Folder:
    """A directory as it is now, all of it safe."""
    folder = Folder()
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            folder.names[entry.name] = scan(Path(entry.path))
        else:
            data = Path(entry.path).read_bytes()
            folder.names[entry.name] = _File(data, len(data))
    folder.sync()
    return folder


def play(before: Folder, effects: Iterable[Effect]) -> Folder:
    """The disk after these effects; `before`, where everything is safe, stays as it is."""
    disk = _copy(before)
    for effect in effects:
        _EFFECTS[effect.name](disk, effect)
    return disk


def _copy(folder: Folder) -> Folder:
    nodes = folder.names.items()
    twin = Folder({name: _copy(node) if isinstance(node, Folder) else node for name, node in nodes})
    twin.sync()
    return twin


# -- effects -------------------------------------------------------------------------------
def _folder(disk: Folder, path: str) -> Folder:
    for name in path.split("/"):
        if name not in ("", "."):
            node = disk.names[name]
            assert isinstance(node, Folder)  # the real directory had it
            disk = node
    return disk


def _place(disk: Folder, path: str) -> tuple[Folder, str]:
    """The folder that a path lies in, and its name there."""
    parent, _, name = path.rpartition("/")
    return _folder(disk, parent), name


def _file(disk: Folder, path: str) -> _File:
    folder, name = _place(disk, path)
    node = folder.names[name]
    assert isinstance(node, _File)  # only files are written
    return node


def _create(disk: Folder, effect: Effect) -> None:
    folder, name = _place(disk, effect.path)
    folder.change({name: _File() if effect.name == "create" else Folder()})


def _write(disk: Folder, effect: Effect) -> None:
    _file(disk, effect.path).data += effect.data


def _close(disk: Folder, effect: Effect) -> None:
    file = _file(disk, effect.path)
    file.safe = len(file.data)


def _move(disk: Folder, effect: Effect) -> None:
    (old, name), (new, target) = _place(disk, effect.path), _place(disk, effect.target)
    node = old.names[name]
    gone: dict[str, _File | Folder | None] = {name: None} if effect.name == "rename_new" else {}
    if old is new:
        old.change({target: node, **gone})
    else:
        new.change({target: node})
        old.change(gone)


def _remove(disk: Folder, effect: Effect) -> None:
    folder, name = _place(disk, effect.path)
    node = folder.names[name]
    if isinstance(node, Folder):
        for child in list(node.names):  # a process removes name after name
            _remove(disk, Effect("remove", f"{effect.path}/{child}"))
    folder.change({name: None})


def _sync(disk: Folder, effect: Effect) -> None:
    _folder(disk, effect.path).sync()


_EFFECTS: dict[str, Callable[[Folder, Effect], None]] = {
    "create": _create,
    "mkdir": _create,
    "write": _write,
    "close": _close,
    "rename_new": _move,
    "link_new": _move,
    "remove": _remove,
    "sync_directory": _sync,
}


# -- what is left --------------------------------------------------------------------------
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
        if self._seed == ALL_KEPT:
            return file.data
        sectors = [risky[i : i + SECTOR] for i in range(0, len(risky), SECTOR)]
        fates = (
            b"",
            risky,
            risky[: self.below(len(risky))],
            bytes(len(risky)),
            b"".join(s if self.below(2) else bytes(len(s)) for s in sectors),
        )
        return safe + fates[self.below(len(fates))]


def write_after_crash(disk: Folder, target: Path, seed: int) -> None:
    """Write what a power loss may leave of the disk into the new directory `target`.

    Seed 0 keeps only what is safe, 1 all names but no unsafe byte, 2 everything; any other seed
    keeps a sample of its own.
    """
    _write_folder(disk, target, _Chance(seed))


def _write_folder(folder: Folder, target: Path, chance: _Chance) -> None:
    target.mkdir()
    names = dict(folder.safe)
    for change in folder.pending:
        if chance.keeps_name():
            _apply(names, change)
    for name, node in names.items():
        if isinstance(node, Folder):
            _write_folder(node, target / name, chance)
        else:
            (target / name).write_bytes(chance.bytes_of(node))
