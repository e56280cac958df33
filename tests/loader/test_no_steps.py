"""A run without a single step is refused: a loop over it would end at once and say nothing."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.loader.steps import Steps, refuse_no_steps


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rows = [{"input_ids": [1, 2, 3, 4]} for _ in range(8)]
    return tl.build(rows, tmp_path_factory.mktemp("steps") / "s", tokenizer=None, vocab_size=9)


def test_a_frame_longer_than_everything_is_refused(store):
    with pytest.raises(tl.ConfigError) as caught:
        tl.Loader(store.windows(10**6), 2)
    assert str(caught.value) == (
        "Loader: the run has 0 examples, so there is no step at all. Its sources have 32 tokens in "
        "all, and seq_len is 1,000,000. Use a seq_len of 32 or less, or a layout that keeps short "
        "rows: pack(...), or windows(..., tail='keep')."
    )
    assert len(tl.Loader(store.windows(32), 1)) == 1, "what it recommends gives a step"
    assert len(tl.Loader(store.windows(10**6, tail="keep"), 1)) == 1
    assert len(tl.Loader(store.pack(10**6), 1)) == 1


def test_a_frame_of_just_all_tokens_is_not_named_as_the_reason(store):
    whole = store.windows(store.num_tokens)
    assert len(tl.Loader(whole, 1)) == 1
    with pytest.raises(tl.ConfigError, match="Look at epochs, take and select"):
        tl.Loader(whole.take(0), 1)


@pytest.mark.parametrize("end", ["drop", "pad", "wrap"])
def test_a_batch_larger_than_the_run_is_refused_where_it_gives_no_step(store, end):
    run = store.pack(4)
    if end != "drop":
        with tl.Loader(run, 9, end=end) as loader:
            assert len(next(loader)) == 9
        return
    with pytest.raises(
        tl.ConfigError, match=r"batch_size: found 9, but the run has 8 examples"
    ) as e:
        tl.Loader(run, 9)
    advised = int(re.search(r"batch_size of (\d+) or less", str(e.value)).group(1))
    assert len(tl.Loader(run, advised)) == 1


@pytest.mark.parametrize("end", ["drop", "pad", "wrap"])
def test_no_end_makes_a_step_of_nothing(store, end):
    for empty in (store.pack(4).take(0), store.pack(4).epochs(0)):
        with pytest.raises(tl.ConfigError, match=r"0 examples.*Look at epochs, take and select"):
            tl.Loader(empty, 1, end=end)


def test_a_store_without_tokens_is_named_as_the_reason(tmp_path):
    with pytest.warns(UserWarning, match="its only text is empty"):
        nothing = tl.build([{"text": ""}], tmp_path / "s", tokenizer="bytes")
    with pytest.raises(
        tl.ConfigError, match=r"0 examples.*Its sources have no token: build or select"
    ):
        tl.Loader(nothing.pack(4), 1)


def test_a_loader_that_resumes_at_its_end_is_not_refused(store):
    run = store.pack(4)
    with tl.Loader(run, 4) as loader:
        assert len(list(loader)) == 2
        state = loader.state_dict()
    with tl.Loader(run, 4) as again:
        again.load_state_dict(state)
        with pytest.warns(UserWarning, match="at step 2 of 2, so a loop over it is empty"):
            assert list(again) == []
    with tl.Loader(run, 4).seek(2) as there, pytest.raises(StopIteration):
        next(there)


def test_a_larger_batch_at_the_end_may_still_find_no_step(store):
    """A schedule whose later, larger steps do not fit has steps all the same."""
    with tl.Loader(store.pack(4), [(0, 4), (4, 100)]) as loader:
        assert len(list(loader)) == 1


@given(
    st.none() | st.integers(0, 30),
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), max_size=3),
    st.integers(1, 20),
    st.sampled_from(["drop", "pad", "wrap"]),
)
def test_it_is_refused_exactly_if_the_steps_of_a_run_are_none(n, more, first, end):
    later = sorted(dict(more).items())
    steps = Steps([(0, first), *later])
    endless = n is None or (end == "wrap" and n)
    count = 1 if endless else steps.count(n, partial=end == "pad")
    try:
        refuse_no_steps(steps, n, end, seq_len=4, tokens=8)
        refused = False
    except tl.ConfigError:
        refused = True
    assert refused == (count == 0)
