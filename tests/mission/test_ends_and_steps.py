"""Steps of a loader: ends, schedules, accumulation, seeking, and steps without a trained token."""

import itertools
import json

import pytest
from refusals import refused
from toyruns import FIELDS, SEQ_LEN, close_all, joined, ranks_of, same, toy_run, toy_store

import tokenloom as tl
from tokenloom.testing import write_store


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.fixture
def ten(store):
    """10 examples."""
    return toy_run(store).take(10)


# -- 10 examples, 4 rows -------------------------------------------------------------------


def test_padding_is_filled_with_the_pad_id(ten):
    with tl.Loader(ten.render(pad_id=77), 4, end="pad") as loader:
        assert (list(loader)[-1].tokens[2:] == 77).all()


def test_a_step_may_be_larger_than_the_whole_run(ten):
    refused(lambda: tl.Loader(ten, 16), tl.ConfigError, "batch_size", 16, 10)
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
                refused(lambda loader=loader: next(loader), tl.NoTrainedTokens, "step 1")
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
    refused(lambda: next(loader), tl.NoTrainedTokens, "step 0", "4 rows")


def test_documents_of_one_token_train_nothing(tmp_path):
    write_store(tmp_path, [[[1]] * 64], inner=16, chunk_tokens=32)
    ranks = ranks_of(tl.open(tmp_path).windows(8), 4, 2)
    for rank in ranks:
        batch = next(rank)
        refused(lambda batch=batch: batch.loss_mask, tl.NoTrainedTokens, "step 0", "4 rows")
    close_all(ranks)


@pytest.mark.parametrize("kind", ["stored", "full", "era", "block", "lanes 2"])
@pytest.mark.parametrize("end", ["drop", "pad", "wrap"])
def test_no_run_goes_beyond_the_64_bit_integers(store, kind, end):
    """An endless run ends where examples can no longer be counted, and not with another row."""
    dataset = toy_run(store, kind, epochs=None)
    last = 2**63 // 64 - 1
    with tl.Loader(dataset, 64, end=end) as loader:
        loader.seek(last - 1)
        assert [int(next(loader).index.max()) for _ in range(2)] == [2**63 - 65, 2**63 - 1]
        assert next(loader, None) is None
        assert next(loader.seek(2**60), None) is None


# -- steps in which nothing is trained (ruling 37) -----------------------------------------


def test_rows_and_batches_of_a_run_are_never_judged(half_trained):
    """A row alone may have no trained token, whoever asks for it."""
    for index in range(8):
        assert bool(half_trained[index].loss_mask.any()) == (index % 2 == 0)
    assert half_trained.batch([1, 3]).labels.tolist() == [[-100] * 8] * 2
    assert half_trained.batch(range(8)).loss_tokens == 4 * 7


@pytest.mark.parametrize("fields", [("tokens", "labels"), ("loss_mask",), ("loss_weights",)])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_untrained_steps_are_delivered_with_zeros_if_asked_for(half_trained, fields, prefetch):
    settings = {"fields": fields, "prefetch": prefetch, "untrained": "zero"}
    with tl.Loader(half_trained, 1, **settings) as loader:
        with pytest.warns(UserWarning, match="step 1") as told:
            batches = list(loader)
        assert len(told) == 1  # once, not for every step
        assert [batch.loss_tokens for batch in batches] == [7, 0] * 4
        assert [int(batch.loss_weights.sum()) for batch in batches] == [7, 0] * 4
        assert loader.stats().untrained == loader.metrics("")["untrained_steps"] == 4


# -- another loop over a loader at its end (ruling 40) -------------------------------------


@pytest.mark.parametrize("prefetch", [0, 4])
def test_another_loop_over_an_exhausted_loader_says_how_to_ask_for_more(half_trained, prefetch):
    """Otherwise the second loop would be empty, silently."""
    with tl.Loader(half_trained, 2, prefetch=prefetch) as loader:
        assert sum(1 for _ in loader) == 4
        for _ in range(2):
            refused(lambda: iter(loader), tl.LoaderExhausted, "4 steps", "epochs(2)", "seek(0)")
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
    with pytest.warns(UserWarning, match="step 4 of 4"):
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


# -- batch sizes that change, and gradient accumulation --------------------------------------


def slow_steps(schedule, count, start=0):
    """(start, size) of consecutive steps; each uses the last entry at or before its start."""
    found, begin = [], start
    for _ in range(count):
        size = [rows for examples, rows in schedule if examples <= begin][-1]
        found.append((begin, size))
        begin += size
    return found


def test_an_entry_that_no_step_begins_at_counts_from_the_next_step_on(store):
    with tl.Loader(toy_run(store), [(0, 4), (10, 8), (21, 2)], end="pad") as loader:
        sizes = [(int(b.index[0]), len(b)) for b in itertools.islice(loader, 6)]
    assert sizes == [(0, 4), (4, 4), (8, 4), (12, 8), (20, 8), (28, 2)]


@pytest.mark.parametrize("at", [3, 10, 12])
@pytest.mark.parametrize("other", [6, [(0, 4), (40, 8)], [(0, 3), (20, 7), (70, 16)], [(0, 111)]])
def test_a_run_goes_on_with_another_schedule(store, at, other):
    dataset = toy_run(store)
    state = tl.Loader(dataset, [(0, 4), (40, 8)]).seek(at).state_dict()
    start = state["examples"]
    loader = tl.Loader(dataset, other, end="pad")
    loader.load_state_dict(json.loads(json.dumps(state)))
    assert loader.examples == start
    pairs = [(0, other)] if isinstance(other, int) else other
    wanted = [(b, s) for b, s in slow_steps(pairs, 100, start) if b < 111]
    assert len(loader) == len(wanted)
    found = [(int(batch.index[0]), len(batch)) for batch in loader]
    assert found == wanted
    assert loader.examples == 111


def test_accumulation_divides_the_share_of_a_rank_and_changes_no_state(store):
    dataset = toy_run(store)
    ranks = ranks_of(dataset, 12, 3, accumulate=2)
    assert next(ranks[1]).index.tolist() == [[4, 5], [6, 7]]
    assert joined(ranks[:1] + ranks[2:])[0] == [0, 1, 2, 3, 8, 9, 10, 11]
    flat = tl.Loader(dataset, 6)
    flat.load_state_dict(ranks[1].state_dict())
    assert next(flat).index.tolist() == [*range(12, 18)]
    close_all([*ranks, flat])


# -- seeking and resuming --------------------------------------------------------------------


def test_endless_runs_resume_in_any_epoch(store):
    dataset = toy_run(store, epochs=None)
    with tl.Loader(dataset, 8) as first, tl.Loader(dataset, 8) as second:
        second.load_state_dict(first.seek(10**6).state_dict())
        assert second.step == 10**6
        assert same(next(first), next(second))
        assert first.state_dict() == second.state_dict()


def test_states_at_the_beginning_and_behind_the_end(store):
    dataset = toy_run(store, epochs=1)
    for end, examples, steps in (("drop", 36, 9), ("pad", 37, 10)):
        loader = tl.Loader(dataset, 4, end=end)
        assert loader.state_dict()["examples"] == 0
        assert len(list(loader)) == steps
        state = loader.state_dict()
        assert (state["examples"], state["step"]) == (examples, steps)
        again = tl.Loader(dataset, 4, end=end)
        again.load_state_dict(state)
        assert (len(again), next(again, None)) == (0, None)
        assert again.state_dict() == state
        far = tl.Loader(dataset, 4, end=end).seek(1000)
        assert (far.examples, next(far, None)) == (37, None)
        tl.Loader(dataset, 4, end=end).load_state_dict(far.state_dict())
    single = tl.Loader(dataset, 1)  # the dropped tail comes when the batch size allows it
    single.load_state_dict(tl.Loader(dataset, 4).seek(9).state_dict())
    assert [batch.index.tolist() for batch in single] == [[36]]


def test_seek_goes_to_any_step_at_any_time(store):
    dataset = toy_run(store)
    with tl.Loader(dataset, 4) as known:
        wanted = [batch.index.tolist() for batch in known]
    with tl.Loader(dataset, 4) as loader:
        for step in (5, 0, 26, 3, 3):
            assert next(loader.seek(step)).index.tolist() == wanted[step]
            assert loader.step == step + 1
            assert loader.examples == 4 * (step + 1)
        assert next(loader.seek(27), None) is None
        refused(lambda: loader.seek(-1), tl.ConfigError, "step", -1)


def test_after_a_state_of_another_batch_size_seek_counts_steps_of_this_one(store):
    dataset = toy_run(store)
    states = {examples: tl.Loader(dataset, 1).seek(examples).state_dict() for examples in (4, 14)}
    with tl.Loader(dataset, 7, prefetch=0) as loader:
        loader.load_state_dict(states[4])
        assert next(loader).index.tolist() == list(range(4, 11))
        assert next(loader.seek(1)).index.tolist() == list(range(7, 14))
    with tl.Loader(dataset, 7, prefetch=0) as loader:  # a step of 7 starts there: it is step 2
        loader.load_state_dict(states[14])
        assert (loader.step, loader.state_dict()["step"]) == (2, 2)
    with tl.Loader(dataset, 7, prefetch=0) as loader:
        loader.load_state_dict(states[4])
        loader.load_state_dict(states[14])  # the last of several counts
        assert next(loader).index.tolist() == list(range(14, 21))


def test_the_time_of_a_loader_runs_from_its_first_step(store):
    with tl.Loader(toy_run(store), 2) as loader:
        assert (loader.stats().seconds, loader.stats().cells_per_second) == (0, 0)
        next(loader)
        assert loader.stats().seconds > 0
        assert loader.stats().cells_per_second > 0


def test_a_schedule_entry_inside_a_step_begins_with_the_next_one(tmp_path):
    store = tl.build(
        [{"input_ids": list(range(60))}], tmp_path / "s", tokenizer=None, vocab_size=60
    )
    schedule = [(0, 1), (2, 10), (5, 3), (8, 4)]  # the step of ten rows passes two entries
    with tl.Loader(store.windows(2), schedule) as loader:
        assert [len(batch) for batch in loader][:6] == [1, 1, 10, 4, 4, 4]
