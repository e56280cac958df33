"""Spliced rows: edge weights, and token counts of far epochs."""

import math
from itertools import pairwise

import numpy as np
import pytest
from toydata import ToyStore, numbered

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def triples(run, first, last):
    """Rows as lists of (document, t, s)."""
    spans = run.spans(range(first, last))
    columns = (spans.document.tolist(), spans.start.tolist(), spans.at.tolist())
    flat = list(zip(*columns, strict=True))
    return [flat[a:b] for a, b in pairwise(spans.frame.tolist())]


@pytest.mark.parametrize("alpha", [0.3, 0.8, 2.0])
@pytest.mark.parametrize("stride", [1, 3])
def test_with_edge_weights_every_start_is_shown_in_the_end(alpha, stride):
    sizes, epochs = (40, 17, 6), 60
    with ToyStore(numbered([sizes], 10)) as toy:
        run = toy.store.splice(8, content_length=6, alpha=alpha, content_stride=stride)
        run = run.shuffle(False).epochs(epochs)
        spans = run.spans(range(len(run)))
    for document, length in enumerate(sizes):
        t = np.arange(0, length - 5, stride)
        found = np.bincount(spans.start[spans.document == document], minlength=length)
        assert set(np.flatnonzero(found).tolist()) == set(t.tolist())
        d = np.minimum(np.minimum(t + 1, length - 6 - t + 1), 6)
        share = (6 / d) ** alpha
        expected = share / share.sum() * found.sum()
        assert np.abs(found[t] - expected).max() <= 3  # of up to a thousand


@pytest.mark.parametrize("content", [True, 3])
def test_the_two_halves_of_a_clipped_pair_change_places_together(content):
    """Halves of other pairs do not fit into one frame: before, such a row was an IndexError."""
    options = {"content_length": 6, "edge": "clip", "fill": "pack", "sampler": "enumerate"}
    with ToyStore(numbered([[11, 4, 23]], 10)) as toy:
        plain = toy.store.splice(6, **options).shuffle(False)
        mixed = toy.store.splice(6, **options, shuffle_content=content).shuffle(False).epochs(3)
        rows = len(plain)
        wanted = triples(plain, 0, rows)
        assert any(len(row) == 2 for row in wanted)
        for epoch in range(3):
            found = triples(mixed, epoch * rows, (epoch + 1) * rows)
            assert sorted(map(sorted, found)) == sorted(map(sorted, wanted))
            assert found != wanted


WAYS = {
    "clip + pack": {"content_length": 6, "edge": "clip", "fill": "pack"},
    "temperature": {"content_length": 6, "edge": "clip", "balance_tau": 0.5, "epoch_length": 41},
    "relative": {"position_scheme": "relative"},
    "swept": {"content_start_mode": "slide_within", "content_length": 5, "offset_stride": 3},
    "clip + BOS": {"content_length": 6, "edge": "clip", "bos": 1},
    "one of many choices": {
        "content_length": 6,
        "edge": "clip",
        "epoch_length": 5,
        "balance_mode": "by_document",
    },
    "growing": {"content_length": 4, "edge": "clip", "doc_growth": {0: 1, 1: 2, 2: 5}},
    "curriculum": {"fill": "pack", "content_length": {0: 4, 33: 7}},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", ["stored", "full", "block"])
def test_tokens_of_the_first_examples_are_those_of_their_spans(way, order):
    with ToyStore(numbered([[30, 9, 14], [5, 23]])) as toy:
        run = toy.store.select(num_docs=5).splice(12, **WAYS[way]).epochs(3)
        orders = {"stored": run.shuffle(False), "full": run.shuffle(), "block": run.block_shuffle()}
        run = orders[order]
        spans = run.spans(range(len(run)))
        wanted = np.concatenate([[0], np.cumsum(spans.length)])[spans.frame].tolist()
        for examples in range(0, len(run) + 1, max(1, len(run) // 40)):
            assert run.tokens_in(examples) == wanted[examples]


@pytest.mark.parametrize("shuffled", [False, True])
def test_far_epochs_add_up_exactly(shuffled):
    """Where a loop would never end; in a period all choices are shown equally often."""
    options = {"content_length": 9, "edge": "clip", "fill": "pack", "epoch_length": 7}
    with ToyStore(numbered([[23, 9, 3]])) as toy:
        run = toy.store.splice(30, **options).shuffle(shuffled).epochs(None)
        each = np.diff([run.tokens_in(7 * epoch) for epoch in range(12)])
        assert len(set(each.tolist())) > 1, "epochs have other numbers of tokens"
        period = 7 * math.lcm(*range(1, 30))  # no document has more choices than 29
        tokens = run.tokens_in(period)
        assert tokens < 30 * period
        assert run.tokens_in(50 * period) == 50 * tokens
        assert run.tokens_in(50 * period + 7) == 50 * tokens + each[0]
