"""A run on its way to other machines: its description, with paths that any of them can open.

One idea: what is sent is what a person could have written. A run travels as the JSON of
`Dataset.describe()`, its stores as absolute paths or URLs; whoever gets it opens the stores again,
with the credentials of its own environment, and compares their digests. Plans that this process
keeps (`tokenloom.store.plan_cache`) go along if they are small enough, so that no node makes them
again; they are checked there like every file of the plan cache.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.describe import copied
from tokenloom.api.rebuild import rebuild
from tokenloom.arguments import Url, expanded, place
from tokenloom.errors import ConfigError
from tokenloom.ingest.cluster.ray_tasks import Function, fetched, on_ray, with_ray
from tokenloom.progress import Progress
from tokenloom.remote.source import RemoteSource
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.plan_cache import keep_file, kept_file
from tokenloom.store.reader import Reader

__all__ = [
    "OnRay",
    "absolute",
    "absolute_paths",
    "described_run",
    "sent_run",
]

SENT_BYTES = 256 << 20  # of one kept plan; a node works larger ones out, or has them


def described_run(run: Dataset, executor: str) -> dict[str, Any]:
    """The description of a run, as other machines can open it.

    Raises:
        ConfigError: a store of it is an object of this process.
    """
    readers = {name: source.reader for name, source in run.sources.items()}
    for name, reader in [*readers.items(), *((key[1], r) for key, r in run._appended.items())]:
        _refuse_object(name, reader, executor)
    return absolute_paths(run.describe())


def _refuse_object(name: str, reader: Reader, executor: str) -> None:
    known = isinstance(reader.source, (LocalSource, RemoteSource)) or type(reader) is not Reader
    here = place("store", reader.root)
    if not known or (isinstance(here, Url) and here.scheme == "memory"):
        raise ConfigError(
            f"executor: found {executor!r}, but the store of source {name} ({reader.path}) is an "
            "object of this process. Write it to files or to a bucket, or use executor='local'."
        )


def absolute_paths(description: Mapping[str, Any]) -> dict[str, Any]:
    """A description whose paths do not depend on where it is read.

    >>> absolute_paths({"store": {"path": "s3://bucket/wiki"}})["store"]["path"]
    's3://bucket/wiki'
    """
    plain: dict[str, Any] = copied(dict(description))
    mix = plain.get("mix", plain)
    stores = [one.get("store") for one in plain.get("sources", [plain]) if isinstance(one, dict)]
    stores += [one for edit in mix.get("edits", ()) for one in edit.get("append", {}).values()]
    for store in stores:
        if isinstance(store, dict) and isinstance(store.get("path"), str):
            store["path"] = absolute(store["path"])
    return plain


def absolute(path: Any) -> str:
    """A path that does not depend on the working directory, or a URL as it is."""
    where = place("store", expanded("store", str(path)))
    return str(where) if isinstance(where, Url) else os.path.abspath(where)


class OnRay(contextlib.ExitStack):
    """Pieces of work on Ray, which is connected when the first is sent; use as a context manager.

    Args:
        executor: "ray", or with an address.
        workers: how many tasks at once, at most.
        progress: show a bar; default: if standard error is a terminal.
    """

    def __init__(self, executor: str, workers: int | None, progress: bool | None) -> None:
        super().__init__()
        self._executor, self._workers, self._progress = executor, workers, progress
        self._connected = False

    def share(
        self,
        function: Function,
        message: Mapping[str, Any],
        files: Sequence[str],
        title: str | None = None,
    ) -> Callable[[Sequence[dict[str, int]]], Iterator[dict[str, Any]]]:
        """Has pieces done on Ray; their results come in order.

        Args:
            function: what does a piece: message and numbers → plain data.
            message: what all pieces share.
            files: names of kept plans that they need.
            title: of the bar; None for no bar.
        """

        def run(pieces: Sequence[dict[str, int]]) -> Iterator[dict[str, Any]]:
            if not self._connected:
                self.enter_context(with_ray(self._executor, self._workers))
                self._connected = True
            known = {name: kept_file(name, SENT_BYTES) for name in files}
            results = on_ray(
                function,
                message,
                pieces,
                executor="ray",
                workers=self._workers,
                in_order=True,
                files={name: raw for name, raw in known.items() if raw is not None},
            )
            self.enter_context(contextlib.closing(results))  # whatever becomes of who takes them
            show = False if title is None else self._progress
            bar = Progress(title or "", total=len(pieces), unit=" pieces", show=show)
            with bar:
                for one in results:
                    bar.advance(1)
                    yield one

        return run


_runs: dict[str, Dataset] = {}  # of this process: a run is opened once, not per piece


def sent_run(message: Mapping[str, Any]) -> Dataset:
    """The run of a message, opened in this process."""
    for name, reference in message.get("files", {}).items():
        keep_file(name, functools.partial(fetched, reference))
    text = json.dumps(message["run"], sort_keys=True)
    if text not in _runs:
        _runs.clear()
        _runs[text] = rebuild(message["run"], None, {})
    return _runs[text]
