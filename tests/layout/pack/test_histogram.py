"""Packing from a histogram: bin by bin what best fit decreasing of the items gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.layout.histogram import pack_histogram
from tokenloom.layout.pack.packers import pack


def lengths_of(made, lengths):
    edges = zip(made.edges[:-1].tolist(), made.edges[1:].tolist(), strict=True)
    return [lengths[made.items[a:b]].tolist() for a, b in edges]


def expanded(plan):
    bins = []
    for stretch in plan.stretches:
        assert stretch.first == len(bins)
        content = [length for length, count in stretch.content for _ in range(count)]
        bins += [content] * (stretch.last - stretch.first)
    return bins


@given(
    st.integers(1, 24),
    st.none() | st.integers(1, 5),
    st.data(),
)
def test_bins_are_those_of_the_items(capacity, most, data):
    some = st.lists(st.integers(1, capacity) | st.sampled_from([1, capacity]), max_size=60)
    lengths = np.array(data.draw(some), np.int64)
    plan = pack_histogram(np.bincount(lengths, minlength=1), capacity, most)
    made = pack(lengths, capacity, "best_fit_decreasing", most)
    assert plan.bins == len(made)
    assert (plan.items, plan.tokens) == (len(lengths), lengths.sum())
    assert expanded(plan) == lengths_of(made, lengths)


@pytest.mark.parametrize("most", [None, 3, 12])
def test_many_items_in_many_lengths(most):
    rng = np.random.default_rng(4)
    lengths = np.clip(rng.lognormal(5, 0.9, 40_000), 1, 512).astype(np.int64)
    plan = pack_histogram(np.bincount(lengths), 512, most)
    made = pack(lengths, 512, "best_fit_decreasing", most)
    assert plan.bins == len(made)
    assert expanded(plan) == lengths_of(made, lengths)
    assert len(plan.stretches) < len(made) / 4 or most == 3  # alike ones are kept together


def test_the_cost_does_not_grow_with_the_items():
    """A thousand times as many items: as many stretches, but for what is left over."""
    rng = np.random.default_rng(4)
    counts = np.bincount(np.clip(rng.lognormal(5, 0.9, 20_000), 1, 512).astype(np.int64))
    small, large = pack_histogram(counts, 512), pack_histogram(counts * 1000, 512)
    assert large.items == 1000 * small.items
    assert len(large.stretches) < 3 * len(small.stretches)
    assert large.fill >= small.fill


@pytest.mark.parametrize(
    ("counts", "capacity", "most"),
    [([1], 8, None), ([0, -1], 8, None), ([0] * 9 + [1], 8, None), ([0, 1], 8, 0)],
)
def test_what_is_no_histogram_is_refused(counts, capacity, most):
    with pytest.raises(tl.ConfigError, match="counts: found"):
        pack_histogram(np.array(counts), capacity, most)


def test_nothing_at_all():
    plan = pack_histogram(np.zeros(4, np.int64), 8)
    assert (plan.bins, plan.fill, plan.items_per_bin, plan.stretches) == (0, 0.0, 0.0, ())
