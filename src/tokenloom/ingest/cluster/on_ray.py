"""Stretches on Ray: each is a task, and the driver hears counts.

The plan is sent once, as the JSON and the tokenizer that a worker process of a local build gets
(`tokenloom.ingest.crew.wire`); a task names a stretch; its result is how many shards, documents and
tokens it made, about 100 bytes. Tokens go from the task into the store, and the record of the
stretch is there too.

A task that is lost with its worker or its node is run again by Ray, and continues after the last
finished shard. Only a few tasks are submitted at a time, twice as many as the cluster has CPUs at
that moment, so nodes may come and go. Credentials are never sent: a task finds its own in the
environment of its node.

===================  ==============================================================================
``"local"``          this process
``"ray"``            Ray as it is set up: a running `ray.init`, the cluster of ``RAY_ADDRESS``, or
                     else a cluster on this machine for this call, without a dashboard
``"ray:ADDRESS"``    the cluster there: ``ray:10.0.0.5:6379``, ``ray:auto``, ``ray:local``
===================  ==============================================================================

An address is for this call alone: it is in no plan, setting, fingerprint or store.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import socket
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

from tokenloom.arguments import integer, one_of, place
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

RETRIES = 16  # how often Ray runs a task again whose worker or node was lost

AHEAD = 2  # tasks submitted for each CPU of the cluster

PATIENCE = 1.0  # seconds until the size of the cluster is looked at again

KNOCKING = 20.0  # seconds to wait for a cluster to answer

SHUT_DOWN = "Call ray.shutdown() first. "

_ADDRESS = re.compile(r"[^\s/@]+:[0-9]{1,5}")

# what of the options a stretch needs; the rest is decided and in the setup
_PLAIN = ("on_error", "chunk_tokens", "shard_tokens", "block_bytes", "inner", "stretches")


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


def run_tasks(
    plan: BuildPlan, tasks: Sequence[Task], *, executor: str, workers: int | None, bar: Progress
) -> None:
    """Run stretches on Ray.

    Args:
        plan: over files that every node sees.
        tasks: what is to be done.
        executor: "ray", or with an address, see above.
        workers: how many at once, at most; None for what the cluster has room for.
        bar: moves with every stretch that is done.

    Raises:
        WorkerError: a task was lost again and again.
    """
    header, payload = _pack_plan(plan)
    message = json.dumps(header).encode(), [bytes(one) for one in payload]
    left, under_way, done = deque(tasks), list[Any](), Counter[str]()
    with _with_ray(executor, workers) as ray:
        shared = ray.put(message)
        remote = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(_stretch)
        try:
            while left or under_way:
                most = workers or AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
                while left and len(under_way) < most:
                    under_way.append(remote.remote(shared, _task_numbers(left.popleft())))
                ready, under_way = ray.wait(under_way, timeout=PATIENCE)
                for one in ready:
                    done.update(_result(ray, one))
                    bar.reach(done["bytes"])
                    bar.count(done["documents"], done["tokens"])
        finally:
            if ray.is_initialized():  # else Ray would start again, to cancel what is long gone
                for one in under_way:
                    ray.cancel(one, force=True)


def _result(ray: Any, reference: Any) -> dict[str, int]:
    try:
        answer: dict[str, int] = ray.get(reference)
    except ray.exceptions.RayError as error:
        raise WorkerError(
            f"ray: a task was lost {RETRIES} times or could not run "
            f"({str(error).strip().splitlines()[0]:.300}). Nothing was published; run the same "
            "build again to continue after its finished shards."
        ) from error
    raise_told(answer)
    return answer


# -- what is sent --------------------------------------------------------------------------
def _pack_plan(plan: BuildPlan) -> Message:
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


def _unpack_plan(header: dict[str, Any], payload: list[Any]) -> BuildPlan:
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


def _task_numbers(task: Task) -> dict[str, Any]:
    """A task as it is sent."""
    return {**{f.name: getattr(task, f.name) for f in fields(task)}, "root": str(task.root)}


def _stretch(
    message: tuple[bytes, list[bytes]], task: dict[str, Any]
) -> dict[str, int] | dict[str, str]:
    """What Ray runs: a stretch; gives its counts, or what went wrong."""
    try:
        plan = _opened(*message)
        own = Task(**{**task, "root": place("root", task["root"])})
        bar = Progress("", total=None, show=False)
        return run_stretch(plan, files_of(own.root), own, workers=1, bar=bar).counts()
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
        known = _plans[name.hexdigest()] = _unpack_plan(json.loads(plain), payload)
    return known


# -- where it is ---------------------------------------------------------------------------
@contextlib.contextmanager
def _with_ray(executor: str, workers: int | None) -> Iterator[Any]:
    """Ray, connected; what this call connected or started ends with it.

    Raises:
        ConfigError: this process is connected to another cluster, or by Ray Client.
        WorkerError: there is no cluster at the address.
    """
    address = _address_of(executor)
    try:
        import ray
    except ImportError as error:
        raise MissingExtra(f"executor={executor!r}", "ray", "ray") from error
    if ray.util.client.ray.is_connected():  # then all of `ray` is the client's
        raise _client_refused("this process is connected by ray.init('ray://…')", SHUT_DOWN)
    if ray.is_initialized():
        _check_same(executor, address, str(ray.get_runtime_context().gcs_address))
        yield ray
        return
    if address == "local" or (address is None and not os.environ.get("RAY_ADDRESS")):
        ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    else:
        _connect(ray, address)
    try:
        yield ray
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    where = address or os.environ["RAY_ADDRESS"]
    usual = os.environ.get("RAY_ADDRESS", "")
    if address in (None, "auto") and "://" in usual:  # it stands for both, and is a client's
        raise _client_refused(f"RAY_ADDRESS is {usual!r}", "Unset it. ")
    try:
        _knock(where)
        ray.init(address, log_to_driver=False)
    except (OSError, RuntimeError, ValueError) as error:
        told = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise WorkerError(
            f"ray: no cluster answers at {where} ({told:.200}). Start one with `ray start --head`, "
            "or leave the address out for a cluster on this machine."
        ) from error


def _knock(address: str) -> None:
    """Whether anybody is there; Ray itself would try for minutes.

    Raises:
        OSError: nobody is.
    """
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), KNOCKING).close()


def _check_same(executor: str, address: str | None, connected: str) -> None:
    """Refuse an address that is not the one this process is connected to."""
    if address in (None, "auto") or (address and _resolved(address) == _resolved(connected)):
        return
    raise ConfigError(
        f"executor: found {executor!r}, but this process is connected to the cluster at "
        f"{connected} (ray.init). Pass executor='ray' to use that one, or call ray.shutdown() "
        "first."
    )


def _resolved(address: str) -> tuple[str, str]:
    """Host and port of an address; names and numbers of one machine are the same.

    >>> _resolved("localhost:6379") == _resolved("127.0.0.1:6379")
    True
    """
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, UnicodeError):
        host = socket.gethostbyname(host)
    return host, port


# -- the name of an executor ---------------------------------------------------------------
def check_executor(executor: str, workers: int | None) -> tuple[bool, int | None]:
    """Whether work goes to Ray, and how many tasks run at once, at most; refuses other words.

    >>> check_executor("ray:10.0.0.5:6379", 4), check_executor("local", None)
    ((True, 4), (False, None))
    """
    most = None if workers is None else integer("workers", workers, 1)
    if executor == "local":
        return False, most
    _address_of(executor)
    return True, most


def _address_of(executor: str) -> str | None:
    """The address in the name of an executor, as `ray.init` takes it; None for the usual one.

    >>> _address_of("ray"), _address_of("ray:auto"), _address_of("ray:10.0.0.5:6379")
    (None, 'auto', '10.0.0.5:6379')
    """
    word, _, address = executor.partition(":") if isinstance(executor, str) else (executor, "", "")
    if word != "ray" or not address:
        one_of("executor", executor, ("local", "ray"))
        return None
    if address.startswith("//"):
        raise _client_refused(f"found {executor!r}")
    if address not in ("auto", "local") and not _ADDRESS.fullmatch(address):
        raise ConfigError(
            f"executor: found {executor!r}, allowed after 'ray:': HOST:PORT of the cluster, 'auto' "
            "or 'local'."
        )
    return address


def _client_refused(found: str, remedy: str = "") -> ConfigError:
    return ConfigError(
        f"executor: {found}, but Ray Client is not used, whose driver is no member of the cluster. "
        f"{remedy}Run this on a node of it, with 'ray:HOST:PORT' or 'ray:auto'."
    )
