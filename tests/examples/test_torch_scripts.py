"""The scripts of docs/trainers/torch.md run, are short, and go on where they were killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "examples" / "trainers"


def started(script, *arguments, launcher=()):
    """A script under way, with warnings as errors."""
    return subprocess.Popen(
        [sys.executable, *launcher, str(SCRIPTS / script), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"} | _path(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _path():
    """Where tokenloom is, also for a script in another folder."""
    return {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}


def losses(process, steps=None):
    """Step → loss, as printed; killed after n lines."""
    lines = iter(process.stdout.readline, "")
    found = {}
    for line in lines:
        step, loss = line.split()
        found[int(step)] = float(loss)
        if len(found) == steps:
            os.kill(process.pid, signal.SIGKILL)
            break
    _, errors = process.communicate(timeout=900)
    assert steps is not None or process.returncode == 0, errors
    return found


def test_the_scripts_are_short():
    for script in SCRIPTS.glob("*.py"):
        lines = [line for line in script.read_text().splitlines() if line.strip()]
        assert len(lines) < 30, script.name


@pytest.mark.slow
def test_the_loop_in_plain_torch_goes_on_where_it_was_killed(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    wanted = losses(started("torch_loop.py", whole, 3))
    assert list(wanted) == list(range(1, len(wanted) + 1))
    assert wanted[len(wanted)] < wanted[1]
    found = losses(started("torch_loop.py", parts, 3), steps=len(wanted) // 2)
    found |= losses(started("torch_loop.py", parts, 3))  # what was trained again is the same
    assert found == wanted


@pytest.mark.slow
def test_two_processes_go_on_where_one_was_killed(tmp_path):
    wanted = losses(started("torch_loop.py", tmp_path, 2))
    one = tmp_path / "one"
    first = losses(started("torch_loop.py", one, 2), steps=5)
    run = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    done = started("ddp_loop.py", one, 2, launcher=run).communicate(timeout=900)
    both = [line.split() for line in done[0].splitlines()]
    assert len(both) == 2 * (len(wanted) - int(both[0][0]) + 1), done[1]
    for step, loss in both:  # of both ranks
        assert abs(float(loss) - wanted[int(step)]) < 1e-6 * wanted[int(step)]
    assert all(first[step] == wanted[step] for step in first)
