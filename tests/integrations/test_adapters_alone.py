"""Each adapter imports its own framework and no other, told from the sources."""

import ast
import sys
from pathlib import Path

import pytest

import tokenloom

FOLDER = Path(tokenloom.__file__).parent / "integrations"
PLAIN = {"numpy", "tokenloom", *sys.stdlib_module_names}
OWN = {
    "grain": {"grain"},
    "jax": {"jax"},
    "levanter": {"yaml"},  # settings; nothing of Levanter
    "lightning": {"lightning"},
    "torch": {"torch"},
}
USES = {"lightning": {"torch"}}  # adapters that an adapter builds on


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
    assert others <= {name, *USES.get(name, ())}


def test_an_import_of_another_framework_would_be_seen(tmp_path):
    path = tmp_path / "spoiled.py"
    path.write_text("import jax\n\ndef f():\n    from torch.utils import data\n")
    assert set(imported(path)) == {"jax", "torch.utils"}
