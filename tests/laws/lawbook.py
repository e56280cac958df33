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
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.testing import numpy_alone, tiny

Law = Callable[[Any, random.Random], None]

LAWS: dict[str, Law] = {}

WAYS = ("usual", "tiny", "NumPy", "tiny NumPy")


def law(function: Law | None = None, *, examples: float = 1.0) -> Any:
    """A test of the law on random runs; for some of them all internal sizes are tiny.

    Args:
        function: the law.
        examples: how many, as a multiple of those of the Hypothesis profile.
    """
    if function is None:
        return lambda function: law(function, examples=examples)
    LAWS[function.__name__.removeprefix("test_")] = function

    def test(known, draw, way):
        check(function, known, draw, way)

    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(test, name, getattr(function, name))
    count = max(1, round(examples * settings().max_examples))
    drawn = given(draw=st.randoms(use_true_random=True), way=st.sampled_from(WAYS))
    return settings(max_examples=count)(drawn(test))


def check(function: Law, known, draw: random.Random, way: str = "usual") -> None:
    """The law on what is drawn: with tiny internal sizes, or without the compiled loops."""
    with (
        tiny() if "tiny" in way else contextlib.nullcontext(),
        numpy_alone() if "NumPy" in way else contextlib.nullcontext(),
    ):
        function(known.numpy if "NumPy" in way else known, draw)


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
