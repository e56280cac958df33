"""Closed counts of whole epochs equal those of a visit to every row, and visit none."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from splicedtoys import spliced_datasets, toy_store

from tokenloom.inspect import coverage
from tokenloom.inspect.counts import Counts, count
from tokenloom.inspect.splices import spliced
from tokenloom.inspect.tallies import Tallies
from tokenloom.layout.splice.phase import SplicePhase
from tokenloom.testing import tiny


def alike(found, listed, document):
    """Everything about a document in both; `listed` counted row by row."""
    place = listed.documents.tolist().index(document)
    assert found.context(document).tolist() == listed.of(listed.context, place).tolist()
    starts = found.starts(document)
    assert starts.shown.tolist() == listed.starts[listed.zero[place] + starts.t].tolist()
    assert starts.shown.sum() == listed.splices[place] == found.splices[place]


@given(spliced_datasets())
@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
def test_closed_counts_equal_those_of_every_row(case):
    ds, _ = case
    found = coverage(ds.epochs(None), epochs=3)
    assume(isinstance(found.counts, Tallies))
    listed = count(ds.epochs(None), found.documents, found.lengths, found.examples)
    for place, document in enumerate(found.documents.tolist()):
        alike(found, listed, document)
        assert found.targets(document).tolist() == listed.of(listed.targets, place).tolist()


def test_groups_of_neighbours_are_counted_as_one():
    """However few documents are counted together, and in whatever order they are asked for."""
    ds = toy_store(9, 4, 0, 7, 12, 3).splice(8, content_length=4, edge="clip", fill="pack")
    whole = coverage(ds, epochs=1)
    wanted = [whole.context(document).tolist() for document in range(6)]
    with tiny(tally_chunk_tokens=5):
        found = coverage(ds, documents=[4, 0, 3, 5, 1, 2], epochs=1)
        for document in (5, 0, 4, 1, 3, 2, 2):
            assert found.context(document).tolist() == wanted[document]


def test_parts_of_epochs_and_swept_offsets_are_counted_row_by_row():
    store = toy_store(9, 14)
    ds = store.splice(8, content_length=4)
    assert isinstance(coverage(ds).counts, Tallies)
    assert isinstance(coverage(ds.take(5)).counts, Counts)
    with pytest.warns(UserWarning, match="at several offsets"):
        swept = store.splice(8, content_length=4, content_start_mode="slide_within")
    assert isinstance(coverage(swept).counts, Counts)
    across = store.splice(8, content_length=4, fill="pack", mask_boundary_loss=False)
    assert isinstance(coverage(across).counts, Counts)


@pytest.mark.parametrize("options", [{}, {"edge": "clip", "fill": "pack"}, {"alpha": 0.8}])
def test_a_table_visits_no_row_and_keeps_no_counts_of_all_tokens(options, monkeypatch):
    """The peak is that of a few documents, not of the store; an epoch more costs nothing."""
    ds = toy_store(*[3000] * 80).splice(64, content_length=32, **options)
    spliced(ds)

    def show(*args):
        raise AssertionError("a row was visited")

    monkeypatch.setattr(SplicePhase, "show", show)
    with tiny(tally_chunk_tokens=1 << 12):
        tracemalloc.start()
        found = coverage(ds.epochs(None), epochs=1000)
        lines, table = found.lines(), found.as_json()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(lines) == 44
        assert len(table["documents"]) == 80
        assert found.splices.sum() == table["splices"] >= found.examples
        assert peak < 12 * 240_000, "below twelve bytes a token, where arrays of counts take 24"
        assert np.isclose(found.context(7).sum(), table["documents"][7]["splices"] * 32, rtol=0.2)
        with pytest.raises(AssertionError, match="visited"):  # control: the other way visits rows
            coverage(ds.take(5))
