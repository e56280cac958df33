"""Evaluation inside other people's loops: what a plain loop finds, at the same steps."""

import copy
import json

import hftrainers
import lightningtoys
import pytest
import torch
from hftrainers import packed_run, tiny, trained
from lightning.pytorch.loggers.logger import Logger
from transformers import TrainerCallback

from tokenloom.evaluate import Periodic, evaluate, learned
from tokenloom.integrations.hf import TrainerEvaluation
from tokenloom.integrations.lightning import LightningEvaluation

pytestmark = [
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
]


class Copies(TrainerCallback):
    """Keeps the model after some steps."""

    def __init__(self, steps):
        self.steps, self.models = steps, {}

    def on_step_end(self, args, state, control, **given):
        if state.global_step in self.steps:
            self.models[state.global_step] = copy.deepcopy(given["model"])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return packed_run(tmp_path_factory.mktemp("callbacks") / "store", documents=60)


def held_out(run):
    return {"held": lambda model: evaluate(model, run.take(6), by=("document",), progress=False)}


def test_a_trainer_finds_what_a_plain_loop_finds_and_is_left_as_it_was(run, tmp_path):
    folder = tmp_path / "results"
    periodic = Periodic(held_out(run), folder=folder, every=2, also=(0,))
    copies = Copies({2, 4})
    options = {"max_steps": 5}
    trainer = trained(
        run, tmp_path / "a", callbacks=[TrainerEvaluation(periodic), copies], **options
    )
    assert [one["step"] for one in periodic.records] == [0, 2, 4]
    job = held_out(run)["held"]
    wanted = {0: tiny(), **copies.models}
    assert [loss for _, loss in periodic.figures("held.all.loss")] == [
        job(wanted[step]).all["loss"] for step in (0, 2, 4)
    ]
    assert trainer.model.training
    without = trained(run, tmp_path / "b", max_steps=5)
    assert hftrainers.losses(without) == hftrainers.losses(trainer)


def test_a_trainer_that_resumes_goes_on_with_the_files(run, tmp_path):
    def periodic():
        return Periodic(held_out(run), folder=tmp_path / "results", every=1)

    first = TrainerEvaluation(periodic())
    trained(run, tmp_path / "a", callbacks=[first], max_steps=4, save_steps=2)
    again = TrainerEvaluation(periodic())
    checkpoint = str(tmp_path / "a/checkpoint-2")
    trained(run, tmp_path / "a", callbacks=[again], max_steps=4, save_steps=2, resume=checkpoint)
    assert again.periodic.records == first.periodic.records
    lines = (tmp_path / "results/results.jsonl").read_text().splitlines()
    assert [json.loads(one)["step"] for one in lines] == [1, 2, 3, 4]
    found = learned(again.periodic.records, "held", line=100.0)
    assert {one.step for one in found.documents} == {1.0}


class Logged(Logger):
    """Keeps what a logger is given."""

    name, version = "logged", 0

    def __init__(self):
        super().__init__()
        self.metrics = []

    def log_metrics(self, metrics, step=None):
        self.metrics.append((step, dict(metrics)))

    def log_hyperparams(self, *args, **kwargs): ...


def test_lightning_evaluates_after_steps_of_the_optimizer_and_logs_the_figures(tmp_path):
    run = hftrainers.packed_run(tmp_path / "store", documents=40)
    seen = []

    def job(net):
        seen.append(net.training)
        found = evaluate(Called(net), run.take(4), progress=False)
        return {"loss": found.all["loss"], "by": {"document": {"0": {"loss": 1.0}}}}

    class Called(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, tokens, segment_ids, position_ids):
            return self.net(tokens)

    periodic = Periodic({"held": job}, folder=tmp_path / "results", every=2, also=(0,))
    logger = Logged()
    callback = LightningEvaluation(periodic, model=lambda module: module.net)
    toy = lightningtoys.Toy()
    trainer = lightningtoys.trainer_of(
        tmp_path, [callback], logger=logger, max_steps=5, accumulate_grad_batches=2
    )
    trainer.fit(toy, lightningtoys.data_of(run, 2))
    assert [one["step"] for one in periodic.records] == [0, 2, 4]
    losses = periodic.figures("held.loss")
    assert losses[0][1] > losses[-1][1]
    assert [(step, values) for step, values in logger.metrics if "held.loss" in values] == [
        (step, {"held.loss": loss}) for step, loss in losses
    ]
    assert seen == [True, True, True]  # its mode is that of training, outside of evaluate
