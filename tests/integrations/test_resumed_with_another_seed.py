"""A state of every adapter names the key that differs, with both values, and keeps its own keys."""

import json

import pytest
import torch

import tokenloom as tl
from tokenloom.integrations.torch import dataloader, stateful
from tokenloom.loader import write_state

SEED = r"seed: the state has 7, this run has 8"


@pytest.fixture
def runs(tmp_path):
    rng = torch.Generator().manual_seed(0)
    rows = [{"input_ids": torch.randint(0, 50, (40,), generator=rng).tolist()} for _ in range(30)]
    store = tl.build(rows, tmp_path / "store", tokenizer=None, vocab_size=50)
    return [store.pack(16).shuffle().seed(seed) for seed in (7, 8)]


def of_torch(run):
    return dataloader(run, 4)


def of_sampler(run):
    return dataloader(run, 4).sampler


def of_stateful(run):
    return stateful(tl.Loader(run, 4))


def of_jax(run):
    return pytest.importorskip("tokenloom.integrations.jax").batches(run, 4)


def of_lightning(run):
    return pytest.importorskip("tokenloom.integrations.lightning").DataModule(run, 4)


def of_accelerate(run):
    accelerate = pytest.importorskip("accelerate")
    from tokenloom.integrations.hf import prepare

    return prepare(accelerate.Accelerator(cpu=True), run, 4)


ADAPTERS = [of_torch, of_sampler, of_stateful, of_jax, of_lightning, of_accelerate]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_another_seed_is_named_with_both_values(runs, adapter):
    state = adapter(runs[0]).state_dict()
    for saved in (state, json.loads(json.dumps(state))):
        with pytest.raises(tl.StateError, match=SEED):
            adapter(runs[1]).load_state_dict(saved)
        adapter(runs[0]).load_state_dict(saved)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_state_that_was_loaded_and_saved_again_still_names_it(runs, adapter):
    loaded = adapter(runs[0])
    loaded.load_state_dict(adapter(runs[0]).state_dict())
    with pytest.raises(tl.StateError, match=SEED):
        adapter(runs[1]).load_state_dict(loaded.state_dict())


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_keys_and_types_are_the_same_for_every_run(runs, adapter):
    both = tl.mix({"a": runs[0], "b": runs[1]}, weights={"a": 1, "b": 2}).edit(
        at=12, weights={"a": 3}
    )
    first, second = (adapter(run).state_dict() for run in (runs[0], both))
    kinds = [{key: type(value) for key, value in one.items()} for one in (first, second)]
    assert kinds[0] == kinds[1]
    assert set(kinds[0].values()) == {int, str}


def test_what_a_state_is_of_may_be_missing_or_damaged(runs):
    state = dataloader(runs[0], 4).state_dict()
    for text in ("", "{", "[1]", "[" * 10**5, None):
        saved = {**state, "dataset": text}
        dataloader(runs[0], 4).load_state_dict(saved)
        with pytest.raises(tl.StateError, match=r"fingerprint: .*[0-9a-f]{12}"):
            dataloader(runs[1], 4).load_state_dict(saved)


def test_the_command_line_reads_the_file_of_an_adapters_state(runs, tmp_path, capsys):
    from tokenloom.cli import main

    loader = dataloader(runs[0], 4)
    next(iter(loader))
    path = write_state(loader.state_dict(), tmp_path / "state.json")
    assert main(["state", str(path), "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert (about["examples"], about["of"]) == (4, len(runs[0]))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_of_torch_has_it_too(runs, tmp_path):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    place = {"checkpoint_id": tmp_path / "saved"}
    dcp.save({"data": dataloader(runs[0], 4)}, **place)
    with pytest.raises(Exception, match=SEED):
        dcp.load({"data": dataloader(runs[1], 4)}, **place)
    dcp.load({"data": dataloader(runs[0], 4)}, **place)
