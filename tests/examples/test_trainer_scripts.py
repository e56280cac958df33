"""The scripts for trainers are short, run as they stand, and leave nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "trainers"


def output(name, tmp_path, *arguments, **environment):
    script = FOLDER / f"{name}.py"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary), **environment},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["temporary"]
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.slow
def test_the_lightning_script_resumes_with_the_same_losses(tmp_path):
    found = [line for line in output("lightning_fit", tmp_path) if line.startswith("step ")]
    whole, parts = found[:8], found[8:]
    assert parts == whole
    assert len({line.split()[-1] for line in whole}) == 8


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 4])
def test_the_jax_script_learns_in_two_passes_on_any_number_of_devices(tmp_path, devices):
    flags = f"--xla_force_host_platform_device_count={devices}"
    first, second = output("jax_loop", tmp_path, XLA_FLAGS=flags)
    assert first.startswith("epoch 0: loss ")
    assert float(second.split()[3].rstrip(",")) < float(first.split()[3].rstrip(","))


@pytest.mark.slow
def test_the_grain_script_resumes(tmp_path):
    *steps, last = output("grain_loop", tmp_path)
    assert len(steps) == 8
    assert last == "resumed: True (2, 2, 64)"


def test_the_script_for_levanter_goes_on_at_the_step_where_it_stopped(tmp_path):
    lines = output("levanter_rows", tmp_path)
    assert [line.split(":")[0] for line in lines] == [f"step {n}" for n in range(5)]
    assert all(line.endswith("targets, the same: True") for line in lines)
    assert len({line.split()[2] for line in lines}) > 1  # other rows in other steps


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hf_trainer", "trl_sft", "accelerate_loop"])
def test_a_script_for_hugging_face_resumes_exactly(tmp_path, name):
    *_, last = output(name, tmp_path)
    assert last == "resumed after 5 steps, all losses as without: True"


def test_the_script_for_conversations_trains_what_the_assistant_said(tmp_path):
    text = "\n".join(output("chat_sft", tmp_path, "temporary/s", PYTHONWARNINGS="error"))
    assert r"trained: '4.\nYes.\n'" in text
