"""What a run file says about its loader is taken by every adapter, or told; never ignored."""

import inspect
import logging

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.errors import ConfigError
from tokenloom.loader.loader import Loader

ROWS = 10  # of the run; 4 a step, so the last step is short
LOADER = "batch_size: 4, end: pad, untrained: zero, prefetch: 3, fetch: rows"


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """What a file says about its loader → its run."""
    root = tmp_path_factory.mktemp("filed")
    tl.build([{"text": "abcdefgh" * 10}], root / "toy", tokenizer="bytes")

    def loaded(section, name="run.yaml"):
        text = f"sources: {{toy: {{store: toy, windows: 8}}}}\nloader: {{{section}}}\n"
        (root / name).write_text(text)
        return tl.load(root / name)

    return loaded


def torch_loader(run, *args, **given):
    from tokenloom.integrations.torch import dataloader

    return dataloader(run, *args, **given)


def accelerated(run, *args, **given):
    from accelerate import Accelerator

    from tokenloom.integrations.hf import prepare

    return prepare(Accelerator(cpu=True), run, *args, **given)


def module(run, *args, **given):
    from lightningtoys import DataModule

    return DataModule(run, *args, **given).train_dataloader().loader


def grain_iterator(run, *args, **given):
    from tokenloom.integrations.grain import iterator

    return iterator(run, *args, **given)


def grain_source(run, *args, **given):
    from tokenloom.integrations.grain import source

    return source(run, *args, **given)


ADAPTERS = [torch_loader, accelerated, module, grain_iterator, grain_source]


def reader_of(made):
    """The step reader inside an adapter."""
    for name in ("loop", "dataset", "reader", "_reader"):
        inner = getattr(made, name, None)
        if inner is not None:
            return inner if hasattr(inner, "passes") and name != "loop" else reader_of(inner)
    raise AssertionError(type(made))


def settings_of(made):
    """(batch size, end) and the settings of the loader inside an adapter."""
    reader = reader_of(made)
    return (reader.passes.batch_size, reader.passes.end), reader.loader._settings


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: one.__name__)
def test_an_adapter_takes_what_the_file_says(adapter, load):
    """The control is an adapter of the same run without a file: it has no batch size."""
    run = load(LOADER)
    deciding, settings = settings_of(adapter(run))
    assert deciding == (4, "pad")
    assert settings["untrained"] == "zero"
    bare = run._but(file=None)
    assert settings_of(adapter(bare, 4))[0] == (4, "drop")
    with pytest.raises(ConfigError, match="batch_size: found None"):
        adapter(bare)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: one.__name__)
def test_an_argument_wins_over_the_file(adapter, load):
    run = load(LOADER)
    assert settings_of(adapter(run, 2, end="drop"))[0] == (2, "drop")
    assert settings_of(adapter(run, batch_size=5))[0] == (5, "pad")


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda one: one.__name__)
def test_what_an_adapter_cannot_take_is_told_with_what_decides_instead(adapter, load, caplog):
    run = load("batch_size: 4, dtype: int64, fields: [tokens, segment_ids], patience: 9")
    with caplog.at_level(logging.WARNING, "tokenloom"):
        adapter(run)
    told = [one.getMessage() for one in caplog.records if "loader." in one.getMessage()]
    assert len(told) == 3  # once each, also where an adapter is made of another
    for name in ("dtype: found 'int64'", "fields: found (", "patience: found 9"):
        assert sum(f"run.yaml: loader.{name}" in message for message in told) == 1


def test_rows_of_an_adapter_are_those_of_a_loader_of_the_same_file(load):
    run = load(LOADER)
    with tl.Loader(run) as loader:
        ours = [batch.tokens for batch in loader]
    theirs = [batch["input_ids"].numpy() for batch in torch_loader(run)]
    assert len(ours) == len(theirs) == -(-ROWS // 4)
    assert all((a == b).all() for a, b in zip(ours, theirs, strict=True))


def test_a_trainer_keeps_its_batch_size_and_says_so(load, tmp_path, caplog):
    from hftrainers import arguments, tiny
    from transformers import Trainer

    from tokenloom.integrations.hf import attach

    run = load("batch_size: 4, end: pad, accumulate: 2")
    model = tiny()
    model.resize_token_embeddings(256)
    trainer = Trainer(model, arguments(tmp_path, per_device_train_batch_size=2))
    with caplog.at_level(logging.WARNING, "tokenloom"):
        attach(trainer, run, check=False, contract="hf")
    assert (trainer._loom.end, trainer._loom.untrained) == ("pad", "raise")
    assert "loader.batch_size: found 4" in caplog.text
    assert "loader.accumulate: found 2" in caplog.text


def test_rows_for_levanter_have_no_loader_and_say_so(load, caplog):
    from tokenloom.integrations.levanter import async_dataset

    with caplog.at_level(logging.WARNING, "tokenloom"):
        found = async_dataset(load("batch_size: 4")).rows([0])
    assert np.asarray(found[0].tokens).tolist() == list(b"abcdefgh")
    assert "loader.batch_size: found 4" in caplog.text


def test_the_loader_takes_every_setting_that_a_file_may_have(load, caplog):
    with caplog.at_level(logging.WARNING, "tokenloom"), tl.Loader(load(LOADER)) as loader:
        assert loader._settings["fetch"] == "rows"
    assert "loader." not in caplog.text
    assert {"batch_size", "dtype", "patience"} <= set(inspect.signature(Loader).parameters)
