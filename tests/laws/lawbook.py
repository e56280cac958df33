"""A law: what holds for every run, tested on random ones.

`@law` turns `test_…(known, draw)` into a Hypothesis test, where `draw` is a `random.Random` whose
seed is printed on failure. The function itself stays in `LAWS`, for longer loops and for the
controls, which break the code and expect the law to notice.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl

Law = Callable[[Any, random.Random], None]

LAWS: dict[str, Law] = {}


def law(function: Law) -> Law:
    LAWS[function.__name__.removeprefix("test_")] = function
    return given(draw=st.randoms(use_true_random=True))(function)


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
