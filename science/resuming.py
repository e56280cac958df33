"""Train, kill, resume: the loss curve of one piece, to the last bit.

A training process is killed (SIGKILL) in the middle, between two checkpoints, and a new process
resumes from the last one, also with other settings of the loader. Losses are compared as the bits
of their floats. The control resumes the weights but starts the data again: its curve must differ.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

import tokenloom as tl
from science.plan import Arm, Experiment, Measured, Trial, load_run, model_of
from science.texts import WORDS, piece_store
from science.training import CHECKPOINT, Recipe, resume_training, train
from science.verdicts import Check, Found
from tokenloom.evaluate.periodic import curves

__all__ = ["EXPERIMENT", "train_until"]

ARMS = (
    Arm(name="the same settings"),
    Arm(name="no prefetch", overrides=("loader.prefetch=0",)),
    Arm(name="prefetch 64", overrides=("loader.prefetch=64",)),
    Arm(name="control: data from the start", data="anew"),
)

CONTROL = ARMS[-1].name

LOG = "losses.jsonl"


def measure(trial: Trial) -> Measured:
    """One training in one piece, one that is killed and resumed, and how they differ."""
    every, fatal = max(2, trial.steps // 5), trial.steps * 7 // 10
    first = trial._replace(arm=Arm(name=trial.arm.name))
    whole = train(model_of(trial, WORDS), data_of(first), Recipe(steps=trial.steps))
    with tempfile.TemporaryDirectory(dir=trial.folder) as kept:
        folder = Path(kept)
        killed = _in_process(first, folder, every, fatal)
        step = torch.load(folder / CHECKPOINT, weights_only=True)["step"]
        if trial.arm.data == "anew":
            _forget_data(first, folder / CHECKPOINT)
        ended = _in_process(trial, folder, every, None)
        again = _curve(folder / LOG, trial.steps)
    differ = [i for i in range(trial.steps) if whole[i].hex() != again[i].hex()]
    figures = {
        "differ": float(len(differ)),
        "largest": max(abs(a - b) for a, b in zip(whole, again, strict=True)),
        "killed_in": float(fatal),
        "resumed_from": float(step),
        "killed": float(killed == -signal.SIGKILL and ended == 0),
        "last_loss": again[-1],
    }
    lines = {
        name: [(float(i), losses[i]) for i in range(trial.steps)]
        for name, losses in (("in one piece", whole), ("killed and resumed", again))
    }
    return Measured(figures, lines, {})


def data_of(trial: Trial) -> tl.Dataset:
    """The run of a trial."""
    store = piece_store(trial.folder, text="manual", pieces=200, length=96, seed=trial.seed)
    return load_run("resume", trial, [("text", store)])


def train_until(trial: Trial, folder: Path, every: int, fatal: int | None) -> None:
    """What a training process does: resume from its folder, and be killed in step `fatal`."""
    with (folder / LOG).open("a") as log:

        def tell(step: int, loss: float) -> None:
            print(json.dumps({"step": step, "loss": loss.hex()}), file=log, flush=True)
            if step == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

        model, recipe = model_of(trial, WORDS), Recipe(steps=trial.steps)
        resume_training(model, data_of(trial), recipe, folder, every=every, tell=tell)


def _in_process(trial: Trial, folder: Path, every: int, fatal: int | None) -> int | None:
    """The exit code of a training in a process of its own."""
    child = multiprocessing.get_context("spawn").Process(
        target=train_until, args=(trial, folder, every, fatal)
    )
    child.start()
    child.join()
    return child.exitcode


def _forget_data(trial: Trial, path: Path) -> None:
    """Put the state of a loader that has delivered nothing into a checkpoint."""
    saved = torch.load(path, weights_only=True)
    with tl.Loader(data_of(trial), rank=0, world_size=1) as loader:
        torch.save({**saved, "data": loader.state_dict()}, path)


def _curve(path: Path, steps: int) -> list[float]:
    """The loss of each step; one that was trained twice counts as it was the last time."""
    told = [json.loads(line) for line in path.read_text().splitlines()]
    found = {one["step"]: float.fromhex(one["loss"]) for one in told}
    return [found[step] for step in range(steps)]


def judge(found: Found) -> list[Check]:
    """No step differs, and the comparison would notice."""
    checks = [
        found.under(arm.name, "differ", 0.5, f"{arm.name}: no step differs in any bit")
        for arm in ARMS
        if arm.name != CONTROL
    ]
    control = found.below(
        ARMS[1].name, CONTROL, "differ", "control: data from the start gives another curve"
    )
    return [*checks, control._replace(control=True)]


def picture(found: Found) -> str:
    """How far losses are from those of one piece, with and without the state of the data."""
    names: Sequence[tuple[str, str]] = (("killed and resumed", ARMS[0].name), (CONTROL, CONTROL))
    lines = {}
    for label, arm in names:
        whole, again = (found.curves(arm, name) for name in ("in one piece", "killed and resumed"))
        lines[label] = [(x, b - a) for (x, a), (_, b) in zip(whole, again, strict=True)]
    return curves(
        "Train, kill, resume",
        {label: points for label, points in lines.items() if points},
        caption="loss minus that of the same training in one piece, nats per token",
    )


EXPERIMENT = Experiment(
    name="resume",
    title="Train, kill, resume",
    asks=(
        "Does a training that was killed and resumed end with the same losses as one that was not, "
        "bit for bit, also if the loader of the second half prefetches differently?"
    ),
    setting=(
        "RoPE, packed text of Python's manual pages, frames of 128, steps of 8. A checkpoint every "
        "fifth of the steps holds weights, optimiser and the state of the loader; the process gets "
        "SIGKILL after 70 %, and a new one resumes. The curves are means over seeds."
    ),
    arms=ARMS,
    quick=("no prefetch", CONTROL),
    steps=100,
    quick_steps=20,
    columns={
        "killed_in": "killed in step",
        "resumed_from": "resumed from step",
        "differ": "steps that differ",
        "largest": "largest difference",
        "last_loss": "last loss",
    },
    measure=measure,
    judge=judge,
    picture=picture,
    lesson=(
        "A training that was killed goes on as if nothing had happened, whatever the loader "
        "prefetches. The control, which starts the data again, is seen at once."
    ),
)
