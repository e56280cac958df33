"""Coverage: counts equal those of the arrays that a model gets, and can be looked at."""

import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from splicedtoys import BOS, slow_counts, spliced_datasets, toy_store

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.inspect import coverage, triples
from tokenloom.testing import write_flat


def listed(ds, examples):
    found = triples(ds, np.arange(examples))
    return list(zip(found.document.tolist(), found.t.tolist(), found.s.tolist(), strict=True))


@given(spliced_datasets(), st.integers(1, 2))
@settings(max_examples=60)
def test_counts_equal_those_of_the_arrays_of_every_batch(case, epochs):
    ds, lengths = case
    found = coverage(ds, epochs=epochs)
    context, targets = slow_counts(ds, lengths, found.examples)
    for document, length in enumerate(lengths):
        wanted = [context[document, j] for j in range(length)]
        assert found.context(document).tolist() == wanted
        wanted = [targets[document, j] for j in range(length)]
        assert found.targets(document).tolist() == wanted
    assert found.lengths.tolist() == lengths


@given(spliced_datasets(), st.integers(1, 2), st.tuples(st.integers(1, 5), st.integers(1, 5)))
@settings(max_examples=40)
def test_starts_grids_and_splices_add_up_to_the_listing(case, epochs, bins):
    ds, lengths = case
    found = coverage(ds, epochs=epochs)
    every = listed(ds, found.examples)
    assert int(found.splices.sum()) == len(every)
    for place, document in enumerate(range(len(lengths))):
        shown = [(t, s) for d, t, s in every if d == document]
        starts = found.starts(document)
        assert found.splices[place] == len(shown) == starts.shown.sum()
        counts = [sum(t == one for t, _ in shown) for one in starts.t.tolist()]
        assert starts.shown.tolist() == counts
        whole = found.grid(document)  # a bin for each (t, s): these are small
        assert whole.t.edges[:-1].tolist() == starts.t.tolist()
        assert whole.counts.sum(axis=1).tolist() == counts
        for (i, j), value in np.ndenumerate(whole.counts):
            s = whole.s.edges[j], whole.s.edges[j + 1]
            assert value == sum(t == starts.t[i] and s[0] <= at < s[1] for t, at in shown)
        binned = found.grid(document, bins)
        assert binned.counts.sum() == len(shown)
        assert binned.counts.shape[0] == min(bins[0], len(starts.t))


# -- evenness ------------------------------------------------------------------------------


@pytest.mark.parametrize("fill", ["one", "pack"])
@pytest.mark.parametrize("bos", [False, BOS])
@pytest.mark.parametrize("stride", [1, 3])
def test_clipped_windows_make_every_token_a_target_equally_often(fill, bos, stride):
    lengths = (7, 23, 60)
    options = {"content_length": 7, "edge": "clip", "fill": fill, "content_stride": stride}
    ds = toy_store(*lengths).splice(24, bos=bos, sampler="enumerate", **options)
    found = coverage(ds)
    for document in range(len(lengths)):
        targets = found.targets(document).tolist()
        assert set(targets[0 if bos else 1 :]) == {6 // stride}
        assert bos or targets[0] == 0
        assert found.variation(document) == 0.0


def test_windows_inside_a_document_do_not():
    found = coverage(toy_store(60).splice(24, content_length=7))
    assert found.variation(0) > 0.1
    assert found.targets(0).tolist()[:8] == [0, 1, 2, 3, 4, 5, 6, 6]


def test_a_stride_that_does_not_divide_is_seen_to_be_uneven():
    with pytest.warns(UserWarning, match="content_stride"):
        ds = toy_store(60).splice(24, content_length=7, edge="clip", content_stride=4)
    found = coverage(ds.epochs(1))
    assert set(found.trained(0).tolist()) == {1, 2}
    assert found.variation(0) > 0.1


def test_edge_weights_show_as_published(tmp_path):
    """L = 50,000, K = 4,096: alpha 0 has CV 0.24, 0.5 has 0.22, 0.8 has 0.63; clipped has none."""
    write_flat(tmp_path / "one", np.arange(50_000) % 999, np.array([50_000]), vocab_size=1000)
    store = tl.open(tmp_path / "one")

    def variation(**options):
        return coverage(store.splice(8192, content_length=4096, **options)).variation(0)

    assert variation() == pytest.approx(0.24, abs=0.005)
    assert variation(alpha=0.5) == pytest.approx(0.22, abs=0.005)
    assert variation(alpha=0.8) == pytest.approx(0.63, abs=0.005)
    assert variation(edge="clip") == 0.0


def test_the_seam_of_a_roll_is_a_target_only_when_asked_for():
    options = {"content_start_mode": "cyclic_roll", "content_length": 4, "placement": "fit"}
    store = toy_store(6)
    plain, trained = (store.splice(4, roll_loss=one, **options) for one in (False, True))
    assert coverage(plain).targets(0).tolist() == [0, 3, 3, 3, 3, 3]
    assert coverage(trained).targets(0).tolist() == [3] * 6
    assert coverage(plain).context(0).tolist() == [4] * 6
    assert coverage(trained).variation(0) == 0.0


# -- asking --------------------------------------------------------------------------------


def test_more_epochs_than_there_are_are_not_counted():
    ds = toy_store(9).splice(8, content_length=4)
    assert coverage(ds, epochs=5).examples == coverage(ds).examples == len(ds)
    assert coverage(ds, epochs=5).epochs == 1
    assert coverage(ds.epochs(None), epochs=5).examples == 5 * len(ds)


def test_what_is_not_there_is_refused():
    ds = toy_store(9, 4).splice(8, content_length=4)
    refused(lambda: coverage(ds, documents=[0, 7]), IndexError, 7)
    refused(lambda: coverage(ds, documents=[0]).targets(1), IndexError, 1)
    refused(lambda: coverage(ds).grid(0, bins=(0, 3)), ConfigError, "bins")
    refused(lambda: coverage(toy_store(9).windows(4)), ConfigError, "store.splice")


def test_the_numbers_of_a_document_are_plain_json():
    ds = toy_store(7, 5, 3)
    ds = ds.splice(8, content_length=4, adaptive_k=False, balance_mode="by_document")
    about = coverage(ds).as_json()
    assert about["splices"] == about["examples"] == 8
    assert about["documents"][0]["targets"]["max"] == 3
    assert about["documents"][2]["targets"]["cv"] is None


# -- picture -------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def test_a_picture_stays_small_for_any_number_of_starts(tmp_path):
    length = 10**6
    write_flat(tmp_path / "one", np.arange(length) % 999, np.array([length]), vocab_size=1000)
    drawn = coverage(tl.open(tmp_path / "one").splice(64, content_length=4)).svg(0)
    assert ET.fromstring(drawn).find(f"{SVG}title").text
    assert len(drawn) < 40_000
