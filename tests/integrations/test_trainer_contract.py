"""What every trainer may rely on: rows, states, ranks, passes and refusals, for each adapter.

To add an adapter, write a feed in trainerfeeds.py. JAX has these tests in a process of its own, see
test_jax.py.
"""

import itertools
import json
import logging

import numpy as np
import pytest
from refusals import refused
from toyruns import mixed_run, toy_run, toy_store
from trainerfeeds import ADAPTERS, FEEDS

import tokenloom as tl
from tokenloom.batch import digest_of, row_hashes

STEPS, SIZE = 20, 4

pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),  # JAX has threads; workers none
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),  # torchdata
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # few cores
    pytest.mark.filterwarnings("ignore:loss_weights of web, chat:UserWarning"),  # a Trainer's
]

SLOW = {"StatefulDataLoader, 2 workers", "Lightning"}


def feeds(*without):
    return pytest.mark.parametrize(
        "feed",
        [
            pytest.param(feed, marks=[pytest.mark.slow] * (name in SLOW), id=name)
            for name, feed in FEEDS.items()
            if name not in without
        ],
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return mixed_run(tmp_path_factory.mktemp("digests"))


@pytest.fixture(scope="module")
def finite(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_run(toy_store(tmp_path_factory.mktemp("toy")), epochs=1)


def hashes_of(batches):
    """The hash of every row, by its index."""
    found = {}
    for batch in batches:
        index = np.asarray(batch["index"]).tolist()
        found.update(zip(index, row_hashes(batch), strict=True))
    return found


def indices(batches):
    return [np.asarray(batch["index"]).tolist() for batch in batches]


def ranges(first, last, size):
    return [list(range(at, at + size)) for at in range(first, last - size + 1, size)]


@feeds()
def test_ruling_45_rows_of_every_adapter_have_the_digest_of_the_run(run, feed):
    found = hashes_of(feed(run, SIZE).steps(STEPS))
    assert sorted(found) == list(range(STEPS * SIZE))
    assert digest_of(found[index] for index in range(STEPS * SIZE)) == run.digest(0, STEPS * SIZE)


@pytest.mark.parametrize("field", ["input_ids", "segment_ids", "position_ids", "loss_weights"])
def test_one_changed_cell_changes_the_digest_and_its_row_is_found(run, field):
    wanted = hashes_of(FEEDS["Loader"](run, SIZE).steps(STEPS))
    batches = FEEDS["Loader"](run, SIZE).steps(STEPS)
    batches[11][field] = batches[11][field].copy()
    batches[11][field][2, 5] += 1
    found = hashes_of(batches)
    assert digest_of(found[index] for index in sorted(found)) != run.digest(0, STEPS * SIZE)
    assert [index for index in wanted if wanted[index] != found[index]] == [11 * SIZE + 2]


@feeds("Grain, 4 threads", "Accelerate, dispatched")
def test_a_state_continues_after_the_last_step_that_was_delivered(run, feed):
    """Also with another batch size: what was fetched ahead does not count."""
    first = feed(run, SIZE)
    assert indices(first.steps(3)) == ranges(0, 12, SIZE)
    state = first.state()
    assert (state["examples"], state["step"]) == (12, 3)
    for size in (SIZE, 3):
        assert indices(feed(run, size, state).steps(2)) == ranges(12, 12 + 2 * size, size)


@feeds("Grain, 4 threads", "Accelerate, dispatched", "Trainer")
def test_states_are_those_of_a_loader(run, feed):
    loader = tl.Loader(run, 5)
    next(loader)
    continued = feed(run, SIZE, json.loads(json.dumps(loader.state_dict())))
    assert indices(continued.steps(2)) == ranges(5, 13, SIZE)
    loader = tl.Loader(run, 5)
    loader.load_state_dict(continued.state())
    assert next(loader).index.tolist() == list(range(13, 18))


@feeds("Grain, 4 threads", "Accelerate", "Accelerate, dispatched", "Trainer", "Lightning")
@pytest.mark.parametrize("world", [2, 3])
def test_ranks_joined_are_the_steps_and_a_state_loads_into_another_number_of_ranks(
    run, feed, world
):
    def ranks(world, state=None):
        return [feed(run, 6, state, rank=rank, world_size=world) for rank in range(world)]

    def joined(made, steps):
        parts = zip(*(indices(one.steps(steps)) for one in made), strict=True)
        return [list(itertools.chain(*part)) for part in parts]

    made = ranks(world)
    assert joined(made, 3) == ranges(0, 18, 6)
    states = [one.state() for one in made]
    assert all(state == states[0] for state in states)
    assert joined(ranks(5 - world, states[0]), 2) == ranges(18, 30, 6)


@feeds("Grain, 4 threads", "Accelerate, dispatched", "Trainer")
def test_a_state_at_the_end_of_a_pass_continues_with_the_next_pass(finite, feed):
    """Nine steps of 4 in a pass of 37 rows; the last row is dropped."""
    if feed is FEEDS["Loader"]:
        assert len(feed(finite, SIZE).steps(10)) == 9
        return
    whole = feed(finite, SIZE)
    assert indices(whole.steps(9)) == ranges(0, 37, SIZE)
    state = whole.state()
    assert state["examples"] == 37
    assert indices(feed(finite, SIZE, state).steps(9)) == ranges(37, 74, SIZE)


# -- states, settings and refusals ---------------------------------------------------------------

EVERY = pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=ADAPTERS)
WITH_STATE = pytest.mark.parametrize(
    "adapter", [one for name, one in ADAPTERS.items() if "Grain" not in name]
)


@WITH_STATE
def test_a_state_of_another_run_is_refused_with_both_values(finite, adapter):
    state = adapter(finite, 4).state_dict()
    again = adapter(finite, 4)
    again.load_state_dict(json.loads(json.dumps(state)))
    for saved in (state, again.state_dict(), tl.Loader(finite, 4).state_dict()):
        refused(lambda saved=saved: adapter(finite.seed(8), 4).load_state_dict(saved),
                tl.StateError, "seed", "7", "8")  # fmt: skip
    for damaged in ({"next_index": 3}, "state"):
        refused(lambda saved=damaged: adapter(finite, 4).load_state_dict(saved), tl.StateError)


@WITH_STATE
def test_states_have_the_same_keys_and_types_for_every_run(run, finite, adapter):
    """A checkpoint of torch loads only the keys that it has."""
    edited = run.edit(at=12, weights={"web": 3})
    runs = (finite, run, edited, finite.epochs(None))
    states = [adapter(one, 4).state_dict() for one in runs]
    kinds = [{key: type(value) for key, value in state.items()} for state in states]
    assert all(one == kinds[0] for one in kinds)
    assert set(kinds[0].values()) == {int, str}


@WITH_STATE
def test_what_a_state_is_of_may_be_missing_or_damaged(finite, adapter):
    state = adapter(finite, 4).state_dict()
    for text in ("", "{", "[1]", "[" * 10**5, None):
        saved = {**state, "dataset": text}
        adapter(finite, 4).load_state_dict(saved)
        refused(lambda saved=saved: adapter(finite.seed(8), 4).load_state_dict(saved),
                tl.StateError, "fingerprint", finite.fingerprint[:12])  # fmt: skip


@EVERY
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch_size": 0}, "0"),
        ({"batch_size": 38}, "37"),
        ({"contract": "hff"}, "'hff'"),
        ({"fields": ("segment_idz",)}, "'segment_idz'"),
        ({"end": "dorp"}, "'dorp'"),
        ({"untrained": "zeros"}, "'zeros'"),
        ({"num_worker": 2}, "'num_worker'"),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_before_the_first_batch(finite, adapter, options, named):
    refused(lambda: adapter(finite, **{"batch_size": 4} | options), tl.ConfigError, named)


@EVERY
def test_a_store_is_no_run(finite, adapter):
    store = tl.open(finite.sources["main"].path)
    refused(lambda: adapter(store, 4), tl.ConfigError, "Store")


@pytest.fixture(scope="module")
def filed(tmp_path_factory):
    """A run file of 10 rows, with settings for its loader."""
    root = tmp_path_factory.mktemp("filed")
    tl.build([{"text": "abcdefgh" * 10}], root / "toy", tokenizer="bytes")
    text = "sources: {toy: {store: toy, windows: 8}}\nloader: {batch_size: 4, end: pad, %s}\n"
    (root / "run.yaml").write_text(text % "untrained: zero, prefetch: 3, fetch: rows")
    (root / "other.yaml").write_text(text % "dtype: int64, fields: [tokens], patience: 9")
    return root


def rows_of(adapter, run, *given, **options):
    """How many rows each batch has."""
    made = adapter(run, *given, fields=("index",), **options)
    if hasattr(made, "train_dataloader"):
        made = made.train_dataloader()
    source = adapter is ADAPTERS.get("Grain, source")
    batches = [made[k] for k in range(len(made))] if source else made
    return [len(batch["index"]) for batch in batches]


@EVERY
def test_an_adapter_takes_what_the_run_file_says_unless_an_argument_says_otherwise(filed, adapter):
    run = tl.load(filed / "run.yaml")
    assert rows_of(adapter, run) == [4, 4, 4]
    assert rows_of(adapter, run, 3, end="drop") == [3, 3, 3]
    assert rows_of(adapter, run, batch_size=5) == [5, 5]
    bare = tl.from_config(run.describe())  # of no file
    refused(lambda: adapter(bare), tl.ConfigError, "batch_size")
    assert rows_of(adapter, bare, 4) == [4, 4]


@EVERY
def test_settings_of_a_file_that_an_adapter_cannot_take_are_logged_once(filed, adapter, caplog):
    with caplog.at_level(logging.WARNING, "tokenloom"):
        adapter(tl.load(filed / "other.yaml"))
    logged = [one.getMessage() for one in caplog.records if "loader." in one.getMessage()]
    assert len(logged) == 3  # once each, also where an adapter is made of another
    for name in ("dtype", "fields", "patience"):
        assert sum(f"other.yaml: loader.{name}" in message for message in logged) == 1
