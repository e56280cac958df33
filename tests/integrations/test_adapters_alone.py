"""Each adapter imports its own framework and no other: told from the sources, and tried.

What is tried runs in a process of its own in which no other framework can be imported.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tokenloom
from tokenloom.testing import write_store

WORKER = Path(__file__).parent / "adapter_alone.py"
FOLDER = Path(tokenloom.__file__).parent / "integrations"
PLAIN = {"numpy", "tokenloom", *sys.stdlib_module_names}
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


def sources(name):
    folder = FOLDER / name
    return [*folder.rglob("*.py")] if folder.is_dir() else [FOLDER / f"{name}.py"]


def imported(path):
    """Every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.module


@pytest.mark.parametrize("name", OWN)
def test_an_adapter_imports_its_own_framework_alone(name):
    modules = {one for path in sources(name) for one in imported(path)}
    packages = {one.split(".")[0] for one in modules}
    assert packages - PLAIN <= OWN[name]
    others = {one.split(".")[2] for one in modules if one.startswith("tokenloom.integrations.")}
    assert others & set(OWN) <= {name, *USES.get(name, ())}


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
