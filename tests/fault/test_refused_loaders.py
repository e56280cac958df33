"""What no loader can mean is refused when it is made, with the setting and the value."""

import numpy as np
import pytest
from refusals import refused
from toyruns import toy_run, toy_store

import tokenloom as tl

SETTINGS = [  # setting, allowed, refused
    ("end", ["drop", "pad", "wrap"], ["dro", "keep"]),
    ("fetch", ["auto", "blocks", "rows"], ["row"]),
    ("untrained", ["raise", "zero"], ["warn"]),
    ("dtype", ["int32", "int64"], ["int16", "float32", "INT64"]),
    ("fields", [("tokens",), ("input_ids", "step_loss_tokens")], [("token",), ("tokens", "x")]),
    ("patience", [0.001, 60.0], [0, -1, float("nan")]),
    ("prefetch", [0, 1, 100], [-1]),
    ("accumulate", [None, 1, 2], [0, -2, 3]),
    ("batch_size", [1, np.int64(4), [(0, 4), (40, 8)], [*np.array([[0, 4], [9, 8]])]], []),
    ("batch_size", [], [0, -1, True, 4.0, "4", None, [], [(1, 4)], [(0, 4), (0, 8)], [(0, 4, 4)]]),
    ("batch_size", [], [[(0, 4), (9, 8), (5, 2)], [(0, 4), (10.5, 8)], [4, 8], {"0": 4}]),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.mark.parametrize(("name", "allowed", "wrong"), SETTINGS)
def test_a_setting_of_a_loader_is_taken_or_refused(store, name, allowed, wrong):
    run = toy_run(store)
    for value in allowed:
        with tl.Loader(run, **{"batch_size": 8, name: value}) as loader:
            next(loader)
    for value in wrong:
        options = {"batch_size": 8, name: value}
        refused(lambda options=options: tl.Loader(run, **options), tl.ConfigError, name)


@pytest.mark.parametrize(
    ("batch_size", "rank", "world"),
    [(3, 0, 4), (15, 0, 16), ([(0, 8), (80, 2)], 0, 3), (8, -1, 2), (8, 2, 2), (8, 0, 0)],
)
def test_fewer_rows_than_ranks_and_ranks_that_are_none_are_refused(store, batch_size, rank, world):
    run = toy_run(store)
    refused(lambda: tl.Loader(run, batch_size, rank, world), tl.ConfigError, world)


def test_groups_must_divide_the_rows_of_a_rank(store):
    run = toy_run(store)
    refused(lambda: tl.Loader(run, 7, 2, 3, accumulate=2), tl.ConfigError, "accumulate", 2)
    schedule = [(0, 4), (40, 6)]
    refused(lambda: tl.Loader(run, schedule, accumulate=4), tl.ConfigError, "accumulate", 4)


@pytest.mark.parametrize("end", ["drop", "pad", "wrap"])
def test_a_run_without_a_single_step_is_refused(store, end):
    """A loop over it would end at once and say nothing."""
    tokens = store.num_tokens
    refused(lambda: tl.Loader(store.windows(10**6), 2, end=end), tl.ConfigError, tokens, "seq_len")
    for run in (store.windows(tokens), store.windows(10**6, tail="keep"), store.pack(10**6)):
        assert len(tl.Loader(run.epochs(1), 1)) == 1
    for empty in (store.pack(4).take(0), store.pack(4).epochs(0)):
        refused(lambda empty=empty: tl.Loader(empty, 1, end=end), tl.ConfigError, "0 examples")
    run = toy_run(store).take(8)
    if end == "drop":
        refused(lambda: tl.Loader(run, 9), tl.ConfigError, "batch_size", 9, "8 examples")
    else:
        with tl.Loader(run, 9, end=end) as loader:
            assert len(next(loader)) == 9


def test_a_store_without_tokens_is_named_as_the_reason(tmp_path):
    with pytest.warns(UserWarning, match="empty"):
        nothing = tl.build([{"text": ""}], tmp_path / "s", tokenizer="bytes")
    refused(lambda: tl.Loader(nothing.pack(4), 1), tl.ConfigError, "0 examples", "no token")
