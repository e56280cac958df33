"""The end of a run: drop, pad or wrap a short last step; and steps without a trained token."""

import pytest
from toyruns import FIELDS, SEQ_LEN, close_all, joined, ranks_of, toy_run

import tokenloom as tl
from tokenloom.testing import write_store


@pytest.fixture
def ten(store):
    """10 examples."""
    return toy_run(store).take(10)


# -- 10 examples, 4 rows -------------------------------------------------------------------


def test_padding_is_filled_with_the_pad_id(ten):
    with tl.Loader(ten.render(pad_id=77), 4, end="pad") as loader:
        assert (list(loader)[-1].tokens[2:] == 77).all()


def test_a_step_may_be_larger_than_the_whole_run(ten):
    with pytest.raises(tl.ConfigError, match="found 16, but the run has 10 examples"):
        tl.Loader(ten, 16)
    (only,) = list(tl.Loader(ten, 16, end="pad"))
    assert only.index.tolist() == [*range(10), *[-1] * 6]
    with tl.Loader(ten, 25, end="wrap") as around:
        assert next(around).index.tolist() == [*range(10), *range(10), *range(5)]
        assert next(around).index.tolist() == [*range(5, 10), *range(10), *range(10)]


def test_len_counts_the_steps_that_are_left(store):
    for end, steps in (("drop", 27), ("pad", 28)):
        with tl.Loader(toy_run(store), 4, end=end) as loader:
            for left in range(steps, 0, -1):
                assert len(loader) == left
                next(loader)
            assert len(loader) == 0
            assert len(loader.seek(20)) == steps - 20
            assert len(loader.seek(99)) == 0


# -- with ranks ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "lanes 2"])
def test_ranks_whose_share_is_only_padding(store, kind):
    """21 rows in steps of 20 over 5 ranks: the last step has one row, which rank 0 has."""
    dataset = toy_run(store, kind).take(21)
    ranks = ranks_of(dataset, 20, 5, end="pad", fields=FIELDS)
    joined(ranks)
    last = [next(rank) for rank in ranks]
    assert last[0].index.tolist() == [20, -1, -1, -1]
    for batch in last[1:]:
        assert batch.index.tolist() == [-1] * 4
        assert batch.tokens.shape == (4, SEQ_LEN)
        assert batch.loss_tokens == 0
        assert (batch.labels == -100).all()
        assert batch.cu_seqlens.tolist() == [0, 8, 16, 24, 32]
        assert batch.document_starts.tolist() == [[-1]] * 4
        assert batch.source == ["main"] * 4
        assert len(batch.spans) == 4
    assert [next(rank, None) for rank in ranks] == [None] * 5
    assert {rank.examples for rank in ranks} == {21}
    close_all(ranks)


# -- no trained token ----------------------------------------------------------------------


@pytest.fixture
def half_trained(tmp_path):
    """8 rows of 8 tokens: token 5 in the odd ones, token 3 in the even ones."""
    documents = [[3 if row % 2 == 0 else 5] * SEQ_LEN for row in range(8)]
    write_store(tmp_path, [documents], inner=16, chunk_tokens=32)
    return tl.open(tmp_path, cache_bytes=1 << 20).windows(SEQ_LEN, ignore_id=5)


def test_a_rank_without_a_trained_token_is_judged_with_the_others(half_trained):
    ranks = ranks_of(half_trained, 2, 2, fields=("tokens", "labels", "loss_mask"))
    for _ in range(4):
        trained, untrained = next(ranks[0]), next(ranks[1])
        assert trained.loss_tokens == 7
        assert untrained.loss_tokens == 0
        assert (untrained.labels == -100).all()
    close_all(ranks)


def test_a_step_that_nobody_trains_on_is_an_error_on_every_rank(half_trained):
    """Rows 1, 3, 5 and 7 hold ignored tokens only; steps of one row meet them alone."""
    for fields in (("tokens", "labels"), ("loss_mask",), ("loss_weights",)):
        with tl.Loader(half_trained, 1, fields=fields) as loader:
            next(loader)
            for _ in range(2):  # it is not skipped by being met
                with pytest.raises(tl.NoTrainedTokens, match="step 1: none of its 1 rows"):
                    next(loader)
                assert (loader.step, loader.examples) == (1, 1)
            assert next(loader.seek(2)).index.tolist() == [2]
    ranks = ranks_of(half_trained.render(mask_boundary_loss=False, ignore_id=None), 2, 2)
    assert joined(ranks)[0] == [0, 1]
    close_all(ranks)


def test_a_batch_is_judged_as_the_step_it_was_even_after_the_loader_moved_on(half_trained):
    """Rank 1 of a step after a state of another batch size, asked for its labels after a seek."""
    state = tl.Loader(half_trained, 1).seek(1).state_dict()
    loader = tl.Loader(half_trained, 2, 0, 2, prefetch=0)
    loader.load_state_dict(state)
    batch = next(loader)  # rank 0 has row 1, which is not trained; rank 1 has row 2, which is
    assert batch.index.tolist() == [1]
    loader.seek(0)
    assert batch.loss_tokens == 0


def test_loss_columns_are_judged_too(tmp_path):
    never = {"loss_weights": ("float32", lambda ids: ids * 0)}
    write_store(tmp_path, [[[1] * 64]], inner=16, chunk_tokens=32, columns=never)
    loader = tl.Loader(tl.open(tmp_path).windows(8), 4, fields=("labels",))
    with pytest.raises(tl.NoTrainedTokens, match="none of its 4 rows"):
        next(loader)


def test_documents_of_one_token_train_nothing(tmp_path):
    write_store(tmp_path, [[[1]] * 64], inner=16, chunk_tokens=32)
    ranks = ranks_of(tl.open(tmp_path).windows(8), 4, 2)
    for rank in ranks:
        batch = next(rank)
        with pytest.raises(tl.NoTrainedTokens, match="documents of one token"):
            _ = batch.loss_mask
    close_all(ranks)


@pytest.mark.parametrize("kind", ["stored", "full", "era", "block", "lanes 2"])
@pytest.mark.parametrize("end", ["drop", "pad", "wrap"])
def test_no_run_goes_beyond_the_64_bit_integers(store, kind, end):
    """An endless run ends where examples can no longer be counted, and not with another row."""
    dataset = toy_run(store, kind, epochs=None)
    last = 2**63 // 64 - 1
    with tl.Loader(dataset, 64, end=end) as loader:
        loader.seek(last - 1)
        assert [int(next(loader).index[-1]) for _ in range(2)] == [
            2**63 - 65 if kind != "lanes 2" else int(loader._maker.rows_of(last - 1)[-1]),
            2**63 - 1 if kind != "lanes 2" else int(loader._maker.rows_of(last)[-1]),
        ]
        assert next(loader, None) is None
        assert next(loader.seek(2**60), None) is None


# -- steps in which nothing is trained (ruling 37) -----------------------------------------


def test_rows_and_batches_of_a_run_are_never_judged(half_trained):
    """newcomer.md, bug 5: a row alone may have no trained token, whoever asks for it."""
    for index in range(8):
        assert bool(half_trained[index].loss_mask.any()) == (index % 2 == 0)
    assert half_trained.batch([1, 3]).labels.tolist() == [[-100] * 8] * 2
    assert half_trained.batch(range(8)).loss_tokens == 4 * 7


@pytest.mark.parametrize("fields", [("tokens", "labels"), ("loss_mask",), ("loss_weights",)])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_untrained_steps_are_delivered_with_zeros_if_asked_for(half_trained, fields, prefetch):
    settings = {"fields": fields, "prefetch": prefetch, "untrained": "zero"}
    with tl.Loader(half_trained, 1, **settings) as loader:
        with pytest.warns(UserWarning, match=r"step 1: none of its 1 rows.*mask of zeros") as told:
            batches = list(loader)
        assert len(told) == 1  # once, not for every step
        assert [batch.loss_tokens for batch in batches] == [7, 0] * 4
        assert [int(batch.loss_weights.sum()) for batch in batches] == [7, 0] * 4
        assert loader.stats().untrained == 4


# -- another loop over a loader at its end (ruling 40) -------------------------------------


@pytest.mark.parametrize("prefetch", [0, 4])
def test_another_loop_over_an_exhausted_loader_says_how_to_ask_for_more(half_trained, prefetch):
    """newcomer.md, bug 7: [4, 0, 0] steps, silently."""
    with tl.Loader(half_trained, 2, prefetch=prefetch) as loader:
        assert sum(1 for _ in loader) == 4
        for _ in range(2):
            with pytest.raises(
                tl.LoaderExhausted, match=r"all its 4 steps.*epochs\(2\).*seek\(0\)"
            ):
                iter(loader)
        with pytest.raises(StopIteration):  # an iterator at its end stays there
            next(loader)
        assert sum(1 for _ in loader.seek(0)) == 4


def test_a_loop_that_was_left_goes_on_in_the_next_one(half_trained):
    with tl.Loader(half_trained, 2) as loader:
        for batch in loader:
            if batch.index[0] == 2:
                break
        assert [batch.index.tolist() for batch in loader] == [[4, 5], [6, 7]]


def test_a_loop_after_a_state_of_the_end_is_empty_and_told(half_trained):
    with tl.Loader(half_trained, 2) as done:
        list(done)
        state = done.state_dict()
    loader = tl.Loader(half_trained, 2)
    loader.load_state_dict(state)
    with pytest.warns(UserWarning, match="at step 4 of 4, so a loop over it is empty"):
        assert list(loader) == []
    longer = tl.Loader(half_trained.epochs(2), 2)
    longer.load_state_dict(state)
    assert next(longer).index.tolist() == [8, 9]


@pytest.mark.parametrize("end", ["drop", "pad"])
def test_no_end_policy_is_silently_empty(half_trained, end):
    with tl.Loader(half_trained, 3, end=end) as loader:
        list(loader)
        with pytest.raises(tl.LoaderExhausted):
            list(loader)
