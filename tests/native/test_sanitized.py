"""The short form of `make sanitize`, and controls: what was wrong once is found by it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sanitize

from tokenloom import native

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        native.compiled is None or not shutil.which("gcc"), reason="needs gcc and its sanitizers"
    ),
]


def test_no_entry_gives_a_report():
    done = subprocess.run(
        [sys.executable, str(HERE / "sanitize.py"), "--seconds", "15"],
        capture_output=True,
        text=True,
        timeout=3000,  # for hangs
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "sanitize: no report" in done.stdout
    assert "best_fit accepted" in done.stdout
    assert "Merger.take accepted" in done.stdout


CONTROLS = {
    "a length unchecked": (
        "n.best_fit(I([9]), 8, 9, I([0]))",
        ("_packers.c", "if (length < 0 || length > job->capacity) {", "if (length < 0) {"),
        "AddressSanitizer: heap-buffer-overflow",
    ),
    "a difference that overflows": (
        "n.Copier([I([1]).view('u2')], *I([[0], [0], [1], [2**63 - 2]])).fill(F, 0, 1, -9, 0)",
        (
            "_copier.c",
            "    return !__builtin_sub_overflow(run->cell, (int64_t)base, &at) && at >= done",
            "    at = run->cell - base;\n    return at >= done",
        ),
        "signed integer overflow",
    ),
    "any address": (
        "n.best_fit(np.zeros(17, 'u1')[1:].view('i8'), 8, 9, I([0, 0]))",
        (
            "_arguments.c",
            "    if (!TYPE[wanted->type].anywhere && view->len && (uintptr_t)",
            "    if (0 && (uintptr_t)",
        ),
        "load of misaligned address",
    ),
    "tiles beyond the cells, unchecked in the loop, too": (
        "n.paint(I([0]), I([40]), F[:1] + 1, F, *[None] * 4, 0)",
        ("_cells.c", "    return !(bad >> 63) && !gap;", "    return 1;"),
        (
            "_cells.c",
            "        if (count < 0 || count > work->cells - at)",
            "        if (count < 0)",
        ),
        "AddressSanitizer: heap-buffer-overflow",
    ),
    "checksums of too few pages": (
        "n.Copier([payload(9000, U(2).view('u4'))], *I([[0, 4400, 4, 0]]).T.copy()).fill(F, *R)",
        (
            "_payload.c",
            "(self->sums.obj && (self->sums.len / 4 != count || self->checked.len != count))",
            "0",
        ),
        "AddressSanitizer: heap-buffer-overflow",
    ),
    "more pieces than there is room for": (
        "n.cut([I([0, 3], 'u4')], *I([[0], [0], [0], [3]]), I([0, 0]), *map(E, Q)); 1 / 0",
        ("_pieces.c", "if (out->count < out->room) {", "if (1) {"),
        "AddressSanitizer: heap-buffer-overflow",
    ),
    "a payload that nobody holds": (
        "n.Copier([payload(8)], *I([[0], [0], [4], [0]])).fill(F, 0, 1, 0, 0); raise ValueError",
        (
            "_copier.c",
            "            held->payload = (Payload *)array; /* and its reference */",
            "            held->payload = (Payload *)array; Py_DECREF(array);",
        ),
        "AddressSanitizer: heap-use-after-free",
    ),
}


PREPARED = """
import os, tempfile
import numpy as np
import tokenloom.native as t
n, I, E = t.compiled, np.array, lambda kind="i8": np.array([], kind)
F, Q, R = np.zeros(4, np.int32), ["i8"] * 4, (0, 1, 0, 0)

def U(count):
    return np.ones(count * 2, 'u2')[:count].copy()

def payload(size, sums=None):
    file = tempfile.TemporaryFile(buffering=0)
    file.write(bytes(size))
    checked = None if sums is None else np.zeros(len(sums), 'u1')
    return n.Payload(file.fileno(), size, 'H', sums, checked, 1, 0, 'x')

"""


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    return sanitize.build(tmp_path_factory.mktemp("unchanged") / "package")


@pytest.mark.parametrize("name", list(CONTROLS))
def test_control_a_check_that_is_missing_gives_a_report(tmp_path, unchanged, name):
    code, *change, report = CONTROLS[name]
    script = PREPARED + f"try:\n    {code}\n"
    script += "except Exception as error:\n    print('refused:', error)\n"
    for changes in ((), change):
        folder = sanitize.build(tmp_path / "changed", changes) if changes else unchanged
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=sanitize.environment(folder),
            capture_output=True,
            text=True,
            timeout=600,  # for hangs
        )
        if changes:
            assert report in done.stderr + done.stdout, done.stderr[-2000:]
            assert done.returncode != 0 or "Sanitizer" not in report
        else:
            assert done.stdout.startswith("refused:"), done.stderr[-2000:]
