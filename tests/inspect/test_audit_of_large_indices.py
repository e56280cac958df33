"""An audit of indices takes memory for the indices given, not for the largest of them."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

import tokenloom as tl

FAR = 10**14


@pytest.mark.parametrize("largest", [FAR, 2**63 - 2])
def test_large_indices_are_counted_one_by_one(largest):
    audit = tl.audit(np.array([0, largest]))
    assert audit.ok, audit
    again = tl.audit(np.array([0, largest, 5, largest]), np.array([7, largest]))
    assert again.laws["repeated"].broken == 1
    assert f"row {largest:,} comes 3 times" in again.laws["repeated"].examples[0]


def test_rows_that_never_come_are_counted_without_a_list_of_them():
    audit = tl.audit(np.array([1, 0, FAR - 1]), np.array([4, 1]), rows=FAR, epochs=1)
    lost, ranks = audit.laws["lost"], audit.laws["ranks"]
    assert (lost.looked_at, lost.broken) == (FAR, FAR - 4)
    assert [text.split("row ")[1] for text in lost.examples] == [
        f"{row} comes 0 times" for row in (2, 3, 5)
    ]
    assert (ranks.looked_at, ranks.broken) == (4, 1)
    assert "2 ranks have row 1" in ranks.examples[0]


def test_more_epochs_than_can_be_judged_one_by_one_are_refused():
    refused(lambda: tl.audit(np.array([1, 2]), rows=10, epochs=10**12), tl.ConfigError, "epochs")


def slices(stream, count):
    """A list in equal parts."""
    edges = [len(stream) * number // count for number in range(count + 1)]
    return [stream[low:high] for low, high in itertools.pairwise(edges)]


@given(
    ranks=st.lists(st.lists(st.integers(0, 12), max_size=20), min_size=1, max_size=3),
    rows=st.integers(1, 14),
    epochs=st.none() | st.integers(1, 3),
)
def test_counts_are_those_of_a_plain_count(ranks, rows, epochs):
    audit = tl.audit(*(np.array(rank, np.int64) for rank in ranks), rows=rows, epochs=epochs)
    inside = [slices([index for index in rank if index < rows], epochs or 1) for rank in ranks]
    lost, repeated, shared = [], [], []
    for epoch, parts in enumerate(zip(*inside, strict=True)):
        times = Counter(itertools.chain(*parts))
        total = times.total()
        least = max(1, 1 if epochs else total // rows)
        most = max(1, 1 if epochs else -(-total // rows))
        for row in range(rows):
            text = f"epoch {epoch}: row {row:,} comes {times[row]} times"
            lost += [text] if times[row] < least else []
            repeated += [text] if times[row] > most else []
        if len(ranks) > 1 and (epochs or total <= rows):
            owners = Counter(itertools.chain(*map(set, parts)))
            shared += [row for row, count in owners.items() if count > 1]
    for law, wrong in (("lost", lost), ("repeated", repeated), ("ranks", shared)):
        if law not in audit.laws:  # nothing was there to look at
            assert not wrong
            continue
        assert audit.laws[law].broken == len(wrong)
        if law != "ranks":
            assert list(audit.laws[law].examples) == wrong[:3]
