"""A run in a Trainer: its order, resume, passes and evaluation, and the settings it refuses."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hf_worker import sft_trainer
from hftrainers import (
    HASHED,
    Remembering,
    arguments,
    indices,
    losses,
    packed_run,
    tiny,
    trained,
)
from transformers import Trainer, TrainerCallback

import tokenloom as tl
from tokenloom.errors import ConfigError, StateError
from tokenloom.integrations.hf import LoomTrainer, attach, placeholder
from tokenloom.integrations.torch import dataloader
from tokenloom.loader import read_state, write_state


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return packed_run(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def whole(run, tmp_path_factory):
    """Nine steps of 4, without interruption."""
    folder = tmp_path_factory.mktemp("whole")
    return trained(run, folder, max_steps=9, save_steps=1, mine={"fields": HASHED})


# -- order -----------------------------------------------------------------------------------
def test_micro_batches_are_the_rows_of_a_step_in_order(run, whole, tmp_path):
    options = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}
    model = tiny(dropout=0.0)
    two = trained(run, tmp_path / "2", max_steps=4, model=model, mine={"fields": HASHED}, **options)
    assert [len(fed["index"]) for fed in two.fed] == [2] * 8
    assert indices(two) == list(range(16))
    one = trained(run, tmp_path / "1", max_steps=4, model=tiny(dropout=0.0))
    assert losses(two) == pytest.approx(losses(one), abs=1e-6)  # normalised over the whole step


def test_the_model_gets_what_the_contract_names_and_nothing_else(run, tmp_path):
    trainer = trained(run, tmp_path, max_steps=1)
    assert set(trainer.fed[0]) == {"input_ids", "labels", "position_ids", "use_cache"}
    assert trainer.fed[0]["use_cache"] is False


def test_every_rank_has_its_contiguous_share(run, tmp_path):
    shares = []
    for rank in range(3):
        trainer = Remembering(tiny(), arguments(tmp_path, gradient_accumulation_steps=2))
        options = {"rank": rank, "world_size": 3, "check": False, "fields": ("index",)}
        feed = iter(attach(trainer, run, **options).get_train_dataloader())
        shares.append([next(feed)["index"].tolist() for _ in range(2)])
    assert np.ravel(shares).tolist() == list(range(24))


# -- resume ----------------------------------------------------------------------------------
@pytest.mark.parametrize("step", [1, 4, 8])
def test_a_resumed_training_has_the_losses_of_the_whole_one(run, whole, tmp_path, step):
    """Dropout included: random numbers are the same as well."""
    start = f"{whole.args.output_dir}/checkpoint-{step}"
    again = trained(run, tmp_path, resume=start, max_steps=9, mine={"fields": HASHED})
    assert losses(again) == losses(whole)
    assert indices(again) == list(range(4 * step, 36))
    after = zip(again.model.parameters(), whole.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in after)


def test_another_batch_size_and_accumulation_continue_with_the_next_example(run, whole, tmp_path):
    again = trained(
        run,
        tmp_path,
        resume=f"{whole.args.output_dir}/checkpoint-2",
        max_steps=4,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=3,
        mine={"fields": HASHED},
    )
    assert indices(again) == list(range(8, 20))


def test_workers_feed_the_same(run, whole, tmp_path):
    start = f"{whole.args.output_dir}/checkpoint-4"
    again = trained(run, tmp_path, resume=start, max_steps=6, dataloader_num_workers=1)
    assert {step: losses(whole)[step] for step in losses(again)} == losses(again)


def test_a_training_that_has_ended_does_no_further_step(run, whole, tmp_path):
    """A Trainer with an endless loader does one."""
    last = f"{whole.args.output_dir}/checkpoint-9"
    again = trained(run, tmp_path, resume=last, max_steps=9)
    assert again.state.global_step == 9
    assert "fed" not in again.__dict__


def test_a_checkpoint_within_a_step_has_the_state_of_the_last_trained_one(run, tmp_path):
    """As a Trainer that is told to stop saves it: batches are taken, but not trained."""

    class SaveBefore(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, **rest):
            if state.global_step == 2:
                trainer._save_checkpoint(trainer.model, trial=None)

    trainer = Remembering(tiny(), arguments(tmp_path, max_steps=4), callbacks=[SaveBefore()])
    attach(trainer, run, check=False).train()
    assert read_state(tmp_path / "checkpoint-2/tokenloom.json")["examples"] == 8


def test_an_epoch_that_is_left_early_goes_on_after_the_last_trained_step(run, tmp_path):
    class Leave(TrainerCallback):
        def on_step_end(self, args, state, control, **rest):
            control.should_epoch_stop = state.global_step == 2

    mine = {"fields": HASHED}
    left = trained(run, tmp_path, max_steps=5, callbacks=[Leave()], mine=mine)
    assert indices(left) == list(range(20))


def test_accumulation_that_changes_while_training_is_refused(run, tmp_path):
    class Change(TrainerCallback):
        def on_step_end(self, args, state, control, **rest):
            args.gradient_accumulation_steps = 2

    with pytest.raises(StateError, match="gradient_accumulation_steps"):
        trained(run, tmp_path, max_steps=5, callbacks=[Change()])


# -- checkpoints -----------------------------------------------------------------------------
def test_the_newest_complete_checkpoint_is_taken(run, whole, tmp_path):
    folder = tmp_path / "out"
    shutil.copytree(whole.args.output_dir, folder)
    for step, lost in ((9, "trainer_state.json"), (8, "tokenloom.json")):
        (folder / f"checkpoint-{step}" / lost).unlink()
    (folder / "checkpoint-7/trainer_state.json").write_text('{"global_st')  # cut off
    with pytest.warns(UserWarning, match="checkpoint-6") as told:
        again = trained(run, folder, resume=True, max_steps=9, mine={"fields": HASHED})
    assert len(told) == 3
    assert indices(again) == list(range(24, 36))
    assert losses(again) == losses(whole)


def test_a_checkpoint_without_a_state_is_refused_with_the_line_that_makes_one(run, whole, tmp_path):
    with pytest.raises(StateError, match="checkpoint"):  # there is none
        trained(run, tmp_path, resume=True, max_steps=2)
    folder = tmp_path / "checkpoint-4"
    shutil.copytree(f"{whole.args.output_dir}/checkpoint-4", folder)
    (folder / "tokenloom.json").unlink()
    with pytest.raises(StateError, match="checkpoint-4"):
        trained(run, tmp_path, resume=str(folder), max_steps=6)
    write_state(run.state(16), folder / "tokenloom.json")
    again = trained(run, tmp_path, resume=str(folder), max_steps=6)
    assert losses(again)[5] == losses(whole)[5]


def test_auto_says_that_none_is_left_and_starts_anew_only_after_checkpoints_cut_off(
    run, whole, tmp_path
):
    """It once started anew over finished checkpoints."""
    for step in (2, 4):
        folder = tmp_path / f"checkpoint-{step}"
        shutil.copytree(f"{whole.args.output_dir}/checkpoint-{step}", folder)
        (folder / "tokenloom.json").unlink()
    with pytest.raises(StateError, match="checkpoint-4"):
        trained(run, tmp_path, resume="auto", max_steps=1)
    for step in (2, 4):
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").unlink()
    with pytest.warns(UserWarning, match="checkpoint-") as told:
        again = trained(run, tmp_path, resume="auto", max_steps=1)
    assert len(told) == 2
    assert losses(again) == {1: losses(whole)[1]}


def test_a_state_of_another_run_is_refused_unless_told(run, whole, tmp_path):
    start = f"{whole.args.output_dir}/checkpoint-4"
    with pytest.raises(StateError, match="seed"):
        trained(run.seed(9), tmp_path, resume=start, max_steps=6)
    mine = {"allow_mismatch": True, "fields": ("index",)}
    other = trained(run.seed(9), tmp_path, resume=start, max_steps=5, mine=mine)
    assert indices(other) == [16, 17, 18, 19]


# -- passes ----------------------------------------------------------------------------------
class Seen(TrainerCallback):
    """What a Trainer did, at which step."""

    def __init__(self):
        self.saved, self.evaluated = [], []

    def on_save(self, args, state, control, **rest):
        self.saved.append(state.global_step)

    def on_evaluate(self, args, state, control, **rest):
        self.evaluated.append(state.global_step)


def test_ruling_40_epochs_are_passes_over_the_run_each_in_a_fresh_order(run, tmp_path):
    part, seen = run.take(22), Seen()
    trainer = Remembering(
        tiny(),
        arguments(
            tmp_path,
            num_train_epochs=2,
            logging_strategy="epoch",
            save_strategy="epoch",
            eval_strategy="epoch",
        ),
        callbacks=[seen],
        eval_dataset=part.take(3),
    )
    attach(trainer, part, check=False, fields=("index",)).train()
    assert indices(trainer) == [*range(20), *range(22, 42)]  # 2 of each pass are left out
    assert trainer.state.global_step == 10
    assert seen.saved == seen.evaluated == [5, 10]
    assert [one["epoch"] for one in trainer.state.log_history if "loss" in one] == [1.0, 2.0]
    assert trainer.args.max_steps == -1  # as it was


@pytest.mark.parametrize(("size", "steps"), [(5, 2 + 4), (2, 7 + 11)])
def test_another_batch_size_trains_the_rest_of_the_epochs(run, tmp_path, size, steps):
    """After 8 of 22 examples: what is left of the pass, then a whole one."""
    part = run.take(22)
    trained(part, tmp_path / "a", max_steps=2, save_steps=2)
    again = trained(
        part,
        tmp_path / "b",
        resume=str(tmp_path / "a/checkpoint-2"),
        num_train_epochs=2,
        per_device_train_batch_size=size,
        mine={"fields": ("index",)},
    )
    assert again.state.global_step == 2 + steps
    rest = [*range(8, 8 + 14 // size * size), *range(22, 22 + 22 // size * size)]
    assert indices(again) == rest


@pytest.mark.parametrize("wants", [{"num_train_epochs": 2}, {"max_steps": 99}], ids=str)
@pytest.mark.parametrize("why", ["all_exhausted", "edits"])
def test_a_run_without_a_second_pass_is_refused_before_training(run, tmp_path, why, wants):
    mixed = tl.mix({"a": run, "b": run}, stop="all_exhausted")
    if why == "edits":
        mixed = tl.mix({"a": run, "b": run}).edit(at=8, weights={"a": 3})
    with pytest.raises(ConfigError, match=why):
        trained(mixed, tmp_path, **wants)


def test_a_run_with_one_pass_is_trained_to_its_end_and_an_endless_one_has_no_epochs(run, tmp_path):
    mixed = tl.mix({"a": run, "b": run}, stop="all_exhausted").take(9)
    assert trained(mixed, tmp_path, max_steps=2).state.global_step == 2
    with pytest.raises(ConfigError, match="max_steps"):
        trained(run.epochs(None), tmp_path, num_train_epochs=1)


# -- evaluation ------------------------------------------------------------------------------
def mean_loss(model, run):
    """The mean over all trained tokens, row by row."""
    total = count = 0.0
    model.eval()
    for batch in dataloader(run, 1):
        del batch["examples_after"]
        tokens = int((batch["labels"][:, 1:] != -100).sum())
        with torch.no_grad():
            total += float(model(**batch).loss) * tokens
        count += tokens
    return total / count


def test_evaluation_runs_have_losses_of_their_own_exact_for_every_batch_size(run, tmp_path):
    sets = {"web": run.take(7), "books": run.seed(2).take(5)}
    options = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 3}
    trainer = LoomTrainer(
        tiny(), arguments(tmp_path, max_steps=2, **options), run=run, eval_runs=sets, check=False
    )
    trainer.train()
    wanted = {name: mean_loss(trainer.model, one) for name, one in sets.items()}
    logged = [one for one in trainer.state.log_history if "eval_web_loss" in one]
    assert logged[0]["eval_web_loss"] == pytest.approx(wanted["web"], abs=1e-6)
    for size in (1, 2, 4, 8):
        trainer.args.per_device_eval_batch_size = size
        found = trainer.evaluate()
        assert found["eval_web_loss"] == pytest.approx(wanted["web"], abs=1e-6)
        assert found["eval_books_loss"] == pytest.approx(wanted["books"], abs=1e-6)
    given = trainer.evaluate(run.take(4))["eval_loss"]
    assert given == pytest.approx(mean_loss(trainer.model, run.take(4)), abs=1e-6)
    assert given != pytest.approx(wanted["web"], abs=1e-6)


@pytest.mark.parametrize("by_batch", [False, True])
def test_predictions_are_the_rows_of_the_run_and_no_others(run, tmp_path, by_batch):
    rows, calls = run.take(7), []

    def metrics(found, compute_result=True):
        calls.append((len(found.label_ids), compute_result))
        return {"rows": sum(rows for rows, _ in calls)} if compute_result else {}

    trainer = Trainer(
        tiny(),
        arguments(tmp_path, per_device_eval_batch_size=3, batch_eval_metrics=by_batch),
        compute_metrics=metrics,
    )
    attach(trainer, run, eval_runs=rows, check=False)
    assert trainer.evaluate()["eval_rows"] == 7
    assert calls[-1][1] is True
    if not by_batch:
        labels = trainer.predict(rows).label_ids
        assert labels.tolist() == rows.batch(range(7)).labels.tolist()
        other = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 3  # as before
        assert trainer.evaluate(other)["eval_rows"] > 7


# -- bad use ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"accelerator_config": {"split_batches": True}}, "split_batches"),
        ({"accelerator_config": {"dispatch_batches": True}}, "dispatch_batches"),
        ({"train_sampling_strategy": "group_by_length"}, "train_sampling_strategy"),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused(run, tmp_path, options, named):
    trainer = Trainer(tiny(), arguments(tmp_path, **options))
    with pytest.raises(ConfigError, match=f"args.*{named}"):
        attach(trainer, run, check=False)


def test_a_loss_of_trls_own_is_refused_because_the_store_says_what_is_trained(run, tmp_path):
    trainer = Trainer(tiny(), arguments(tmp_path))
    for asked in (None, False):
        trainer.args.completion_only_loss = asked  # a field of TRL's SFTConfig
        attach(trainer, run, check=False)
    trainer.args.completion_only_loss = True
    with pytest.raises(ConfigError, match=r"args\.completion_only_loss: found True"):
        attach(trainer, run, check=False)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"contract": "flex"}, "contract"),
        ({"contract": "auto", "check": False}, "auto"),
        ({"eval_runs": {"web": [1, 2]}}, "eval_runs"),
        ({"end": "stop"}, "end"),
        ({"num_worker": 2}, "num_workers"),
    ],
)
def test_arguments_that_are_wrong_are_refused_at_once(run, tmp_path, options, named):
    trainer = Trainer(tiny(), arguments(tmp_path))
    with pytest.raises((ConfigError, TypeError), match=named):
        attach(trainer, run, **({"check": False} | options))


def test_runs_and_trainers_that_do_not_fit_are_refused_at_once(run, tmp_path):
    trainer = Trainer(tiny(), arguments(tmp_path))
    with pytest.raises(ConfigError, match="take"):
        attach(trainer, run, eval_runs=run.epochs(None), check=False)
    with pytest.raises(ConfigError, match="sdpa"):
        attach(trainer, run.render(position_scheme="absolute"), check=False)
    with pytest.raises(ConfigError, match="prepare"):
        attach(tiny(), run)


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")  # TRL's own settings
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("packing", [False, True])
def test_a_placeholder_without_a_run_is_an_error_that_names_attach(run, tmp_path, packing):
    """It was trained on, and the loss looked like one."""
    options = {"max_steps": 1, "packing": packing, "max_length": 8, "eval_strategy": "steps"}
    trainer = sft_trainer(tiny(), tmp_path, eval_dataset=placeholder(), **options)
    for asks in (trainer.train, trainer.evaluate):
        with pytest.raises(ConfigError, match="placeholder"):
            asks()
    attach(trainer, run, eval_runs=run.take(4)).train()
    assert losses(trainer)


def test_a_dataset_of_the_trainer_that_goes_unused_is_warned_of(run, tmp_path):
    trainer = Trainer(tiny(), arguments(tmp_path), train_dataset=[{"input_ids": [1]}] * 2)
    with pytest.warns(UserWarning, match="train_dataset") as caught:
        attach(trainer, run, check=False)
    assert len(caught) == 1


def test_a_trainer_keeps_its_batch_size_beside_that_of_a_run_file(tmp_path, caplog):
    tl.build([{"text": "abcdefgh" * 10}], tmp_path / "toy", tokenizer="bytes")
    text = "sources: {toy: {store: toy, windows: 8}}\nloader: {batch_size: 4, accumulate: 2}\n"
    (tmp_path / "run.yaml").write_text(text)
    model = tiny()
    model.resize_token_embeddings(256, mean_resizing=False)
    options = {"model": model, "max_steps": 1, "per_device_train_batch_size": 2}
    with caplog.at_level(logging.WARNING, "tokenloom"):
        trainer = trained(tl.load(tmp_path / "run.yaml"), tmp_path, **options)
    assert [len(fed["input_ids"]) for fed in trainer.fed] == [2]
    for name, value in (("batch_size", 4), ("accumulate", 2)):
        assert f"loader.{name}: found {value}" in caplog.text


def test_a_checkpoint_says_nothing_about_where_it_was_made(run, whole, tmp_path):
    text = Path(f"{whole.args.output_dir}/checkpoint-1/tokenloom.json").read_text()
    assert str(whole.args.output_dir) not in text
    assert json.loads(text)["step"] == 1
