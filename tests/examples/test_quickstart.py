"""The short session of the README runs as it stands, from anywhere."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "quickstart.py"


def test_the_quickstart_runs_and_leaves_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "3 documents, 183 tokens" in done.stdout
    assert "'An old s'" in done.stdout
    assert "all is well" in done.stdout
    assert "resumed:           True" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_quickstart_is_short():
    assert len(SCRIPT.read_text().splitlines()) <= 50
