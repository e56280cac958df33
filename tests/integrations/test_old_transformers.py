"""Versions of transformers before and after 4.53, from which on positions keep documents apart.

Each is installed once into a folder of the user's cache, without dependencies, and found first by
a process of its own; torch and the rest are those of this environment. Without a package index the
tests fail and say so: a skip would look like a version that works.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tokenloom-tests"
HERE = Path(__file__).parent
BESIDE = ("accelerate==1.7.0", "datasets==3.6.0", "huggingface_hub==0.36.0")
VERSIONS = {
    "4.52.4": ("tokenizers==0.21.4", *BESIDE),
    "4.57.1": ("tokenizers==0.22.1", *BESIDE),
}
MASKED = {"hf": "refused", "sdpa": "passes", "flash": "refused", "auto": "sdpa"}
APART = {"hf": "passes", "sdpa": "passes", "flash": "passes", "auto": "hf"}


def installed(version):
    """A folder with that version, or a failure that says how to get it."""
    folder = CACHE / f"transformers-{version}"
    if not (folder / "complete").exists():
        wanted = (f"transformers=={version}", *VERSIONS[version])
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
        command = [*pip, "--upgrade", "--target", str(folder), *wanted]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode:
            pytest.fail(f"no transformers {version}: run {' '.join(command)}\n{done.stderr[-800:]}")
        (folder / "complete").touch()
    return folder


def told(version, folder):
    """What `old_transformers.py` prints with that version."""
    path = (installed(version), HERE, HERE.parent / "shared", *filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, str(HERE / "old_transformers.py"), str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,  # for hangs
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("version", "wanted"), [("4.52.4", MASKED), ("4.57.1", APART)])
def test_a_version_that_leaks_is_refused_or_gets_a_mask_and_resumes_exactly(
    version, wanted, tmp_path
):
    found = told(version, tmp_path)
    assert found["version"] == version
    assert found["eager"] == found["sdpa"] == wanted
    assert found["attach"] == wanted["hf"]
    assert found["masked"] == (wanted["auto"] == "sdpa")
    assert found["whole"] == list(range(24))  # the order of the run
    assert found["resumed"] == list(range(12, 24))
    whole, again = found["losses"]
    assert len(whole) == 6
    assert again == {step: whole[step] for step in again}
    assert {"4", "5", "6"} <= set(again)
