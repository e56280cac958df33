"""States of loaders of torch: exact at every point, for every number of workers, also torchdata's.

The scenarios of the first part are those that torchdata tests its `StatefulDataLoader` with (a
state before, within, at the end of and after an epoch; loaded and not used; as JSON; two loaders at
once; an error on the way), told in our words. They run over our own `dataloader`, and over theirs
with our `StepDataset` and `StepSampler` inside.
"""

import itertools
import json

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torchdata.stateful_dataloader import StatefulDataLoader
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.integrations.torch import StepDataset, StepSampler, dataloader, stateful
from tokenloom.loader.passes import LoopPlace, StepReader

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata calls it
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


def ours(run, batch_size=4, num_workers=0, **options):
    return dataloader(run, batch_size, num_workers=num_workers, fields=("index",), **options)


def theirs(run, batch_size=4, num_workers=0, *, state=None, **options):
    reader = StepReader(run, batch_size, fields=("tokens", "labels"), dtype="int64")
    sampler = StepSampler(LoopPlace(reader.passes))
    if state is not None:
        sampler.load_state_dict(state)
    steps = StepDataset(reader, fields=("index",))
    return StatefulDataLoader(
        steps, sampler=sampler, batch_size=None, num_workers=num_workers, **options
    )


def passes(first, last, size=4):
    """The indices of every step of some passes over 37 rows, one list for each pass."""
    return [
        [[*range(37 * p + k, 37 * p + k + size)] for k in range(0, 37 - size + 1, size)]
        for p in range(first, last)
    ]


def rows(batches):
    return [batch["index"].tolist() for batch in batches]


def copied(state):
    """As a checkpoint keeps it."""
    return json.loads(json.dumps(state))


WAYS = pytest.mark.parametrize("make", [ours, theirs])
WORKERS = pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])


@pytest.fixture
def run(store):
    return toy_run(store, epochs=1)


def test_verl_7401_a_checkpoint_after_the_last_batch_inside_the_loop(run):
    """The body of the loop saves after every step; the last one of a pass is also its end."""
    loader = ours(run)
    saved = [(loader.epoch, copied(loader.state_dict())) for _ in range(2) for _ in loader]
    assert [epoch for epoch, _ in saved] == [0] * 9 + [1] * 9
    for number, (_, state) in enumerate(saved, 1):
        again = ours(run, num_workers=0)
        again.load_state_dict(state)
        assert again.epoch == number // 9
        wanted = [step for one in passes(0, 3) for step in one][number : number + 9]
        stream = itertools.chain.from_iterable(iter(again) for _ in range(2))
        assert rows(itertools.islice(stream, 9)) == wanted


def _after(loader, taken):
    """The loader, after that many steps of a loop that is left."""
    rows(itertools.islice(loader, taken))
    return loader


@WAYS
@WORKERS
def test_states_may_be_taken_and_loaded_at_any_moment(run, make, workers):
    """Before the first batch; loaded and not used; after a state was asked for, and after a loop"""
    loader = make(run, num_workers=workers)
    states = [copied(loader.state_dict())]
    loop = iter(loader)
    states.append(copied(loader.state_dict()))
    assert rows(loop) == passes(0, 1)[0]
    for state in states:
        again = make(run, num_workers=workers)
        again.load_state_dict(state)
        assert rows(again) == passes(0, 1)[0]
    state = copied(_after(make(run, num_workers=workers), 5).state_dict())
    unused = make(run, num_workers=workers)
    unused.load_state_dict(state)
    third = make(run, num_workers=workers)
    third.load_state_dict(copied(unused.state_dict()))
    assert rows(third) == rows(unused) == passes(0, 1)[0][5:]
    loader = make(run, num_workers=workers)
    loader.state_dict()
    for _ in range(2):
        loader.load_state_dict(state)
        assert rows(loader) == passes(0, 1)[0][5:]
        rows(itertools.islice(loader, 3))


@WAYS
def test_after_an_error_on_the_way_the_state_is_that_of_the_last_batch(run, make, monkeypatch):
    get = StepDataset.__getitem__

    def failing(self, key):
        if key.step == 3:
            raise OSError("gone")
        return get(self, key)

    loader = make(run)
    with monkeypatch.context() as patch:
        patch.setattr(StepDataset, "__getitem__", failing)
        loop = iter(loader)
        assert rows(itertools.islice(loop, 3)) == passes(0, 1)[0][:3]
        state = copied(loader.state_dict())
        with pytest.raises(OSError, match="gone"):
            next(loop)
    again = make(run)
    again.load_state_dict(state)
    assert rows(again) == passes(0, 1)[0][3:]
    if make is ours:
        assert loader.state_dict() == state


def with_description(state):
    """The state of an adapter, in which the description is text, as that of a run."""
    return {**state, "dataset": json.loads(state["dataset"])}


def test_torchdata_keeps_our_state_so_any_loader_takes_it_over(run):
    """From 2 to 3 workers torchdata's own state is refused by an assertion without a word."""
    for workers in (0, 2):
        before = _after(theirs(run, num_workers=workers), 4)
        state = copied(before.state_dict())
        own = (state if workers == 0 else state["_snapshot"]["_main_snapshot"])[
            "_index_sampler_state"
        ]
        assert with_description(own) == {name: run.state(16, step=4)[name] for name in own}
        resumed = ours(run, 3)
        resumed.load_state_dict(own)
        assert rows(resumed) == [[*range(k, k + 3)] for k in range(16, 37, 3)]
        alone = theirs(run, state=own)
        assert rows(alone) == passes(0, 1)[0][4:]
        assert rows(alone) == passes(1, 2)[0]


def test_a_state_of_another_run_is_taken_if_that_is_wanted(run):
    loader = ours(run.seed(8))
    loader.load_state_dict(run.state(16), allow_mismatch=True)
    assert rows(loader) == passes(0, 1)[0][4:]


def test_a_sampler_resumes_without_going_through_what_came_before(store):
    """Torchdata replays a sampler without a state: 0.3 s for 2 million steps."""
    run = toy_run(store, epochs=None)
    far = run.state(4 * 10**12, step=10**12)
    loader = theirs(run, state=far)
    assert rows(itertools.islice(loader, 1)) == [[4 * 10**12 + k for k in range(4)]]
    assert loader.state_dict()["_index_sampler_state"]["step"] == 10**12 + 1


@pytest.mark.parametrize("every", [1, 3])
@WORKERS
def test_torchdata_takes_states_only_every_few_steps_if_told_so(run, every, workers):
    for taken in (2, 3, 4, 7):
        loader = _after(theirs(run, num_workers=workers, snapshot_every_n_steps=every), taken)
        again = theirs(run, num_workers=workers, snapshot_every_n_steps=every)
        again.load_state_dict(copied(loader.state_dict()))
        assert rows(again) == passes(0, 1)[0][taken:]


# -- what others' users report ---------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_prime_rl_3299_workers_that_prefetched_before_a_state_was_loaded(run, workers):
    """There they went on with what they had prefetched, from step 0."""
    state = run.state(20, step=5)
    loader = ours(run, num_workers=workers)
    loop = iter(loader)  # workers are at work from here on
    loader.load_state_dict(state)
    with pytest.raises(tl.StateError, match="loop"):
        next(loop)
    assert rows(loader) == passes(0, 1)[0][5:]
    loader.load_state_dict(state)
    assert rows(loader) == passes(0, 1)[0][5:]


# -- distributed checkpoints -----------------------------------------------------------------


def _mixed(store):
    sources = {"a": store.windows(8).shuffle(), "b": store.pack(8).shuffle()}
    return tl.mix(sources).seed(3)


@pytest.fixture
def mixed(store):
    run = _mixed(store)
    edited = run.edit(at=24, weights={"a": 5.0})
    added = run.edit(at=24, add={"c": store.windows(8).seed(11).shuffle()})
    return run, edited, added


@pytest.mark.filterwarnings("ignore::UserWarning:torch")
@pytest.mark.filterwarnings("ignore::FutureWarning:torch")
@pytest.mark.parametrize("world", [1, 2])
def test_a_distributed_checkpoint_loads_into_an_edited_run_and_another_world(
    mixed, tmp_path, world
):
    """The description of an edited run has more keys; a checkpoint loads only what it has."""
    run, *others = mixed
    batches = dataloader(run, 4, fields=("index",))
    bare = tl.Loader(run, 4)
    rows(itertools.islice(batches, 5))
    rows(itertools.islice(bare, 5))
    state = {"data": batches, "loader": stateful(bare), "model": torch.nn.Linear(2, 2)}
    dcp.save(state, checkpoint_id=tmp_path / "saved", no_dist=True)
    at = batches.state_dict()["examples"]
    for other in (run, *others):
        rank = {"rank": world - 1, "world_size": world}
        resumed = dataloader(other, 6, fields=("index",), **rank)
        loader = tl.Loader(other, 6, **rank)
        targets = {"data": resumed, "loader": stateful(loader), "model": torch.nn.Linear(2, 2)}
        dcp.load(targets, checkpoint_id=tmp_path / "saved", no_dist=True)
        assert resumed.state_dict()["examples"] == loader.examples == at
        wanted = other.batch(range(at, at + 6)).index[6 * (world - 1) // world :]
        (found,) = itertools.islice(resumed, 1)
        assert found["index"].tolist() == wanted.tolist() == next(loader).index.tolist()
        assert found["input_ids"].tolist() == other.batch(wanted).tokens.tolist()
