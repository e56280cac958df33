"""What every trainer may rely on: rows, states, ranks, passes and refusals, for each adapter.

To add an adapter, write a feed in trainerfeeds.py. JAX has the same tests in `injax`.
"""

import importlib
import itertools
import json

import numpy as np
import pytest
from refusals import refused
from toyruns import mixed_run, toy_run, toy_store
from trainerfeeds import FEEDS

import tokenloom as tl
from tokenloom.batch import digest_of, row_hashes
from tokenloom.integrations.torch import dataloader, stateful

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


# -- another run -------------------------------------------------------------------------------


def of_sampler(run):
    return dataloader(run, 4).sampler


def of_stateful(run):
    return stateful(tl.Loader(run, 4))


def of_jax(run):
    return importlib.import_module("tokenloom.integrations.jax").batches(run, 4)


def of_lightning(run):
    return importlib.import_module("tokenloom.integrations.lightning").DataModule(run, 4)


def of_accelerate(run):
    accelerate = importlib.import_module("accelerate")
    ours = importlib.import_module("tokenloom.integrations.hf")
    return ours.prepare(accelerate.Accelerator(cpu=True), run, 4)


HOLDERS = [of_sampler, of_stateful, of_jax, of_lightning, of_accelerate]


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_state_of_another_run_is_refused_with_both_values(finite, holder):
    state = holder(finite).state_dict()
    again = holder(finite)
    again.load_state_dict(json.loads(json.dumps(state)))
    for saved in (state, again.state_dict()):
        refused(lambda saved=saved: holder(finite.seed(8)).load_state_dict(saved),
                tl.StateError, "seed", "7", "8")  # fmt: skip


@pytest.mark.parametrize("holder", HOLDERS)
def test_states_have_the_same_keys_and_types_for_every_run(run, finite, holder):
    """A checkpoint of torch loads only the keys that it has."""
    edited = run.edit(at=12, weights={"web": 3})
    states = [holder(one).state_dict() for one in (finite, run, edited, finite.epochs(None))]
    kinds = [{key: type(value) for key, value in state.items()} for state in states]
    assert all(one == kinds[0] for one in kinds)
    assert set(kinds[0].values()) == {int, str}


def test_what_a_state_is_of_may_be_missing_or_damaged(finite):
    state = dataloader(finite, 4).state_dict()
    for text in ("", "{", "[1]", "[" * 10**5, None):
        saved = {**state, "dataset": text}
        dataloader(finite, 4).load_state_dict(saved)
        refused(lambda saved=saved: dataloader(finite.seed(8), 4).load_state_dict(saved),
                tl.StateError, "fingerprint", finite.fingerprint[:12])  # fmt: skip
