"""Corners of batches that a changed line of code would fall into unnoticed."""

import copy
import pickle

import numpy as np
import pytest
from toydata import ToyStore, numbered

import tokenloom as tl
from tokenloom.batch import paint
from tokenloom.batch.batch import Batch
from tokenloom.batch.check import check_batch
from tokenloom.batch.plan import Plan
from tokenloom.batch.read import Fetched, merged
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.trained import trained_in
from tokenloom.layout.spans import Spans

ALL = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids")


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered([[9, 4, 17, 6, 30, 2, 8] * 6])) as made:
        yield made


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    rows = [{"input_ids": [1, 2, 3, 4], "loss_mask": [0, 1, 0, 1]} for _ in range(8)]
    root = tmp_path_factory.mktemp("weighted")
    return tl.build(rows, root / "store", tokenizer=None, vocab_size=9, progress=False)


def test_arrays_that_come_with_the_tokens_are_not_painted_again(toy, monkeypatch):
    def refuse(*_):
        raise AssertionError("painted again")

    monkeypatch.setattr(paint, "paint", refuse)
    monkeypatch.setattr(Batch, "_tiles", property(refuse))
    with tl.Loader(toy.store.pack(8).shuffle(), 4, fields=ALL, prefetch=0) as loader:
        batch = next(loader)
        assert [getattr(batch, name).shape for name in ALL] == [(4, 8)] * 5


def test_a_copy_without_its_store_still_knows_its_spans(toy):
    run = toy.store.splice(12, content_length=6, attend_prefix=True, position_scheme="relative")
    batch = run.batch(range(4))
    copied = copy.deepcopy(batch)
    for name in ("document", "start", "length", "at", "row"):
        assert getattr(copied.plain.spans, name).tolist() == getattr(batch.spans, name).tolist()
    again = copy.deepcopy(copied)
    assert again.plain.segment_ids.tolist() == batch.plain.segment_ids.tolist()


def test_plain_takes_back_what_one_of_several_sources_lends(toy):
    lent = toy.store.splice(12, content_length=6, attend_prefix=True)
    runs = {"lent": lent, "usual": toy.store.pack(12)}
    batch = tl.mix(runs).seed(3).batch(range(8))
    assert set(batch.source) == {"lent", "usual"}
    filler = np.repeat(batch._tiles_of(12).segment == 0, batch._tiles_of(12).length)
    assert filler.any()
    assert not batch.plain.segment_ids.reshape(-1)[filler].any()
    assert batch.segment_ids.reshape(-1)[filler].any()  # control


def test_a_batch_in_groups_of_rows_is_checked_row_by_row(toy):
    batch = toy.store.pack(8).batch(range(6))
    assert check_batch(batch.folded(2)).ok
    arrays = {name: getattr(batch, name).reshape(2, 3, 8).copy() for name in ALL}
    arrays["position_ids"][1, 2, 5] = 77
    assert not check_batch(arrays).ok


def test_document_starts_past_the_end_of_a_row_start_nothing(toy):
    batch = toy.store.pack(8).batch(range(4))
    starts = np.full((4, batch.document_starts.shape[1] + 1), -1, np.int32)
    starts[:, :-1] = batch.document_starts
    arrays = {name: getattr(batch, name) for name in ALL}
    assert check_batch({**arrays, "document_starts": starts}).ok
    starts[:, -1] = 8
    check_batch({**arrays, "document_starts": starts})  # judged, whatever comes of it


def test_reads_of_several_sources_have_one_edge_more_than_examples():
    one = np.zeros(1, np.int64)
    parts = [Fetched([], one, one, one, one + cell, []) for cell in (8, 0)]
    assert merged(parts, 2, 8).edges == [0, 1, 2]
    assert merged([], 2, 8).edges == [0, 0, 0]


def test_what_is_fetched_ahead_is_counted_to_the_byte(toy):
    store = tl.open(toy.path, cache_bytes=1 << 20)
    run = store.windows(4).block_shuffle()
    renderer = run.renderer(by_blocks=True)
    plan = renderer.plan(np.arange(len(run)))
    first, last = run.run.sources[0].working.stretch(np.unique(plan.parts[0].block))
    assert renderer.fetch_ahead(plan, ("tokens",)) == 2 * int((last - first).sum())
    renderer.batches(plan, [0, len(run)])
    assert renderer.fetch_ahead(plan, ("tokens",)) == 0


def test_loss_columns_are_read_with_the_tokens_and_not_when_masks_are_made(weighted):
    store = tl.open(weighted.path, cache_bytes=1 << 20)
    fields = ("tokens", "loss_mask")
    with tl.Loader(store.windows(4), 2, fields=fields, fetch="blocks", prefetch=0) as loader:
        pending = loader._maker.batches(0, 2)
        before = store.reads.read_ops
        batch = loader._maker.finish(0, pending[0])
        assert batch.loss_mask.tolist() == [[True, False, True, False]] * 2
        assert store.reads.read_ops == before


def test_filler_alone_has_weights_of_one_if_any_source_has_some(weighted, toy):
    runs = {"weighted": weighted.windows(4), "usual": toy.store.windows(4)}
    run = tl.mix(runs, different_tokenizers=True)
    renderer = run.renderer(by_blocks=True)
    plan = Plan(run.run, np.arange(4))
    assert renderer.weights(plan, 2, 2, 3).tolist() == np.ones((3, 4)).tolist()


@pytest.mark.parametrize("sources", [1, 3])
@pytest.mark.parametrize("indices", [[], [0], [7, 2, 9, 2, 0], list(range(12))])
def test_the_rows_of_a_plan_are_those_that_the_run_finds(toy, sources, indices):
    one = toy.store.windows(4).shuffle()
    run = (one if sources == 1 else tl.mix(dict.fromkeys("abc", one))).run
    asked = np.array(indices, np.int64)
    plan = Plan(run, asked)
    source, row = plan.rows
    assert source.tolist() == plan.source.tolist() == run.pick(asked)[0].tolist()
    assert row.tolist() == run.locate(asked)[1].tolist()


def test_a_gap_between_documents_predicts_nothing_across_it():
    """Without boundary masks a document's first token is predicted if the last one ends there."""
    columns = {"document": [0, 1, 2], "start": [0, 0, 0], "length": [2, 2, 2], "at": [0, 2, 6]}
    numbers = {name: np.array(values, np.int64) for name, values in columns.items()}
    zeros = np.zeros(3, np.int64)
    spans = Spans(
        width=8,
        frame=np.array([0, 3]),
        address=zeros,
        flags=zeros.astype(np.uint8),
        seen=zeros,
        source=np.zeros(1, np.int32),
        **numbers,
    )
    assert trained_in(spans, 8, RenderSpec(mask_boundary_loss=False)).tolist() == [4]
    assert trained_in(spans, 8, RenderSpec()).tolist() == [3]


def test_tiles_have_one_edge_more_than_frames(toy):
    plan = toy.store.pack(8).renderer(by_blocks=True).plan(np.arange(3))
    tiles = plan.tiles(8)
    assert len(tiles.edges) == 4
    assert tiles.edges[-1] == len(tiles.first)


def test_a_copy_is_judged_with_its_step_before_it_leaves_the_run(tmp_path):
    """Row 0 has documents of one token each, which nothing predicts; row 1 has one document."""
    with ToyStore(numbered([[1, 1, 1, 1, 4]])) as toy:
        run = toy.store.windows(4)
        alone = next(tl.Loader(run, 1, 0, 1, prefetch=0))
        share = next(tl.Loader(run, 2, 0, 2, prefetch=0))
        for make in (copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
            assert not make(share).loss_mask.any(), "its step has trained tokens"
            copied = make(alone)
            with pytest.raises(tl.NoTrainedTokens, match="step 0: none of its 1 rows"):
                _ = copied.loss_mask
        told = next(tl.Loader(run, 1, 0, 1, prefetch=0, untrained="zero"))
        with pytest.warns(UserWarning, match="mask of zeros"):
            assert not told.loss_mask.any()
        assert not copy.deepcopy(told).loss_mask.any(), "it was judged already"
        other = next(tl.Loader(run, 1, 0, 1, prefetch=0, untrained="zero"))
        with pytest.warns(UserWarning, match="mask of zeros"):
            assert not copy.deepcopy(other).loss_mask.any()
