"""A DataLoader of torch gives what `tokenloom.Loader` gives, for every order, rank and contract."""

import itertools
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils.pin_memory import pin_memory
from toyruns import KINDS, toy_run, toy_store
from trainerfeeds import ADAPTERS

import tokenloom as tl
from tokenloom.batch.views.contracts import CONTRACTS
from tokenloom.integrations.torch import StepDataset, dataloader

PROOF = ("segment_ids", "loss_weights", "index")  # with position_ids: what a digest needs

MORE_WORKERS = pytest.mark.filterwarnings("ignore:This DataLoader will create")

FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")

pytestmark = [MORE_WORKERS, FORKS]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


def equal(found, wanted):
    """Whether two dicts hold the same arrays and the same of everything else."""
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        if name == "mask_mod":
            assert torch.equal(found[name].segment_ids, value.segment_ids)
        elif isinstance(value, torch.Tensor):
            assert found[name].dtype == value.dtype, name
            assert torch.equal(found[name], value), name
        else:
            assert found[name] == value, name
    return True


def wanted_of(run, *given, contract="hf", fields=(), **settings):
    """The same by the loader itself; after the last step of a pass, the whole pass is delivered."""
    loader = tl.Loader(run, *given, **settings)
    found = [batch.torch(contract=contract, fields=fields) for batch in loader]
    found[-1]["examples_after"][:] = len(run)
    return found


def same_batches(found, wanted):
    return len(found) == len(wanted) and all(map(equal, found, wanted))


STARTED = [
    (0, None),
    (2, "fork"),
    *(pytest.param(2, how, marks=pytest.mark.slow) for how in ("spawn", "forkserver")),
]


@pytest.mark.parametrize(("workers", "how"), STARTED)
def test_the_order_is_that_of_the_loader_however_workers_start(store, workers, how):
    """Two passes, with the workers of the first kept for the second."""
    run = toy_run(store, "lanes 2", epochs=1)
    kept = {"persistent_workers": True} if workers else {}
    batches = dataloader(
        run, 5, num_workers=workers, multiprocessing_context=how, fields=PROOF, **kept
    )
    assert isinstance(batches, DataLoader)
    assert same_batches(list(batches), wanted_of(run, 5, fields=PROOF))
    second = list(batches)
    assert [batch["examples_after"][0].item() for batch in second] == [42, 47, 52, 57, 62, 67, 74]
    whole = toy_run(store, "lanes 2", epochs=2)
    for batch in second:
        assert np.array_equal(batch["input_ids"], whole.batch(batch["index"].numpy()).tokens)
    assert sorted(torch.cat([b["index"] for b in second]).tolist()) == list(range(37, 72))


@pytest.mark.parametrize("kind", KINDS)
def test_every_order_and_contract_is_byte_for_byte_the_loader(store, kind):
    run = toy_run(store, kind, epochs=2)
    for contract in CONTRACTS:
        batches = list(dataloader(run, 6, contract=contract))
        assert same_batches(batches, wanted_of(run, 6, contract=contract))
        wide = {"input_ids", "labels", "inputs", "targets", "examples_after"} & {*batches[0]}
        assert {batches[0][name].dtype for name in wide} == {torch.int64}


@pytest.mark.parametrize("contract", ["flash", "flex"])
def test_what_is_no_array_comes_through_worker_processes(store, contract):
    """Lengths that vary and are plain numbers, and a function."""
    run = store.pack(16).shuffle()
    found = list(dataloader(run, 4, contract=contract, num_workers=2))
    assert same_batches(found, wanted_of(run, 4, contract=contract))
    if contract == "flex":
        same = found[0]["mask_mod"](0, 0, torch.tensor(3), torch.tensor(2))
        segments = found[0]["segment_ids"][0]
        assert bool(same) == bool(segments[3] == segments[2] != 0)


def test_fields_are_added_by_name_and_without_a_contract_there_is_nothing_else(store):
    run = store.pack(16).shuffle()
    names = ("segment_ids", "loss_mask", "step_loss_tokens", "index", "source", "cu_seqlens")
    wanted = wanted_of(run, 4, fields=names)
    found = list(dataloader(run, 4, fields=names))
    assert same_batches(found, wanted)
    assert set(names) < set(found[0])
    assert found[0]["step_loss_tokens"].tolist() == [int(found[0]["loss_mask"].sum())] * 4
    named = ("examples_after", "input_ids", "labels")
    bare = dataloader(run, 4, contract=None, fields=named[1:], num_workers=2)
    assert same_batches(list(bare), [{name: one[name] for name in named} for one in wanted])


@pytest.mark.parametrize(
    ("epochs", "size", "end", "steps"),
    [
        (1, 8, "drop", 4),
        (1, 8, "pad", 5),
        (1, 8, "wrap", None),
        (None, 8, "drop", None),
        (2, [(0, 4), (10, 6), (30, 10)], "drop", 10),
    ],
)
def test_ends_schedules_and_endless_runs_are_those_of_the_loader(store, epochs, size, end, steps):
    run = toy_run(store, epochs=epochs)
    batches = dataloader(run, size, end=end, num_workers=2)
    assert steps is None or len(batches) == steps
    found = list(itertools.islice(batches, 15))
    wanted = [one.torch() for one in itertools.islice(tl.Loader(run, size, end=end), 15)]
    if steps is None:
        assert len(found) == 15
    else:
        assert len(found) == steps
        wanted[-1]["examples_after"][:] = len(run)
    assert same_batches(found, wanted)
    if epochs is None:
        assert batches.state_dict()["examples"] == 120
        for endless in (lambda: len(batches), lambda: list(DataLoader(run, batch_size=8))):
            with pytest.raises(TypeError, match="endless"):
                endless()


@pytest.mark.parametrize("name", ["torch", "Accelerate", "Lightning"])
def test_options_of_a_data_loader_are_handed_on_by_every_adapter_of_torch(store, name):
    """They were documented, and refused as unknown."""
    made = ADAPTERS[name](toy_run(store), 4, num_workers=1, persistent_workers=True)
    if name == "Lightning":
        made.setup("fit")
        made = made.train_dataloader().loader
    assert made.persistent_workers


# -- loops ---------------------------------------------------------------------------------


def index_of(batches):
    return [batch["index"].tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_ruling_40_a_second_loop_is_fresh_and_a_loop_that_was_left_starts_again(store, workers):
    batches = dataloader(toy_run(store, epochs=1), 4, fields=("index",), num_workers=workers)
    assert len(batches) == 9
    first = index_of(batches)
    assert first == [[*range(k, k + 4)] for k in range(0, 36, 4)]
    left = index_of(itertools.islice(batches, 2))
    assert batches.epoch == 1
    assert left == [[37, 38, 39, 40], [41, 42, 43, 44]]
    assert index_of(batches) == [[*range(k, k + 4)] for k in range(37, 73, 4)]
    assert batches.epoch == 2
    batches.set_epoch(0)
    assert index_of(batches) == first
    counted = [index_of(itertools.islice(batches, len(batches))) for _ in range(2)]
    assert [one[0][0] for one in counted] == [37, 74]  # never asked for more than the last step


def test_evaluation_is_the_same_pass_every_time(store):
    batches = dataloader(toy_run(store, epochs=1), 4, repeat=True, end="pad", num_workers=2)
    first, second = list(batches), list(batches)
    assert same_batches(first, second)
    assert batches.epoch == 0


def test_where_another_pass_is_impossible_the_second_loop_says_why(store):
    sources = {"a": store.windows(8).shuffle(), "b": store.pack(8).shuffle()}
    batches = dataloader(tl.mix(sources, stop="all_exhausted"), 4)
    assert len(list(batches)) == len(batches) == 18  # also after the only pass
    with pytest.raises(tl.ConfigError, match="stop='all_exhausted'"):
        iter(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loop_draws_nothing_from_the_random_generators_of_the_model(store, workers):
    """Torch's own DataLoader draws a number when a loop starts, so a resumed dropout differs."""
    run = toy_run(store, epochs=1)
    before = torch.get_rng_state()
    list(dataloader(run, 8, num_workers=workers))
    assert torch.equal(torch.get_rng_state(), before)
    list(DataLoader(run, 8))
    assert not torch.equal(torch.get_rng_state(), before)


# -- devices -------------------------------------------------------------------------------


def test_batches_are_moved_one_step_ahead(store):
    run = toy_run(store, epochs=1)
    made = []
    make = StepDataset.__getitem__

    def counted(self, key):
        made.append(key.step)
        return make(self, key)

    with mock.patch.object(StepDataset, "__getitem__", counted):
        plain = [len(made) for _ in dataloader(run, 8)]
        assert plain == [1, 2, 3, 4]
        made.clear()
        batches = dataloader(run, 8, device="cpu", contract="flex")
        ahead, states, found = [], [], []
        for batch in batches:
            ahead.append(len(made))
            states.append(batches.state_dict()["examples"])
            found.append(batch)
    assert ahead == [2, 3, 4, 4]
    assert states == [8, 16, 24, 37]  # what was handed over, not what was moved
    assert same_batches(found, list(dataloader(run, 8, contract="flex")))
    (batch, *_) = dataloader(run, 8, device="meta", contract="flex")
    places = {name: one.device.type for name, one in batch.items() if hasattr(one, "device")}
    assert set(places.values()) == {"meta"}
    assert batch["mask_mod"].segment_ids.device.type == "meta"


def test_pinning_reaches_every_tensor_and_nothing_else(store, monkeypatch):
    """Without an accelerator no memory can be pinned, so a tensor is marked instead."""
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *_: self.clone())
    for contract in CONTRACTS:
        (batch,) = dataloader(store.pack(16), 16, contract=contract)
        pinned = pin_memory(batch)
        assert equal(pinned, batch)
        for name, value in batch.items():
            if isinstance(value, torch.Tensor):
                assert pinned[name] is not value
    with pytest.warns(UserWarning, match="pin_memory"):
        found = list(dataloader(toy_run(store), 8, pin_memory=True, num_workers=2))
    assert same_batches(found, list(dataloader(toy_run(store), 8)))


# -- a plain DataLoader --------------------------------------------------------------------


class Counted(Dataset):
    """Counts how it is asked."""

    def __init__(self, run):
        self.run, self.asked = run, []

    def __len__(self):
        return len(self.run)

    def __getitems__(self, indices):
        self.asked.append(list(indices))
        return self.run.__getitems__(indices)


def test_a_plain_data_loader_reads_a_batch_at_once(store, monkeypatch):
    """As many plans as batches; by item it would be one for each row."""
    run, plans = toy_run(store, epochs=1), []
    batch = tl.Dataset.batch
    monkeypatch.setattr(
        tl.Dataset, "batch", lambda s, rows: plans.append(len(rows)) or batch(s, rows)
    )
    asked = Counted(run)
    list(DataLoader(asked, batch_size=8))
    assert plans == [8, 8, 8, 8, 5]
    assert asked.asked[1] == list(range(8, 16))


def test_a_plain_data_loader_that_shuffles_again_is_told(store):
    run = toy_run(store, epochs=1)
    with pytest.warns(UserWarning, match="shuffle=False"):
        found = list(DataLoader(run, batch_size=8, shuffle=True))
    assert sorted(torch.cat([one["index"] for one in found]).tolist()) == list(range(37))
    for one in found:  # another order, the same rows
        assert np.array_equal(one["input_ids"], run.batch(one["index"].numpy()).tokens)
