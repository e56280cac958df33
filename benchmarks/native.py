"""The compiled loops: what their checks cost a call.

Two modules are compiled into a temporary folder, one from the sources as they are and one without
the checks of dtype, alignment, overlap and bounds (`UNCHECKED`), and called in turn in one process.
The calls are small, so that what is done once a call is what is seen. Set
``TOKENLOOM_NATIVE_BEFORE`` to another compiled module, such as one of an older checkout, to compare
with that instead.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clock import Row, Table, Timing, interleave, want

__all__ = ["SIZES", "run"]

SIZES = {"tiny": (3, 20), "small": (40, 400), "default": (200, 1000), "full": (600, 1000)}
"""Size → rounds, and calls in each."""

SOURCES = Path(__file__).parents[1] / "src/native"
LIMIT = 1.0  # µs that a checked call may cost more
ITEMS = (4, 256)  # tiles, runs, lengths, sources or indices of a call
PAGE = 4096  # bytes of a file, of which a payload has one checksum

UNCHECKED = [  # file, what is there, what is there instead
    ("_arguments.c", "    if (!fits(view, wanted))\n", "    (void)fits;\n    if (1)\n"),
    ("_arguments.c", "    for (int out = 0; out < count; out++)\n", "    for (int out = 0; 0;)\n"),
    ("_cells.c", "    if (cover(&work.tiles, work.cells)) {\n", "    {\n"),
    ("_copier.c", "!out->obj || !is_lent(self, out)", "(0 && is_lent(self, out)) || 1"),
    ("_copier.c", "    sort_views(self);\n", "    (void)sort_views;\n"),
    ("_merge.c", "        if (wrong) {\n", "        if (0 && wrong) {\n"),
    ("_merge.c", "        if (item < 0 || item > clock->limit) {\n", "        if (0) {\n"),
]


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The table of checked calls."""
    rounds, calls = SIZES[size]
    given = os.environ.get("TOKENLOOM_NATIVE_BEFORE")
    if not shutil.which(_compiler()[0]):
        return [Table(title="native", command=command, rows=[], notes=["There is no compiler."])]
    now = _loaded("now", _compiled(folder / "now", []))
    before = _loaded("before", Path(given) if given else _compiled(folder / "before", UNCHECKED))
    rows = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(bytes(PAGE))
        for items in ITEMS:
            both = [_entries(one, items, file.fileno()) for one in (now, before)]
            for name in both[0]:
                pair = {"now": _many(both[0][name], calls), "before": _many(both[1][name], calls)}
                timing = interleave(pair, rounds)
                rows.append(_more(f"{name}, {items} items", timing, calls))
    than = f"`{given}`" if given else "the same sources without the checks"
    notes = [f"µs of CPU a call, more than {than}; the ratio is of both calls."]
    return [Table(title="native", command=command, rows=rows, notes=notes)]


def _more(what: str, timing: dict[str, Timing], calls: int) -> Row:
    """A row with what a checked call costs more."""
    now, before = timing["now"], timing["before"]
    each = 1e6 / calls
    row = Row(
        what=what,
        value=(now.best - before.best) * each,
        median=(now.median - before.median) * each,
        unit="µs",
        ratio=now.best / before.best,
        of="unchecked",
    )
    return want(row, "<=", LIMIT)


def _many(entry: Callable[[], object], calls: int) -> Callable[[], None]:
    def loop() -> None:
        for _ in range(calls):
            entry()

    return loop


def _entries(module: Any, items: int, fd: int) -> dict[str, Callable[[], object]]:
    """A small call of every entry; tiles and runs of 8 cells; `fd` is of a file of one page."""
    first, length, cells = np.arange(items) * 8, np.full(items, 8), 8 * items
    segment, mask = np.ones(items, np.int32), np.zeros(cells, np.bool_)
    ids, positions, tokens, labels, out = (np.zeros(cells, np.int32) for _ in range(5))
    views = [np.arange(cells, dtype=np.uint16)]
    runs = np.zeros(items, np.int64), first, length, first
    copier = module.Copier(views, *runs)
    lengths, bins = np.full(items, 3), np.zeros(items, np.int64)
    x, words = np.arange(items, dtype=np.uint64), np.zeros(items, np.uint64)
    keys = np.arange(8, dtype=np.uint64).reshape(8, 1)
    outputs = ids, positions, mask, tokens, labels
    zero, edges = np.zeros(1, np.int64), np.arange(items + 1)
    rows = np.zeros(items, np.int64), zero, edges, first, length, np.zeros(items, np.int64)
    spans = edges, rows[-1], length, rows[-1], np.zeros(items, np.uint8)
    room = 3 * items + 1
    tiles = [np.zeros(room, kind) for kind in (np.int64, np.int64, np.int32, np.bool_)]
    offsets = (8 * edges).astype(np.uint32)
    pieces = [np.zeros(size, np.int64) for size in (items + 1, *(items,) * 4)]
    gathered = np.zeros(cells, np.int64)
    part = 0, items, 0, 0, 0, items, 0, -100
    sizes, data = np.full(items, 1 << 9), np.zeros(cells, np.uint8)
    return _of_objects(module, items, fd) | {
        "paint": lambda: module.paint(first, length, segment, *outputs, -100),
        "Copier": lambda: module.Copier(views, *runs),
        "Copier.of_rows": lambda: module.Copier.of_rows(views, *rows, 8),
        "Copier.fill": lambda: copier.fill(out, 0, items, 0, 0),
        "Copier.weave": lambda: copier.weave(*part, first, length, segment, *outputs),
        "tile": lambda: module.tile(*spans, *tiles, 8),
        "cut": lambda: module.cut([offsets], zero, zero, first, first + 8, *pieces),
        "gather": lambda: module.gather(views[0], first, length, None, gathered),
        "best_fit": lambda: module.best_fit(lengths, 8, 9, bins),
        "first_fit": lambda: module.first_fit(lengths, 8, 9, bins),
        "feistel": lambda: module.feistel(x, None, keys, 1000, 32, False, words),
        "hash_rank": lambda: module.hash_rank(x, sizes, x, False, words),
        "crc32c": lambda: module.crc32c(data, 0),
    }


def _of_objects(module: Any, items: int, fd: int) -> dict[str, Callable[[], object]]:
    """The same of mergers, of that many sources, and of payloads, of that many runs."""
    weight, base, end = np.ones(items), np.zeros(items), np.full(items, 1 << 20)
    zero, cost, ties = np.zeros(items, np.int64), np.full(items, 8), np.arange(items, dtype="u8")
    clocks = weight, base, zero, cost, zero, end, ties, False, False
    merger, counts, source, item = module.Merger(*clocks), *(zero.copy() for _ in range(3))

    def take() -> None:
        counts[:] = 0  # it moves them on
        merger.take(counts, None, None, source, item)

    sums, checked = np.array([module.crc32c(bytes(PAGE), 0)], np.uint32), np.zeros(1, np.uint8)
    given = fd, PAGE, "H", sums, checked, True, True, "payload"
    first = np.arange(items) * 8
    copier = module.Copier([module.Payload(*given)], zero, first, np.full(items, 8), first)
    return {
        "Merger": lambda: module.Merger(*clocks),
        "Merger.counts": lambda: merger.counts(100.0, counts),
        "Merger.cut": lambda: merger.cut(items, counts),
        "Merger.take": take,
        "Payload": lambda: module.Payload(*given),
        "Copier.announce": lambda: copier.announce(1),
    }


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or "cc")


def _compiled(folder: Path, changes: list[tuple[str, str, str]]) -> Path:
    """A module compiled from the sources, with some changes."""
    shutil.copytree(SOURCES, folder)
    for name, text, other in changes:
        source = (folder / name).read_text()
        if source.count(text) != 1:
            raise ValueError(f"{name}: {text!r} is not there once; mend benchmarks/native.py.")
        (folder / name).write_text(source.replace(text, other))
    out, include = folder / "_native.abi3.so", sysconfig.get_paths()["include"]
    flags = ["-O3", "-DNDEBUG", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030B0000", f"-I{include}"]
    sources = sorted(map(str, folder.glob("*.c")))
    subprocess.run([*_compiler(), *flags, *sources, "-o", str(out)], check=True)
    return out


def _loaded(name: str, path: Path) -> Any:
    """A compiled module under a name of its own."""
    loader = importlib.machinery.ExtensionFileLoader(f"{name}._native", str(path))
    spec = importlib.util.spec_from_file_location(f"{name}._native", path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
