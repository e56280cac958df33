"""Experiments are imported from the root of the repository; torch uses one thread."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from science.models import Shape, TinyLlama

import tokenloom as tl


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small():
    """A model of a few thousand parameters; arguments are those of `Shape`."""

    def make(seed=0, **shape):
        usual = {"vocabulary": 256, "width": 32, "heads": 2, "inner": 64, "cells": 96}
        return TinyLlama(Shape(**usual | shape), seed=seed)

    return make


TEXTS = (
    "The loom is old and the thread is new",
    "A token knows the book that it is from",
    "One integer says where we were before",
)


@pytest.fixture
def trio(tmp_path):
    """Three documents of letters."""
    return tl.build([{"text": text} for text in TEXTS], tmp_path / "trio", tokenizer="bytes")
