"""The examples in docstrings are true."""

import doctest
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "science"


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("[a-z]*.py")))
def test_examples_in_docstrings_are_true(name):
    assert doctest.testmod(importlib.import_module(f"science.{name}")).failed == 0
