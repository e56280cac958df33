"""The log of a splice counts what an epoch shows: pairs of a document and a start."""

import json
import logging
import re

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.testing import write_store

LENGTHS = (40, 25, 7, 61)

K, S = 16, 64

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logged") / "store"
    write_store(folder, [[list(range(length)) for length in LENGTHS]])
    return tl.open(folder)


def spliced(store, caplog, **options):
    """The run, and the lines that making it logs."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "tokenloom"):
        run = store.splice(S, content_length=K, **options)
        len(run)
    return run, "\n".join(caplog.messages)


FRAMES = [
    {},
    {"edge": "clip"},
    {"fill": "pack"},
    {"edge": "clip", "fill": "pack"},
    {"position_scheme": "relative"},
]

CHOICES = [
    {},
    {"balance_mode": "by_document"},
    {"balance_tau": 0.3},
    {"doc_weights": [1, 2, 3, 4]},
    {"doc_strides": [1, 3, 5, 1]},
    {"max_epochs": 0.5},
    {"epoch_length": 30},
    {"sampler": "enumerate"},
    {"bos": 5},
]


@pytest.mark.parametrize("frames", FRAMES, ids=str)
@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_pairs_are_those_that_an_epoch_shows(store, caplog, options, frames):
    run, text = spliced(store, caplog, **options, **frames)
    spans = run.spans(np.arange(len(run)))
    counted = np.bincount(spans.document, minlength=len(LENGTHS)).tolist()
    assert int(re.search(r"total_pairs=(\d+)", text)[1]) == sum(counted)
    assert json.loads(re.search(r"pairs_per_doc=(\[.*\])", text)[1]) == counted


@pytest.mark.parametrize("frames", FRAMES, ids=str)
@pytest.mark.parametrize("epochs", [0.2, 0.5, 0.9])
def test_choices_that_an_epoch_leaves_out_are_counted_alike(store, caplog, epochs, frames):
    """A cap below one shows each choice at most once, so what is left out follows from the sum."""
    run, text = spliced(store, caplog, max_epochs=epochs, **frames)
    spans = run.spans(np.arange(len(run)))
    missed, choices = map(int, re.search(r"(\d+) of (\d+) choices are not", text).groups())
    assert missed == choices - len(spans.document)
    if frames.get("edge") == "clip" or "position_scheme" in frames:  # t runs from 2 - K to L - 2
        assert choices == sum(length + K - 3 for length in LENGTHS)
