"""Ranks share a step: together they are the same global batch, however many they are."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toyruns import KINDS, SEQ_LEN, close_all, joined, ranks_of, same, toy_run, toy_store

import tokenloom as tl
from tokenloom.loader.steps import rank_rows
from tokenloom.testing import assert_elastic

WORLDS = (1, 2, 3, 7, 16)


@given(st.integers(1, 10**6), st.integers(1, 3000))
def test_shares_follow_each_other_and_differ_by_one_row_at_most(size, world):
    shares = [rank_rows(size, rank, world) for rank in range(world)]
    assert shares[0][0] == 0
    assert shares[-1][1] == size
    assert all(a[1] == b[0] for a, b in itertools.pairwise(shares))
    lengths = {high - low for low, high in shares}
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_world_size_gives_the_same_steps_in_every_order(store, kind):
    """Batches of 19 rows in epochs of 37: some lie in two epochs."""
    assert_elastic(toy_run(store, kind), WORLDS, batch_size=19, steps=6)


@pytest.mark.parametrize("layout", [{"tail": "keep"}, {"lookahead": True}, {"align": True}])
@pytest.mark.parametrize("kind", ["full", "lanes 3"])
def test_every_world_size_gives_the_same_steps_in_every_layout(store, kind, layout):
    assert_elastic(toy_run(store, kind, **layout), (1, 3, 16), batch_size=16, steps=4)


def test_every_world_size_gives_the_same_loss_weights(weighted):
    assert_elastic(toy_run(weighted, "lanes 2"), (1, 5, 16), batch_size=16, steps=4)


@pytest.mark.parametrize("kind", ["stored", "block", "lanes 2", "lanes 3", "lanes 5"])
@pytest.mark.parametrize("world", WORLDS)
def test_ranks_partition_the_whole_run(store, kind, world):
    """Against the rule said in words: index order, with lanes sorted by (lane fraction, index)."""
    dataset, size = toy_run(store, kind, epochs=2), 18
    ranks = ranks_of(dataset, size, world, end="pad", prefetch=0)
    fractions = dataset.run.fractions(np.arange(len(dataset)))
    for begin in range(0, len(dataset), size):
        wanted = list(range(begin, min(begin + size, len(dataset))))
        if fractions is not None:
            wanted.sort(key=lambda i: (fractions[i], i))
        index, tokens = joined(ranks)
        assert index == wanted + [-1] * (size - len(wanted))
        alone = np.concatenate([dataset[i].tokens for i in wanted])
        assert np.array_equal(tokens[: len(wanted)], alone)
    assert joined(ranks) is None


@pytest.mark.parametrize("kind", ["full", "block", "lanes 3"])
@pytest.mark.parametrize("fetch", ["blocks", "rows"])
def test_neither_prefetch_nor_the_way_of_fetching_changes_a_batch(store, kind, fetch):
    dataset = toy_run(store, kind)
    with tl.Loader(dataset, 5, prefetch=0) as known:
        wanted = list(known)
    for prefetch in (0, 1, 2, 4, 64):
        with tl.Loader(dataset, 5, prefetch=prefetch, fetch=fetch) as loader:
            found = list(loader)
        assert len(found) == len(wanted) == 3 * 37 // 5
        assert all(same(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("cache_bytes", [0, 100])
@pytest.mark.filterwarnings("ignore:block_shuffle")
def test_a_cache_that_holds_nothing_changes_no_batch(tmp_path, store, cache_bytes):
    dataset = toy_run(store, "lanes 3")
    poor = toy_run(toy_store(tmp_path, cache_bytes=cache_bytes), "lanes 3")
    assert poor.fingerprint == dataset.fingerprint
    for fetch in ("auto", "blocks"):
        with tl.Loader(dataset, 7, 1, 2) as rich, tl.Loader(poor, 7, 1, 2, fetch=fetch) as bare:
            assert all(same(a, b) for a, b in zip(rich, bare, strict=True))


def test_the_number_of_ranks_may_change_at_any_step(store):
    """1, 7, 3, 16 and 1 ranks again; each takes over the state of any rank before it."""
    for kind in ("full", "lanes 2"):
        dataset = toy_run(store, kind)
        with tl.Loader(dataset, 16) as known:
            wanted = [batch.index.tolist() for batch in known]
        found, state = [], None
        for turn, world in enumerate((1, 7, 3, 16, 1)):
            ranks = ranks_of(dataset, 16, world, prefetch=turn)
            for rank in ranks if state else ():
                rank.load_state_dict(state)
            found.append(joined(ranks)[0])
            state = json.loads(json.dumps(ranks[-1].state_dict()))
            close_all(ranks)
        assert found == wanted[:5]


@pytest.mark.parametrize(("batch_size", "world"), [(3, 4), (15, 16), ([(0, 8), (80, 2)], 3)])
def test_a_batch_smaller_than_the_number_of_ranks_is_refused(store, batch_size, world):
    with pytest.raises(tl.ConfigError, match=f"for {world} ranks; the batch size is global"):
        tl.Loader(toy_run(store), batch_size, 0, world)


@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0), (0, -1)])
def test_a_rank_that_is_none_is_refused(store, rank, world):
    with pytest.raises(tl.ConfigError, match="rank 0 to world_size - 1"):
        tl.Loader(toy_run(store), 8, rank, world)


def test_shapes_and_dtypes_are_the_same_in_every_step_and_for_every_world(store):
    dataset = toy_run(store, "lanes 2", tail="keep")
    with tl.Loader(dataset, 7, 1, 3, end="pad", fields=("labels", "segment_ids")) as loader:
        kinds = {
            (b.tokens.shape, b.tokens.dtype.str, b.labels.shape, b.loss_mask.dtype.str)
            for b in loader
        }
    assert kinds == {((2, SEQ_LEN), "<i4", (2, SEQ_LEN), "|b1")}
