"""Stretches on Ray: each is a task, and the driver hears counts.

One idea: a task is a few numbers. The plan goes into Ray's object store once, as the JSON and the
tokenizer that a worker process of a local build gets (`tokenloom.ingest.crew.wire`); a task names a
stretch; its result is how many shards, documents and tokens it made, about 100 bytes. Tokens go
from the task into the store, and the record of the stretch is there too, so nothing passes through
the driver or Ray's memory.

A task that is lost with its worker or its node is run again by Ray, and goes on after the last
shard that was finished. Only a few tasks are submitted at a time, twice as many as the cluster has
CPUs at that moment, so nodes may come and go. Credentials are never sent: a task finds its own in
the environment of its node.

Ray is used as it is set up: a running `ray.init`, the cluster of ``RAY_ADDRESS``, or else a local
one for this call, without a dashboard.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from tokenloom.arguments import place
from tokenloom.errors import ConfigError, MissingExtra, WorkerError
from tokenloom.ingest.cluster.stretch_work import Task, run_stretch
from tokenloom.ingest.crew.wire import (
    Message,
    Setup,
    open_kitchen,
    pack_error,
    pack_setup,
    raise_told,
    unpack_setup,
)
from tokenloom.ingest.plan import BuildOptions, BuildPlan
from tokenloom.progress import Progress
from tokenloom.remote.uploads import files_of

__all__ = ["pack_plan", "refuse_objects", "run_on_ray", "run_tasks", "unpack_plan"]

RETRIES = 16  # how often Ray runs a task again whose worker or node was lost

AHEAD = 2  # tasks submitted for each CPU of the cluster

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
    plan: BuildPlan,
    tasks: Sequence[Task],
    *,
    workers: int | None,
    done: Callable[[dict[str, Any]], None],
) -> None:
    """Run stretches on Ray; `done` is called with the counts of each, as they end.

    Args:
        plan: over files that every node sees.
        tasks: what is to be done.
        workers: how many at once, at most; None for what the cluster has room for.
        done: told of each stretch.

    Raises:
        ConfigError: the work cannot be sent to other processes.
        WorkerError: a task was lost again and again.
    """
    refuse_objects(plan.setup)
    header, payload = pack_plan(plan)
    message = (json.dumps(header).encode(), [bytes(one) for one in payload])
    run_on_ray(_stretch, message, [task_numbers(task) for task in tasks], workers, done)


def run_on_ray(
    function: Callable[[Any, dict[str, Any]], dict[str, Any]],
    message: Any,
    tasks: Sequence[dict[str, Any]],
    workers: int | None,
    done: Callable[[dict[str, Any]], None],
) -> None:
    """Call an importable function for each task on Ray, a few at a time.

    Args:
        function: message and task → plain data, or an error as `pack_error` packs it.
        message: what all tasks share, as plain data; it is sent once.
        tasks: a few numbers each.
        workers: how many at once, at most; None for what the cluster has room for.
        done: told of each result, as they come.
    """
    with _ray(workers) as ray:
        shared = ray.put(message)
        remote = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(function)
        waiting, under_way = list(reversed(tasks)), list[Any]()
        try:
            while waiting or under_way:
                most = workers or AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
                while waiting and len(under_way) < most:
                    under_way.append(remote.remote(shared, waiting.pop()))
                ready, under_way = ray.wait(under_way, timeout=5)
                for one in ready:
                    done(_result(ray, one))
        finally:
            for one in under_way:
                ray.cancel(one, force=True)


def _result(ray: Any, reference: Any) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ray.get(reference)
    except ray.exceptions.RayError as error:
        raise WorkerError(
            f"ray: a task was lost {RETRIES} times or could not run "
            f"({str(error).strip().splitlines()[0]:.300}). Nothing was published; run the same "
            "again: a build goes on after its finished shards."
        ) from error
    raise_told(answer)
    return answer


def task_numbers(task: Task) -> dict[str, Any]:
    """A task as it is sent."""
    return {**{f.name: getattr(task, f.name) for f in fields(task)}, "root": str(task.root)}


def _stretch(message: tuple[bytes, list[bytes]], task: dict[str, Any]) -> dict[str, Any]:
    """What Ray runs: a stretch; gives its counts, or what went wrong."""
    try:
        plan = _opened(message)
        own = Task(**{**task, "root": place("root", task["root"])})
        with Progress("", total=None, show=False) as bar:
            record = run_stretch(plan, files_of(own.root), own, workers=1, bar=bar)
        return {"stretch": record.stretch, **record.counts()}
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return pack_error(error)


_plans: dict[str, BuildPlan] = {}  # of this process: a tokenizer is opened once, not per stretch


def _opened(message: tuple[bytes, list[bytes]]) -> BuildPlan:
    header = json.loads(message[0])
    known = _plans.get(header["fingerprint"])
    if known is None:
        _plans.clear()
        known = _plans[header["fingerprint"]] = unpack_plan(header, message[1])
    return known


def refuse_objects(setup: Setup) -> None:
    """Raises if other machines cannot do this work."""
    reason = setup.stays_here()
    objects = [one.name for one in setup.inputs if one.path is None or one.kind == "hf"]
    if reason is None and objects:
        reason = f"the input {objects[0]} is an object of this process"
    if reason is not None:
        raise ConfigError(
            f"executor: found 'ray', but {reason}. Write records to files, name functions as "
            "module:function, or use executor='local'."
        )


@contextmanager
def _ray(workers: int | None) -> Iterator[Any]:
    """Ray, connected; a local cluster of our own ends with the call."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("executor='ray'", "ray", "ray") from error
    if ray.is_initialized():
        yield ray
        return
    if os.environ.get("RAY_ADDRESS"):
        ray.init(log_to_driver=False)
    else:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
    try:
        yield ray
    finally:
        ray.shutdown()
