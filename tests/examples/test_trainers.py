"""The scripts for trainers run as they stand, from anywhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "examples" / "trainers"
OF_HF = ("hf_trainer", "trl_sft", "accelerate_loop")


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_HF)
def test_a_script_for_hugging_face_resumes_exactly_and_leaves_nothing(tmp_path, name):
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{name}.py")],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "resumed after 5 steps, all losses as without: True" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", OF_HF)
def test_a_script_is_short(name):
    assert len((SCRIPTS / f"{name}.py").read_text().splitlines()) < 30
