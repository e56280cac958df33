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
    assert "fuzzed  best_fit accepted" in done.stdout


CONTROLS = {
    "a length unchecked": (
        "n.best_fit(I([9]), 8, 9, I([0]))",
        ("_packers.c", "if (length < 0 || length > job->capacity) {", "if (length < 0) {"),
        "AddressSanitizer: heap-buffer-overflow",
    ),
    "overlap allowed": (
        "m = np.zeros(9, 'i4'); n.paint(I([0]), I([8]), m[:1] + 1, *[None] * 3, m[:-1], m[1:], 0)",
        ("_arguments.c", "    if (one->len <= 0 || other->len <= 0)\n", "    if (1)\n"),
        "AddressSanitizer: memcpy-param-overlap",
    ),
    "a difference that overflows": (
        "n.Copier([I([1]).view('u2')], *I([[0], [0], [1], [2**63 - 2]])).fill(F, 0, 1, -9, 0)",
        (
            "_native.c",
            "    return !__builtin_sub_overflow(run->cell, (int64_t)base, &at) && at >= done",
            "    at = run->cell - base;\n    return at >= done",
        ),
        "signed integer overflow",
    ),
    "any address": (
        "n.best_fit(np.zeros(17, 'u1')[1:].view('i8'), 8, 9, I([0, 0]))",
        ("_arguments.c", "    if (item && view->len && (uintptr_t)", "    if (0 && (uintptr_t)"),
        "load of misaligned address",
    ),
}


@pytest.mark.parametrize("name", list(CONTROLS))
def test_control_a_check_that_is_missing_gives_a_report(tmp_path, name):
    code, change, report = CONTROLS[name]
    script = "import numpy as np, tokenloom.native as t\nn, I = t.compiled, np.array\n"
    script += "F = np.zeros(4, np.int32)\n"
    script += f"try:\n    {code}\n"
    script += "except (ValueError, IndexError) as error:\n    print('refused:', error)\n"
    for changes in ((), (change,)):
        folder = sanitize.build(tmp_path / str(len(changes)), changes)
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=sanitize.environment(folder),
            capture_output=True,
            text=True,
            timeout=600,  # for hangs
        )
        if changes:
            assert done.returncode != 0
            assert report in done.stderr, done.stderr[-2000:]
        else:
            assert done.stdout.startswith("refused:"), done.stderr[-2000:]
