"""A store is verified by many machines: shards are independent of each other.

One idea: a report is a sum. A task reads some shards, again from the first byte to the last, and
answers with what is wrong with them; this process looks at what concerns the store as a whole: its
history, its sidecars and its digest, which is made of stored hashes.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenloom.api.store import Store, open_store
from tokenloom.bind import bind, unbind
from tokenloom.cluster.sending import absolute
from tokenloom.errors import ConfigError, StoreCorrupt
from tokenloom.foreign.foreign_reader import ForeignReader
from tokenloom.ingest.cluster.ray_tasks import check_executor, on_ray
from tokenloom.ingest.crew.wire import pack_error
from tokenloom.progress import Progress
from tokenloom.store.verify import VerifyReport

__all__ = ["check_store", "refuse_foreign", "verify_store"]

SHARDS = 4  # of one task


def verify_store(
    path: str | Path,
    *,
    executor: str = "ray",
    workers: int | None = None,
    progress: bool | None = None,
) -> VerifyReport:
    """Read every byte of a store again, on many machines, as `Store.verify` does on one.

    Args:
        path: the store; every node must see it.
        executor: "ray" (extra `ray`) or with an address, as in `tokenloom.build`, or "local".
        workers: how many tasks run at once, at most; default: what the cluster has room for.
        progress: show a progress bar; default: if standard error is a terminal.

    Raises:
        StoreCorrupt: naming every file and what is wrong with it.

    >>> import tempfile, tokenloom as tl
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = tl.build([{"text": "ab"}], folder.name + "/toy", tokenizer="bytes")
    >>> verify_store(store.path, executor="local").ok
    True
    >>> folder.cleanup()
    """
    report = check_store(path, executor=executor, workers=workers, progress=progress)
    if not report.ok:
        raise StoreCorrupt("\n".join(report.problems))
    return report


def check_store(
    path: str | Path,
    *,
    executor: str = "ray",
    workers: int | None = None,
    progress: bool | None = None,
) -> VerifyReport:
    """As `verify_store`, but problems are in the report instead of an exception.

    >>> import tempfile, tokenloom as tl
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = tl.build([{"text": "ab"}], folder.name + "/toy", tokenizer="bytes")
    >>> check_store(store.path, executor="local") == store.check()
    True
    >>> folder.cleanup()
    """
    remote, workers = check_executor(executor, workers)
    store = open_store(path)
    if not remote:
        return store.check(progress=progress)
    refuse_foreign(store, executor)
    shards = len(store.reader.manifest.shards)
    message = {"path": absolute(path), "snapshot": store.snapshot}
    tasks = [{"first": n, "last": min(n + SHARDS, shards)} for n in range(0, shards, SHARDS)]
    found: dict[int, VerifyReport] = {}
    total = sum(sum(shard.files.values()) for shard in store.reader.manifest.shards)
    with Progress("verify", total=total, show=progress) as bar:
        results = on_ray(_some_shards, message, tasks, executor=executor, workers=workers)
        with contextlib.closing(results):
            for answer in results:
                report = bind(VerifyReport, answer["report"])
                found[answer["first"]] = report
                bar.advance(report.bytes)
    reports = [found[first] for first in sorted(found)]
    return _sum(store.check(shards=range(0), progress=False), reports)


def refuse_foreign(store: Store, executor: str) -> None:
    """Raises for files of others: every node would read all of them, to know what they are."""
    if isinstance(store.reader, ForeignReader):
        raise ConfigError(
            f"executor: found {executor!r}, but {store.path} is a store of another project: to "
            "identify it, every node would read all of it, so one process verifies it. Use "
            "executor='local', or copy it into our format: tokenloom convert."
        )


def _some_shards(message: dict[str, Any], task: dict[str, int]) -> dict[str, Any]:
    """What Ray runs: the report on some shards, as plain data."""
    try:
        store = open_store(message["path"], snapshot=message["snapshot"])
        report = store.check(shards=range(task["first"], task["last"]), progress=False)
        return {"first": task["first"], "report": unbind(report)}
    except Exception as error:  # noqa: BLE001 - the driver raises it
        return pack_error(error)


def _sum(whole: VerifyReport, reports: list[VerifyReport]) -> VerifyReport:
    """One report over a store, from that on the whole and those on its shards."""
    counts = {
        name: sum(getattr(one, name) for one in [whole, *reports])
        for name in ("shards", "files", "bytes", "documents", "tokens")
    }
    problems = [line for one in [whole, *reports] for line in one.problems]
    return replace(whole, **counts, problems=tuple(dict.fromkeys(problems)))
