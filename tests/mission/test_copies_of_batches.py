"""Corners of batches that a changed line of code would fall into unnoticed."""

import copy
import pickle

import pytest
from toydata import ToyStore, numbered

import tokenloom as tl

ALL = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids")


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered([[9, 4, 17, 6, 30, 2, 8] * 6])) as made:
        yield made


def test_a_copy_without_its_store_still_knows_its_spans(toy):
    run = toy.store.splice(12, content_length=6, attend_prefix=True, position_scheme="relative")
    batch = run.batch(range(4))
    copied = copy.deepcopy(batch)
    for name in ("document", "start", "length", "at", "row"):
        assert getattr(copied.plain.spans, name).tolist() == getattr(batch.spans, name).tolist()
    again = copy.deepcopy(copied)
    assert again.plain.segment_ids.tolist() == batch.plain.segment_ids.tolist()


def test_a_batch_in_groups_of_rows_is_checked_row_by_row(toy):
    batch = toy.store.pack(8).batch(range(6))
    assert tl.check_batch(batch.folded(2)).ok
    arrays = {name: getattr(batch, name).reshape(2, 3, 8).copy() for name in ALL}
    arrays["position_ids"][1, 2, 5] = 77
    assert not tl.check_batch(arrays).ok


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


FIELDS = [("labels", "segment_ids"), ("loss_mask", "position_ids"), ("tokens", "labels"), ALL]


@pytest.mark.parametrize("fields", FIELDS)
def test_labels_that_a_loader_makes_at_once_are_judged_like_those_made_late(fields):
    """Row 0 has documents of one token each, which nothing predicts."""
    with ToyStore(numbered([[1, 1, 1, 1, 4]])) as toy:
        run = toy.store.windows(4)
        late = next(tl.Loader(run, 1, 0, 1, prefetch=0, fields=("tokens",)))
        for name in ("labels", "loss_mask"):
            with pytest.raises(tl.NoTrainedTokens):
                getattr(late, name)
        with pytest.raises(tl.NoTrainedTokens):
            next(tl.Loader(run, 1, 0, 1, prefetch=0, fields=fields))
        whole = next(tl.Loader(run, 2, 0, 1, prefetch=0, fields=fields))
        for name in fields:
            wanted = getattr(run.batch([0, 1]), name)
            assert getattr(whole, name).tolist() == wanted.tolist()
