"""Each adapter imports its own framework and no other.

It runs in a process of its own in which no other framework can be imported.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokenloom.testing import write_store

WORKER = Path(__file__).parent / "adapter_alone.py"
OWN = {
    "grain": {"grain"},
    "hf": {"torch", "transformers", "accelerate"},
    "jax": {"jax"},
    "levanter": {"yaml"},  # settings; nothing of Levanter
    "lightning": {"lightning"},
    "torch": {"torch"},
}
USES = {"hf": {"torch"}, "lightning": {"torch"}}  # adapters that an adapter builds on
FRAMEWORKS = {
    *("accelerate", "datasets", "grain", "ignite", "jax", "keras", "levanter", "lightning"),
    *("torch", "torchdata", "transformers", "trl"),
}
HEAVY = {"grain", "hf", "jax", "lightning", "torch"}  # seconds to import


def alone(name, store, others):
    """What a process prints that has only what an adapter needs."""
    path = os.pathsep.join(str(one) for one in (Path(__file__).parent, *filter(None, sys.path)))
    return subprocess.run(
        [sys.executable, str(WORKER), name, str(store), *sorted(others)],
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,  # for hangs
        check=False,
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The documents of `hftrainers.packed_run`, without importing transformers here."""
    root = tmp_path_factory.mktemp("alone") / "store"
    documents = [[1 + (7 * n + k) % 60 for k in range(2 + n % 29)] for n in range(60)]
    write_store(root, [documents], vocab_size=64)
    return root


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one in HEAVY)) for one in OWN]
)
def test_an_adapter_delivers_where_no_other_framework_is_installed(name, stored):
    needed = OWN[name] | {one for other in USES.get(name, ()) for one in OWN[other]}
    done = alone(name, stored, FRAMEWORKS - needed)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["found"] == [list(range(at, at + 4)) for at in (0, 4, 8)]
    assert told["there"] == []
