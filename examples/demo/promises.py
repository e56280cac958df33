"""The promises of a store, tested: same bytes whoever builds, whatever dies; damage is found."""

from __future__ import annotations

import hashlib
import itertools
import logging
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenloom as tl
from examples.demo.printing import DemoFailed, explain, prove, say
from examples.demo.world import World

__all__ = ["build_and_die", "keep_promises"]


def keep_promises(world: World) -> World:
    """The step: everything is tried on `code`, which is unchanged afterwards."""
    say("`code` is built three more times, killed once and damaged once; this takes a while")
    scratch = world.out / "scratch"
    rebuild_with_other_workers(world, scratch)
    kill_and_run_again(world, scratch)
    shutil.rmtree(scratch)
    flip_one_byte(world)
    return world


def rebuild_with_other_workers(world: World, scratch: Path) -> None:
    """The number of processes must not change a byte."""
    wanted = fingerprints(world.stores["code"].path)
    same = True
    for workers in (1, 2):
        out = scratch / f"workers-{workers}"
        tl.build(world.inputs["code"], out, workers=workers, **world.build_options)
        same = same and fingerprints(out) == wanted
    prove("rebuilt with 1 and 2 workers: same bytes", same)
    explain(f"All {len(wanted)} files are equal, not only the digest.")


def kill_and_run_again(world: World, scratch: Path) -> None:
    """A build that dies at the worst moment leaves nothing that could be mistaken for a store."""
    out = scratch / "killed"
    shards = len({path.parent for path in world.stores["code"].path.glob("*/shard.json")})
    fatal = (shards + 1) // 2
    arguments = (world.inputs["code"], out, fatal, world.build_options)
    child = multiprocessing.get_context("spawn").Process(target=build_and_die, args=arguments)
    child.start()
    child.join()
    if child.exitcode != -signal.SIGKILL:
        raise DemoFailed(f"the build to be killed ended by itself, with {child.exitcode}")
    try:
        tl.open(out)
    except tl.StoreNotFound as error:
        refusal = str(error)
    else:
        raise DemoFailed(f"a promise is broken: {out} was opened before its build had finished")
    with logged() as lines:
        tl.build(world.inputs["code"], out, **world.build_options)
    same = fingerprints(out) == fingerprints(world.stores["code"].path)
    prove("killed in the middle (SIGKILL), run again: same bytes", same)
    explain(f"Killed while publishing shard {fatal} of {shards}. Opening it then fails with:")
    explain(refusal)
    if lines:
        explain(f"The second run logged: {'; '.join(lines)}")


def build_and_die(inputs: Path, out: Path, fatal: int, options: dict[str, Any]) -> None:
    """The child process: build, and be killed while shard number `fatal` is being published."""
    shards, rename = itertools.count(1), os.rename

    def mortal(source: Path, target: Path) -> None:
        """Give a shard its name, or die with no chance to clean up."""
        if Path(target).name.startswith("shard-") and next(shards) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        rename(source, target)

    os.rename = mortal
    tl.build(inputs, out, **options)


def flip_one_byte(world: World) -> None:
    """Damage is found when it is read, before a wrong token is returned."""
    root = world.stores["code"].path
    payload = root / "shard-00000" / "input_ids" / "c" / "0"
    whole = payload.read_bytes()
    place = len(whole) // 4
    payload.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    try:
        store = tl.open(root, cache_bytes=0)
        report = store.check()
        refused = refuses(store)
    finally:
        payload.write_bytes(whole)
    prove(f"flipped one byte, number {place:,} of shard 0: verify says no", not report.ok)
    for problem in report.problems:
        explain(problem)
    prove("asked for those tokens meanwhile: StoreCorrupt, never a wrong token", refused)
    prove("restored: verify says all is well", tl.open(root).check().ok)


def refuses(store: tl.Store) -> bool:
    """Whether reading all tokens fails."""
    try:
        store.tokens(0, store.num_tokens)
    except tl.StoreCorrupt:
        return True
    return False


def fingerprints(root: Path) -> dict[str, str]:
    """The sha256 of every file of a store, except the lock file."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@contextmanager
def logged() -> Iterator[list[str]]:
    """The messages that tokenloom logs inside the block."""
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
