"""The tests of JAX, in a process of their own.

JAX starts threads and warns at every fork of its process, and the number of its devices is set
before it is imported. Other tests fork, so it is imported in no process that runs them.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = "tests/integrations/injax"


def in_jax(marked):
    """What pytest printed in a process where JAX has four devices."""
    mine = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marked]
    command += ["-p", "pytest_timeout"]
    command += ["-o", "doctest_optionflags=ELLIPSIS NORMALIZE_WHITESPACE", "--doctest-modules"]
    ours = ("src/tokenloom/integrations/jax", "src/tokenloom/evaluate/models.py")
    command += [FOLDER, "tests/integrations/test_trainer_contract.py", *ours]
    done = subprocess.run(
        command,
        cwd=ROOT,
        # plugins of other packages take a second to import
        env=mine | {"TOKENLOOM_IN_JAX": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=1800,  # for hangs
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout


def test_everything_about_jax_passes_where_it_has_four_devices():
    told = in_jax("not slow")
    passed = re.search(r"(\d+) passed", told)
    assert int(passed[1]) >= 21
    assert "skipped" not in told
    assert "failed" not in told


@pytest.mark.slow
def test_two_processes_of_jax_pass_too():
    assert re.search(r"[1-9]\d* passed", in_jax("slow"))


def test_no_other_test_has_imported_jax():
    """A control: if one did, forks of this process would warn, and may hang."""
    assert "jax" not in sys.modules or not sys.modules["jax"]._src.xla_bridge._backends
