"""Train a tiny model with torch, get killed, and resume: the same losses to the last bit."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenloom as tl
from examples.demo.printing import DemoFailed, explain, prove, say
from examples.demo.world import World

__all__ = ["train_a_model", "train_until"]

SEQ_LEN, BATCH_SIZE, STEPS, SAVE_EVERY = 64, 8, 48, 6
BARS = "▁▂▃▄▅▆▇█"


def train_a_model(world: World) -> World:
    """The step: one training run in one piece, and one that dies on the way."""
    if importlib.util.find_spec("torch") is None:
        say("torch is not installed, so there is nothing to train here. To see this step:")
        say("    .venv/bin/pip install torch==2.13.0")
        return world
    store = world.stores["code"]
    run = store.pack(SEQ_LEN).shuffle().seed(7)
    settings = run.describe(), store.vocab_size
    whole, killed = world.out / "training", world.out / "training-killed"
    for folder in (whole, killed):
        folder.mkdir()
    fatal = STEPS // 2 + 2
    for folder, last, code in (
        (whole, None, 0),
        (killed, fatal, -signal.SIGKILL),
        (killed, None, 0),
    ):
        child = multiprocessing.get_context("spawn").Process(
            target=train_until, args=(*settings, folder, last)
        )
        child.start()
        child.join()
        if child.exitcode != code:
            raise DemoFailed(f"a training process ended with {child.exitcode}, expected {code}")
    losses, again = curve(whole), curve(killed)
    for name, found in (("in one piece", losses), (f"killed in step {fatal}, resumed", again)):
        say(f"{name:<26}  {bars(found)}  {found[0]:.3f} → {found[-1]:.3f}")
    prove("the two loss curves are equal to the last bit", losses == again)
    explain(
        f"Checkpoints every {SAVE_EVERY} steps hold model, optimizer and the state of the data "
        "loader: one integer and a fingerprint."
    )
    return world


def train_until(description: dict[str, Any], vocab: int, folder: Path, fatal: int | None) -> None:
    """A training process: resumes from its folder, and is killed in step `fatal`."""
    import torch

    from tokenloom.integrations.torch import dataloader

    torch.set_num_threads(1)
    torch.manual_seed(0)
    embed, mix = torch.nn.Embedding(vocab, 32), torch.nn.GRU(32, 32, batch_first=True)
    head = torch.nn.Linear(32, vocab)
    model = torch.nn.ModuleList([embed, mix, head])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = dataloader(tl.from_config(description), BATCH_SIZE, contract="plain")
    done, checkpoint = 0, folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["data"])
        done = saved["step"]
    for step, batch in enumerate(loader, done):
        if step == STEPS:
            break
        logits = head(mix(embed(batch["inputs"]))[0])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with (folder / "losses.jsonl").open("a") as log:
            print(json.dumps({"step": step, "loss": loss.item()}), file=log)
        if (step + 1) % SAVE_EVERY == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"data": loader.state_dict(), "step": step + 1}
            torch.save(state, folder / "new.pt")
            os.replace(folder / "new.pt", checkpoint)
        if step == fatal:
            os.kill(os.getpid(), signal.SIGKILL)


def curve(folder: Path) -> list[float]:
    """The loss of each step; a step that was trained again counts as it was the last time."""
    told = [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]
    found = {one["step"]: one["loss"] for one in told}
    return [found[step] for step in sorted(found)]


def bars(values: Sequence[float], columns: int = 24) -> str:
    """Numbers as a line of bars.

    >>> bars([3.0, 2.0, 1.0], columns=3)
    '█▅▁'
    """
    some = [values[k * len(values) // columns] for k in range(columns)]
    low, high = min(some), max(some)
    scale = (len(BARS) - 1) / ((high - low) or 1)
    return "".join(BARS[round((one - low) * scale)] for one in some)
