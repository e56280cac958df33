"""The study of memorization runs in its quick form, and leaves what it says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def study(folder):
    return subprocess.run(
        [sys.executable, "-m", "examples.memorization", "--quick", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=900,
    )


@pytest.mark.slow
def test_the_study_runs_from_text_to_pictures(tmp_path):
    done = study(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the control: 19 held-out documents" in done.stdout
    assert "extracted by greedy decoding, often: packed 0 (0 to 0), spliced 0" in done.stdout
    for way in ("packed", "spliced"):
        names = {one.name for one in (tmp_path / way).iterdir()}
        assert {"heat-often.svg", "heat-held.svg", "results.csv", "results.svg", "model"} <= names
        lines = (tmp_path / way / "results.jsonl").read_text().splitlines()
        steps, losses = zip(
            *((one["step"], loss(one)) for one in map(json.loads, lines)), strict=True
        )
        assert steps == (6, 12)
        assert losses[1] < losses[0]


def loss(record):
    return record["results"]["often"]["all"]["loss"]
