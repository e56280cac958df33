"""Splices at the edges of their rules: one choice, shares that do not divide, far blocks."""

import numpy as np
import pytest
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.testing import write_flat

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_a_document_with_one_choice_shows_it_in_every_epoch():
    with ToyStore(numbered([[8, 8, 8]], 10)) as toy:
        run = toy.store.splice(
            8, content_start_mode="anchor_start", content_length=8, balance_mode="by_document"
        )
        spans = run.shuffle(False).epochs(3).spans(range(9))
    assert spans.document.tolist() == [0, 1, 2] * 3
    assert spans.start.tolist() == spans.at.tolist() == [0] * 9
    assert spans.length.tolist() == [8] * 9


def test_shares_of_a_stream_that_do_not_divide_are_right_to_a_thousandth():
    """Nine choices in all, weighed 1 : 1 : 4; the share of the last one divides by itself."""
    with ToyStore(numbered([[6, 6, 6]], 10)) as toy:
        run = toy.store.splice(
            4, content_length=4, sampler="stream", doc_weights=[1, 1, 4], balance_tau=1
        )
        run = run.shuffle(False).epochs(1)
        spans, rows = run.spans(range(len(run))), len(run)
    shown = np.bincount(spans.document, minlength=3) / rows
    assert np.abs(shown - np.array([1, 1, 4]) / 6).max() < 0.001


@pytest.mark.parametrize("fetch", ["blocks", "rows"])
def test_rows_of_splices_are_read_from_all_stored_blocks_that_they_lie_in(tmp_path, fetch):
    """400 documents of 1,000 tokens: a block of rows reaches over the first 256 Ki tokens."""
    ids = np.arange(400_000) % 60_000
    write_flat(tmp_path / "s", ids, np.full(400, 1000), vocab_size=60_000)
    store = tl.open(tmp_path / "s")
    run = store.splice(16, content_start_mode="anchor_start", content_length=16)
    run = run.block_shuffle(io_block_size=400, window_blocks=1)
    with tl.Loader(run, 50, fetch=fetch) as loader:
        found = np.concatenate([batch.tokens for batch in loader])
    shown = run.spans(range(len(run))).document
    assert sorted(shown.tolist()) == list(range(400))
    assert (found == ids.reshape(400, 1000)[shown, :16]).all()


def test_documents_with_strides_of_their_own_show_their_own_starts():
    with ToyStore(numbered([[12, 12]], 20)) as toy:
        run = toy.store.splice(4, content_length=4, doc_strides=[1, 4], sampler="enumerate")
        spans = run.shuffle(False).spans(range(len(run)))
    starts = [sorted(spans.start[spans.document == one].tolist()) for one in (0, 1)]
    assert starts == [list(range(9)), [0, 4, 8]]


def test_the_first_epoch_of_a_growing_set_may_have_a_single_row():
    """Later epochs are shuffled all the same."""
    with ToyStore(numbered([[4, *[4] * 40]], 10)) as toy:
        run = toy.store.splice(4, content_length=4, doc_growth={0: 1, 1: 41}).shuffle().epochs(3)
        spans = run.spans(range(83))
    assert spans.document[0] == 0
    later = spans.document[1:42].tolist(), spans.document[42:].tolist()
    assert sorted(later[0]) == sorted(later[1]) == list(range(41))
    assert list(range(41)) not in later


def test_growing_twice_every_epoch_shows_the_documents_it_has():
    lengths, growth = [9, 14, 6, 21], {0: 1, 1: 3, 3: 4}
    sizes = []
    for documents in (1, 3, 3, 4):
        with ToyStore(numbered([lengths[:documents]], 20)) as toy:
            sizes.append(len(toy.store.splice(6, content_length=4)))
    with ToyStore(numbered([lengths], 20)) as toy:
        run = toy.store.splice(6, content_length=4, doc_growth=growth).shuffle(False).epochs(4)
        document = run.spans(range(len(run))).document
    assert len(run) == sum(sizes)
    shown = [set(part.tolist()) for part in np.split(document, np.cumsum(sizes)[:-1])]
    assert shown == [{0}, {0, 1, 2}, {0, 1, 2}, {0, 1, 2, 3}]


@pytest.mark.parametrize("stride", [2, 3])
def test_a_shuffled_sweep_with_strides_shows_what_the_sweep_in_order_shows(stride):
    options = {"content_start_mode": "slide_within", "content_length": 5, "offset_stride": 2}
    with ToyStore(numbered([[17, 9, 6]], 10)) as toy:
        plain = toy.store.splice(8, **options, content_stride=stride).shuffle(False)
        mixed = toy.store.splice(8, **options, content_stride=stride, shuffle_offsets=True)
        shown = [run.spans(range(len(run))) for run in (plain, mixed.shuffle(False))]
    found = [
        sorted(zip(*(c.tolist() for c in (s.document, s.start, s.at, s.length)), strict=True))
        for s in shown
    ]
    assert found[0] == found[1] == sorted(set(found[0]))


def test_starts_near_the_ends_are_doubled_only_where_a_document_asks_for_it():
    options = {"content_length": 4, "edge_mode": "duplicate", "sampler": "enumerate"}
    with ToyStore(numbered([[20, 20]], 10)) as toy:
        run = toy.store.splice(4, **options, doc_alphas=[2.0, 0.0]).shuffle(False)
        spans = run.spans(range(len(run)))
    times = [np.bincount(spans.start[spans.document == one], minlength=17) for one in (0, 1)]
    assert times[0].min() > 0
    assert times[0].max() > 1
    assert times[1].tolist() == [1] * 17


def test_a_grid_reaches_from_the_first_choice_to_the_last():
    with ToyStore(numbered([[12]], 20)) as toy:
        run = toy.store.splice(8, content_length=4, grid=(3, 2), sampler="enumerate")
        spans = run.shuffle(False).spans(range(len(run)))
    shown = sorted(zip(spans.start.tolist(), spans.at.tolist(), strict=True))
    assert shown == [(0, 0), (0, 4), (4, 0), (4, 4), (8, 0), (8, 4)]
