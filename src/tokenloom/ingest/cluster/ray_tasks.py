"""Independent tasks on Ray: where the cluster is, and how tasks get there and back.

One idea: a task is a few numbers. What all tasks share goes into Ray's object store once, as plain
data; a task names a stretch, some shards, groups or rows; its result is small and plain. Tokens go
from a task into a store or nowhere, so nothing large passes through the driver or Ray's memory.

A task that is lost with its worker or its node is run again by Ray. Only a few tasks are submitted
at a time, twice as many as the cluster has CPUs at that moment, so nodes may come and go; results
that wait for their turn count as submitted. Credentials are never sent: a task finds its own in the
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
import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

from tokenloom.arguments import integer, one_of
from tokenloom.errors import ConfigError, MissingExtra, WorkerError
from tokenloom.ingest.crew.wire import raise_told

__all__ = ["Function", "address_of", "check_executor", "fetched", "on_ray", "with_ray"]

Function = Callable[[Any, dict[str, Any]], dict[str, Any]]

"""Message and task → plain data, or an error as `pack_error` packs it. Importable on every node."""

RETRIES = 16  # how often Ray runs a task again whose worker or node was lost

AHEAD = 2  # tasks submitted for each CPU of the cluster

PATIENCE = 1.0  # seconds between two looks at what is under way

KNOCKING = 20.0  # seconds to wait for a cluster to answer

SHUT_DOWN = "Call ray.shutdown() first. "

_ADDRESS = re.compile(r"[^\s/@]+:[0-9]{1,5}")


def check_executor(executor: str, workers: int | None) -> tuple[bool, int | None]:
    """Whether work goes to Ray, and how many tasks run at once, at most; refuses other words.

    >>> check_executor("ray:10.0.0.5:6379", 4), check_executor("local", None)
    ((True, 4), (False, None))
    """
    most = None if workers is None else integer("workers", workers, 1)
    if executor == "local":
        return False, most
    address_of(executor)
    return True, most


def address_of(executor: str) -> str | None:
    """The address in the name of an executor, as `ray.init` takes it; None for the usual one.

    >>> address_of("ray"), address_of("ray:auto"), address_of("ray:10.0.0.5:6379")
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


def on_ray(
    function: Function,
    message: Any,
    tasks: Sequence[dict[str, Any]],
    *,
    executor: str,
    workers: int | None,
    in_order: bool = False,
    files: Mapping[str, bytes] | None = None,
    waiting: Callable[[Any], None] | None = None,
) -> Generator[dict[str, Any]]:
    """The result of every task, as they end, or in the order of the tasks.

    Args:
        function: what is called for each task, on some node.
        message: what all tasks share; it is sent once.
        tasks: a few numbers each.
        executor: where, see above.
        workers: how many at once, at most; None for what the cluster has room for.
        in_order: results come in the order of the tasks.
        files: what a task may need, by name; `message` then has references to them under "files",
            and `fetched` gets one.
        waiting: called with `ray` every second or so.

    Raises:
        WorkerError: a task was lost again and again.
    """
    with with_ray(executor, workers) as ray:
        if files:
            message = {**message, "files": {name: ray.put(raw) for name, raw in files.items()}}
        shared = ray.put(message)
        remote = ray.remote(num_cpus=1, max_retries=RETRIES, retry_exceptions=False)(function)
        left, under_way, looked = deque(tasks), list[Any](), time.monotonic()
        try:
            while left or under_way:
                most = workers or AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
                while left and len(under_way) < most:
                    under_way.append(remote.remote(shared, left.popleft()))
                ready, _ = ray.wait(under_way[:1] if in_order else under_way, timeout=PATIENCE)
                under_way = [one for one in under_way if one not in ready]
                if waiting is not None and time.monotonic() - looked >= PATIENCE:
                    waiting(ray)
                    looked = time.monotonic()
                yield from (_result(ray, one) for one in ready)
        finally:
            if ray.is_initialized():  # else Ray would start again, to cancel what is long gone
                for one in under_way:
                    ray.cancel(one, force=True)


def fetched(reference: Any) -> bytes:
    """One of the files that came with a message; called by tasks."""
    import ray

    raw: bytes = ray.get(reference)
    return raw


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


# -- where it is ---------------------------------------------------------------------------
@contextlib.contextmanager
def with_ray(executor: str, workers: int | None) -> Iterator[Any]:
    """Ray, connected; what this call connected or started ends with it.

    Raises:
        ConfigError: this process is connected to another cluster, or by Ray Client.
        WorkerError: there is no cluster at the address.
    """
    address = address_of(executor)
    try:
        import ray
    except ImportError as error:
        raise MissingExtra(f"executor={executor!r}", "ray", "ray") from error
    if ray.util.client.ray.is_connected():  # then all of `ray` is the client's
        raise _client_refused("this process is connected by ray.init('ray://…')", SHUT_DOWN)
    if ray.is_initialized():
        _check_same(executor, address, _connected_to(ray))
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


def _connected_to(ray: Any) -> str:
    """The address of the cluster that this process is connected to."""
    return str(ray.get_runtime_context().gcs_address)


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
