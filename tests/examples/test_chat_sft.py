"""The script for conversations does what it says."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "trainers" / "chat_sft.py"


def test_the_script_is_short_and_trains_what_the_assistant_said(tmp_path):
    importlib.import_module("torch")
    assert len(SCRIPT.read_text().splitlines()) < 30
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "s"],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert r"trained: '4.\nYes.\n'" in done.stdout
    assert "over 32 trained tokens" in done.stdout
