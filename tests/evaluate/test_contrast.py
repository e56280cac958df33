"""Trained documents beside held-out ones: intervals over documents, verdicts, and a picture."""

import math
import xml.etree.ElementTree

import numpy as np
import pytest
from markov import Markov
from refusals import refused

import tokenloom as tl
from tokenloom.evaluate import Decoding, contrast, heat_map, pz
from tokenloom.evaluate.extraction import Interval, drawn_means

ASK = {"prefix": 3, "suffix": 3, "stride": 2, "progress": False}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Documents 0 to 19 follow the chain greedily, 20 to 39 are drawn from nothing."""
    chain, rng = Markov(), np.random.default_rng(4)
    rows = []
    for n in range(40):
        tokens = [n % 12]
        while len(tokens) < 30:
            follow = int(chain.table[tokens[-1]].argmax())
            tokens.append(follow if n < 20 else int(rng.integers(0, 12)))
        rows.append({"input_ids": tokens})
    return tl.build(rows, tmp_path_factory.mktemp("both") / "store", tokenizer=None, vocab_size=12)


@pytest.fixture(scope="module")
def sides(store):
    first, second = range(20), range(20, 40)
    return tuple(pz(Markov(), store.select(doc_index=[*one]), **ASK) for one in (first, second))


def test_what_is_remembered_is_told_from_what_can_be_guessed(sides):
    found = contrast(*sides)
    assert {one.verdict for one in found.figures.values()} == {"remembered"}
    for name, one in found.figures.items():
        values = [side.figures()[name] for side in sides]
        assert (one.trained, one.held) == tuple(v.mean() for v in values)
        assert one.difference.low <= one.trained - one.held <= one.difference.high
    assert found.documents == (20, 20)
    assert found.as_json()["figures"]["mean P(z)"]["verdict"] == "remembered"


def test_control_halves_of_the_same_kind_are_alike(store):
    one, two = (pz(Markov(), store.select(doc_index=[*range(n, 40, 2)]), **ASK) for n in (20, 21))
    assert {each.verdict for each in contrast(one, two).figures.values()} == {
        "no more than the control"
    }
    upside_down = contrast(two, pz(Markov(), store.select(doc_index=[*range(20)]), **ASK))
    assert upside_down.figures["mean P(z)"].verdict.startswith("below the control")


def test_sides_that_were_judged_otherwise_are_refused(store, sides):
    other = pz(Markov(), store, **{**ASK, "decoding": Decoding(0.5)})
    refused(lambda: contrast(sides[0], other), tl.ConfigError, "decoding")


def test_one_document_gives_no_interval_and_no_verdict(store, sides):
    alone = pz(Markov(), store.select(doc_index=25), **ASK)
    assert all(math.isnan(one.low) for one in alone.intervals().values())
    verdicts = {one.verdict for one in contrast(sides[0], alone).figures.values()}
    assert verdicts == {"too few documents to say"}


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Documents with windows that say the same: drawing windows would claim far too much."""
    rng, held, too_small = np.random.default_rng(1), 0, 0
    for _ in range(100):
        each = rng.normal(0.0, 1.0, 30)
        document, values = np.repeat(np.arange(30), 20), np.repeat(each, 20)
        (drawn,) = drawn_means(document, [values], draws=200, seed=int(rng.integers(1 << 30)))
        found = Interval.around(float(values.mean()), drawn, 0.9)
        held += found.low <= 0 <= found.high
        (windows,) = drawn_means(np.arange(600), [values], draws=200, seed=1)
        narrow = Interval.around(float(values.mean()), windows, 0.9)
        too_small += narrow.low <= 0 <= narrow.high
    assert 80 <= held <= 98
    assert too_small < 50  # the control


def test_the_heat_map_has_a_row_for_each_document_that_is_asked_for(sides):
    both = heat_map(sides[0], documents=[0, 3], names={3: "the third"}, columns=30)
    tree = xml.etree.ElementTree.fromstring(both)
    words = [one.text for one in tree.iter() if one.text and one.text.strip()]
    assert "document 0" in words
    assert "the third" in words
    assert "document 1" not in words
