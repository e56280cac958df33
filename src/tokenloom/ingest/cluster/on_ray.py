"""Stretches on Ray: each is a task, and the driver hears counts.

One idea: the plan is sent once, as the JSON and the tokenizer that a worker process of a local
build gets (`tokenloom.ingest.crew.wire`); a task names a stretch; its result is how many shards,
documents and tokens it made, about 100 bytes. Tokens go from the task into the store, and the
record of the stretch is there too. A task that was lost and is run again goes on after the last
shard that was finished (`tokenloom.ingest.cluster.ray_tasks`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from tokenloom.arguments import place
from tokenloom.errors import ConfigError
from tokenloom.ingest.cluster.ray_tasks import on_ray, with_ray
from tokenloom.ingest.cluster.stretch_work import Task, run_stretch
from tokenloom.ingest.cluster.under_way import Reporting, Watch
from tokenloom.ingest.crew.wire import (
    Message,
    Setup,
    open_kitchen,
    pack_error,
    pack_setup,
    unpack_setup,
)
from tokenloom.ingest.plan import BuildOptions, BuildPlan
from tokenloom.progress import Progress
from tokenloom.remote.uploads import files_of

__all__ = ["pack_plan", "refuse_objects", "run_tasks", "task_numbers", "unpack_plan"]

# what of the options a stretch needs; the rest is decided and in the setup
_PLAIN = ("on_error", "chunk_tokens", "shard_tokens", "block_bytes", "inner", "stretches")


def pack_plan(plan: BuildPlan) -> Message:
    """A plan as JSON and the bytes of its tokenizer."""
    header, payload = pack_setup(plan.setup)
    header |= {
        "options": {name: getattr(plan.options, name) for name in _PLAIN},
        "settings": plan.settings,
        "fingerprint": plan.fingerprint,
        "label": plan.engine,
        "opened": plan.opened,
    }
    return header, payload


def unpack_plan(header: dict[str, Any], payload: list[Any]) -> BuildPlan:
    """The plan of a message, ready to use in this process."""
    setup = unpack_setup(header, payload)
    return BuildPlan(
        setup=setup,
        kitchen=open_kitchen(setup),
        options=BuildOptions(tokenizer=None, **header["options"]),
        settings=header["settings"],
        fingerprint=header["fingerprint"],
        engine=header["label"],
        opened=header["opened"],
    )


def run_tasks(
    plan: BuildPlan, tasks: Sequence[Task], *, executor: str, workers: int | None, bar: Progress
) -> None:
    """Run stretches on Ray.

    Args:
        plan: over files that every node sees.
        tasks: what is to be done.
        executor: "ray", or with an address; see `tokenloom.ingest.cluster.ray_tasks`.
        workers: how many at once, at most; None for what the cluster has room for.
        bar: shows what is done and what is under way.

    Raises:
        ConfigError: the work cannot be sent to other processes.
        WorkerError: a task was lost again and again.
    """
    refuse_objects(plan.setup, executor)
    header, payload = pack_plan(plan)
    plain = json.dumps(header).encode(), [bytes(one) for one in payload]
    watch, numbers = Watch(bar), [task_numbers(task) for task in tasks]
    with with_ray(executor, workers) as ray:
        message = (*plain, watch.start(ray))
        results = on_ray(
            _stretch, message, numbers, executor="ray", workers=workers, waiting=watch.look
        )
        with contextlib.closing(results):
            for counts in results:
                watch.done(counts)


def task_numbers(task: Task) -> dict[str, Any]:
    """A task as it is sent."""
    return {**{f.name: getattr(task, f.name) for f in fields(task)}, "root": str(task.root)}


def _stretch(message: tuple[bytes, list[bytes], Any], task: dict[str, Any]) -> dict[str, Any]:
    """What Ray runs: a stretch; gives its counts, or what went wrong."""
    try:
        plan = _opened(message[0], message[1])
        own = Task(**{**task, "root": place("root", task["root"])})
        bar = Reporting(message[2], own.stretch)
        record = run_stretch(plan, files_of(own.root), own, workers=1, bar=bar)
        bar.end()
        return {"stretch": record.stretch, **record.counts()}
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return pack_error(error)


_plans: dict[str, BuildPlan] = {}  # of this process: a tokenizer is opened once, not per stretch


def _opened(plain: bytes, payload: list[bytes]) -> BuildPlan:
    """The plan of a message; the same message again is the same plan.

    The fingerprint of a plan would not do as its name: inputs of two folders that have the same
    names and sizes share it.
    """
    name = hashlib.sha256(plain)
    for one in payload:
        name.update(one)
    known = _plans.get(name.hexdigest())
    if known is None:
        _plans.clear()
        known = _plans[name.hexdigest()] = unpack_plan(json.loads(plain), payload)
    return known


def refuse_objects(setup: Setup, executor: str) -> None:
    """Raises if other machines cannot do this work."""
    reason = setup.stays_here()
    objects = [one.name for one in setup.inputs if one.path is None or one.kind == "hf"]
    if reason is None and objects:
        reason = f"the input {objects[0]} is an object of this process"
    if reason is not None:
        raise ConfigError(
            f"executor: found {executor!r}, but {reason}. Write records to files, name functions "
            "as module:function, or use executor='local'."
        )
