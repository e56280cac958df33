"""What a store promises, tried out: same bytes whoever builds, whatever dies; damage is found."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenloom as tl
from examples.demo.printing import DemoFailed, prove, say
from examples.demo.world import World
from tokenloom.store.files import LocalFiles

__all__ = ["build_and_die", "keep_promises"]


def keep_promises(world: World) -> World:
    """The step: everything is tried on `code`, and afterwards all is as it was."""
    scratch = world.out / "scratch"
    rebuild_with_other_workers(world, scratch)
    kill_and_run_again(world, scratch)
    shutil.rmtree(scratch)
    flip_one_byte(world)
    return world


def rebuild_with_other_workers(world: World, scratch: Path) -> None:
    """The number of processes must not change a byte."""
    wanted = fingerprints(world.stores["code"].path)
    same, seconds = True, []
    for workers in (1, 2):
        out = scratch / f"workers-{workers}"
        began = time.perf_counter()
        tl.build(world.inputs["code"], out, workers=workers, **world.build_options)
        seconds.append(f"{time.perf_counter() - began:.1f} s")
        same = same and fingerprints(out) == wanted
    prove(f"rebuilt with 1 and 2 workers ({', '.join(seconds)}): same bytes", same)
    say(f"  {len(wanted)} files, of which the manifest names every other by its hash")


def kill_and_run_again(world: World, scratch: Path) -> None:
    """A build that dies at the worst moment leaves nothing that could be mistaken for a store."""
    out = scratch / "killed"
    arguments = (world.inputs["code"], out, world.build_options)
    child = multiprocessing.get_context("spawn").Process(target=build_and_die, args=arguments)
    child.start()
    child.join()
    if child.exitcode != -signal.SIGKILL:
        raise DemoFailed(f"the child ended with {child.exitcode}, not by SIGKILL")
    try:
        tl.open(out)
    except tl.StoreNotFound as error:
        refusal = str(error)
    else:
        raise DemoFailed("a half-built store was opened")
    with logged() as lines:
        tl.build(world.inputs["code"], out, **world.build_options)
    same = fingerprints(out) == fingerprints(world.stores["code"].path)
    prove("killed in the middle (SIGKILL), run again: same bytes", same)
    say(f"  opened after the kill: {refusal}")
    for line in lines:
        say(f"  run again: {line}")


def build_and_die(inputs: Path, out: Path, options: dict[str, Any]) -> None:
    """What the child does: build, and be killed while the second shard is published."""
    tl.build(inputs, out, progress=False, files=DiesAtSecondShard(), **options)


class DiesAtSecondShard(LocalFiles):
    """Writes files, until the second shard is about to get its name."""

    def __init__(self) -> None:
        self.renamed = 0

    def rename_new(self, source: Path, target: Path) -> bool:
        """Publish a shard, or die with no chance to clean up."""
        self.renamed += 1
        if self.renamed == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().rename_new(source, target)


def flip_one_byte(world: World) -> None:
    """Damage is found by whoever reads it, before a wrong token is handed out."""
    root = world.stores["code"].path
    payload = root / "shard-00000" / "input_ids" / "c" / "0"
    whole = payload.read_bytes()
    place = len(whole) // 2
    payload.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    try:
        store = tl.open(root, cache_bytes=0)
        report = store.check()
        try:
            store.tokens(0, store.num_tokens)
        except tl.StoreCorrupt as error:
            refusal = str(error)
        else:
            raise DemoFailed("damaged tokens were handed out")
    finally:
        payload.write_bytes(whole)
    prove(f"flipped byte {place:,} of {payload}: verify says", not report.ok)
    for problem in report.problems:
        say(f"  {problem}")
    say(f"  reading it says: {refusal}")
    prove("restored: verify says all is well", tl.open(root).check().ok)


def fingerprints(root: Path) -> dict[str, str]:
    """The sha256 of every file of a store; the lock file is no part of it."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@contextmanager
def logged() -> Iterator[list[str]]:
    """What tokenloom logs meanwhile."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("tokenloom")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
