"""The model sees what its three arrays say, and nothing else."""

import pytest
from science.models import Shape, TinyLlama

from tokenloom.evaluate import check_position_invariance

SMALL = {"vocabulary": 256, "width": 32, "heads": 2, "inner": 64, "cells": 96}


@pytest.mark.parametrize(
    ("shape", "verdict"),
    [
        ({}, "invariant"),
        ({"positions": "learned"}, "absolute"),
        ({"isolated": False}, "leaks"),
    ],
)
def test_its_positions_are_what_they_are_called(shape, verdict):
    found = check_position_invariance(
        TinyLlama(Shape(**SMALL | shape), seed=0),
        vocab_size=256,
        length=16,
        offsets=(1, 7, 40),
        rows=2,
    )
    assert found.verdict == verdict, str(found)
