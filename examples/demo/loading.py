"""Shuffle, load, get killed halfway, and resume with another number of ranks: the same batches."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from examples.demo.printing import DemoFailed, explain, prove, say
from examples.demo.world import World
from tokenloom.loader import latest_state, write_state

__all__ = ["load_and_resume", "train_and_die"]

SEQ_LEN, BATCH_SIZE = 256, 60
FIELDS = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids")


def load_and_resume(world: World) -> World:
    """The step: one run three ways, and every way gives the same batches."""
    run = world.stores["code"].windows(SEQ_LEN).block_shuffle(lanes=8).epochs(2).seed(7)
    for line in repr(run).splitlines():
        say(line)
    whole = [digest for _, digest in steps_of(run, world_size=1)]
    say(f"1 rank, never interrupted: {len(whole)} steps of {BATCH_SIZE} x {SEQ_LEN} tokens")
    folder = world.out / "run"
    folder.mkdir()
    fatal = len(whole) // 2
    arguments = (run.describe(), folder, fatal)
    child = multiprocessing.get_context("spawn").Process(target=train_and_die, args=arguments)
    child.start()
    child.join()
    if child.exitcode != -signal.SIGKILL:
        raise DemoFailed(f"the run to be killed ended by itself, with {child.exitcode}")
    state = latest_state(folder)
    if state is None:
        raise DemoFailed("the run that was killed left no state")
    seen = (folder / "log").read_text().split()[: state["step"]]
    rest = [digest for _, digest in steps_of(run, world_size=3, state=state)]
    say(f"2 ranks, killed (SIGKILL) in step {fatal}; its state is {state['examples']:,} examples")
    say(f"3 ranks from there on: {len(rest)} more steps")
    say(f"   uninterrupted    {together(whole)}")
    say(f"   2 + 3 ranks      {together(seen + rest)}")
    prove("killed and resumed on another number of ranks: the same batches", seen + rest == whole)
    explain("The digests cover tokens, labels, masks, segments and positions of every step.")
    try:
        tl.Loader(run.seed(8), BATCH_SIZE).load_state_dict(state)
    except tl.StateError as error:
        say("the same state for another seed is refused:")
        explain(str(error).splitlines()[1])
    else:
        raise DemoFailed("a promise is broken: another run accepted the state")
    return world


def steps_of(
    run: tl.Dataset, world_size: int, state: Mapping[str, Any] | None = None
) -> Iterator[tuple[list[tl.Loader], str]]:
    """(the loaders, digest of the global batch) after every step."""
    ranks = [
        tl.Loader(run, BATCH_SIZE, rank, world_size, fields=FIELDS) for rank in range(world_size)
    ]
    for loader in ranks if state is not None else ():
        loader.load_state_dict(state)
    for batches in zip(*ranks, strict=True):
        digest = hashlib.sha256()
        for name in FIELDS:
            digest.update(np.concatenate([getattr(batch, name) for batch in batches]).tobytes())
        yield ranks, digest.hexdigest()[:16]
    for loader in ranks:
        loader.close()


def train_and_die(description: dict[str, Any], folder: Path, fatal: int) -> None:
    """The child process: two ranks train, save their state every few steps, and are killed."""
    run = tl.from_config(description)
    with (folder / "log").open("w") as log:
        for step, (ranks, digest) in enumerate(steps_of(run, world_size=2), 1):
            print(digest, file=log, flush=True)
            if step % 5 == 0:
                write_state(ranks[0].state_dict(), folder)
            if step == fatal:
                os.kill(os.getpid(), signal.SIGKILL)


def together(digests: list[str]) -> str:
    """One digest of many."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:32]
