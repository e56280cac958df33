"""A build in parts: each machine does some of them, and one publishes.

One idea: a part is a function of the arguments and of its number, so machines share nothing but the
inputs and the folder of the store (`tokenloom.ingest.cluster`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tokenloom.api.store import Store, open_store
from tokenloom.arguments import field_names, integer, near_misses
from tokenloom.errors import ConfigError
from tokenloom.ingest.cluster.drive import (
    Site,
    finish_parts,
    planned_stretches,
    prepare,
    run_part,
)
from tokenloom.ingest.pipeline import BuildMode
from tokenloom.ingest.plan import BuildOptions
from tokenloom.store.files import Files

__all__ = ["build_part", "finish_build"]

# what decides a store is named as in `tokenloom.build`; the rest is how it is made
_OPTIONS = tuple(name for name in field_names(BuildOptions) if name != "stretches")

_MODE = tuple(field_names(BuildMode))


@near_misses("build_part", *_OPTIONS, *_MODE)
def build_part(
    inputs: Any,
    out: str | Path,
    part: str,
    *,
    workers: int | None = None,
    progress: bool | None = None,
    files: Files | None = None,
    **settings: Any,
) -> dict[str, int]:
    """Do one part of a build that several machines share; `finish_build` publishes it.

    Every part gets the same arguments but for `part`. Parts run in any order, at once or one after
    the other, on machines that see the inputs and `out`; nothing else connects them. A part that
    was killed is run again and goes on after its last finished shard; one that is done returns at
    once.

    Args:
        inputs: as in `tokenloom.build`, apart from iterators, which only one process can read.
        out: directory of the store.
        part: which part of how many stretches, counted from 1, as ``"3/64"``.
        workers: number of encoding processes; see `tokenloom.build`.
        progress: show a progress bar; default: if standard error is a terminal.
        files: the interface that everything is written through; default: by `out`.
        settings: as in `tokenloom.build`.

    Returns:
        What the part holds: shards, documents, tokens, records skipped and filtered, bytes of
        input; empty if the store is already published.

    Raises:
        StoreExists: parts with other settings or inputs are at `out`; says in what they differ.
        InputError: a bad record or file.

    >>> import tempfile, tokenloom.cluster as cluster
    >>> folder = tempfile.TemporaryDirectory()
    >>> rows, out = [{"text": "ab"}, {"text": "c"}], folder.name + "/toy"
    >>> for part in ("2/2", "1/2"):
    ...     done = cluster.build_part(rows, out, part, tokenizer="bytes")
    ...     print(done["documents"], done["tokens"])
    1 1
    1 2
    >>> cluster.finish_build(rows, out, tokenizer="bytes").lengths.tolist()
    [2, 1]
    >>> folder.cleanup()
    """
    number, stretches = _part_of(part)
    site = _site("build_part", inputs, out, stretches, files, settings)
    if workers is not None:
        workers = integer("workers", workers, 1)
    record = run_part(site, number, workers=workers, progress=progress)
    return record.counts() if record else {}


@near_misses("finish_build", *_OPTIONS, *_MODE)
def finish_build(
    inputs: Any,
    out: str | Path,
    *,
    stretches: int | None = None,
    files: Files | None = None,
    **settings: Any,
) -> Store:
    """Publish a build whose parts are done (`build_part`), and open it.

    Shards are joined without reading a token; what the parts left for each other is removed. The
    store has the bytes of ``build(..., stretches=n)``. Of two calls at once, one publishes.

    Args:
        inputs: as given to every part.
        out: directory of the store.
        stretches: the number of parts; default: that of the parts at `out`.
        files: the interface that everything is written through; default: by `out`.
        settings: as given to every part.

    Raises:
        StoreError: parts are missing; says which.
        InputError: an input changed between two parts, or is there twice.

    >>> import tempfile, tokenloom.cluster as cluster
    >>> folder = tempfile.TemporaryDirectory()
    >>> rows, out = [{"text": "ab"}, {"text": "c"}], folder.name + "/toy"
    >>> done = cluster.build_part(rows, out, "1/2", tokenizer="bytes")
    >>> try:
    ...     cluster.finish_build(rows, out, tokenizer="bytes")
    ... except OSError as error:
    ...     print(str(error).split(": ", 1)[1].split(".")[0])
    1 of 2 parts is missing: 2
    >>> done = cluster.build_part(rows, out, "2/2", tokenizer="bytes")
    >>> cluster.finish_build(rows, out, tokenizer="bytes").num_documents
    2
    >>> folder.cleanup()
    """
    count = planned_stretches(out, files) if stretches is None else stretches
    site = _site("finish_build", inputs, out, count, files, settings)
    finish_parts(site)
    return open_store(out)


def _site(
    where: str, inputs: Any, out: Any, stretches: int, files: Files | None, settings: dict[str, Any]
) -> Site:
    if "tokenizer" not in settings:
        raise ConfigError(f"{where}: no tokenizer. Pass tokenizer=..., None for ready-made ids.")
    mode = BuildMode(**{name: settings.pop(name, False) for name in _MODE})
    options = BuildOptions(**settings, stretches=stretches)
    return prepare(inputs, out, options, mode, files)


def _part_of(part: Any) -> tuple[int, int]:
    """Part and number of stretches of ``"3/64"``.

    >>> _part_of("3/64")
    (3, 64)
    """
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", str(part))
    if found is None:
        raise ConfigError(
            f"part: found {part!r}, allowed: which part of how many, from 1, as '3/64'."
        )
    number, stretches = int(found[1]), int(found[2])
    if not 1 <= number <= stretches:
        raise ConfigError(
            f"part: found {part!r}, allowed: '1/{stretches}' to '{stretches}/{stretches}'. Parts "
            "are counted from 1."
        )
    return number, stretches
