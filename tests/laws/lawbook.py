"""A law: what holds for every run, tested on random ones.

`@law` turns `test_…(known, draw)` into a Hypothesis test, where `draw` is a `random.Random` whose
seed is printed on failure. The function itself stays in `LAWS`, for longer loops and for the
controls, which break the code and expect the law to notice.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.testing import tiny

Law = Callable[[Any, random.Random], None]

LAWS: dict[str, Law] = {}


def law(function: Law) -> Law:
    """A test of the law on random runs; for some of them all internal sizes are tiny."""
    LAWS[function.__name__.removeprefix("test_")] = function

    def test(known, draw, small):
        with tiny() if small else contextlib.nullcontext():
            function(known, draw)

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(test, name, getattr(function, name))
    return given(draw=st.randoms(use_true_random=True), small=st.booleans())(test)


def breaks(function: Law, known, seeds=range(40)) -> bool:
    """Whether a law fails on any of some runs; what a defect makes impossible is passed over."""
    for seed in seeds:
        try:
            function(known, random.Random(seed))
        except (AssertionError, pytest.fail.Exception):
            return True
        except tl.ConfigError:
            continue
    return False
