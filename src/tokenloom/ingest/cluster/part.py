"""One part of a build that several machines share.

One idea: a part is a function of the arguments and of its number, so machines share nothing but the
inputs and the folder of the store (`tokenloom.ingest.cluster`). A process that does a part opens no
store and no run, so this module imports neither: of a short part, starting is most of the time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenloom.arguments import field_names, integer, near_misses, one_of, part_of
from tokenloom.errors import ConfigError
from tokenloom.ingest.cluster.drive import Site, prepare, run_part
from tokenloom.ingest.pipeline import BuildMode
from tokenloom.ingest.plan import MOST_STRETCHES, BuildOptions
from tokenloom.store.files import Files

_MODE = tuple(field_names(BuildMode))

SETTINGS = (*(name for name in field_names(BuildOptions) if name != "stretches"), *_MODE)

"""What a part may be told, named as in `tokenloom.build`; the rest is how it is made."""


@near_misses("build_part", *SETTINGS)
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
    number, stretches = part_of(part)
    if stretches > MOST_STRETCHES:
        raise ConfigError(f"part: found {part!r}, allowed: 1 to {MOST_STRETCHES:,} parts in all.")
    one_of("progress", progress, (None, True, False))
    site = site_of("build_part", inputs, out, stretches, files, settings)
    if workers is not None:
        workers = integer("workers", workers, 1)
    record = run_part(site, number, workers=workers, progress=progress)
    return record.counts() if record else {}


def site_of(
    where: str, inputs: Any, out: Any, stretches: int, files: Files | None, settings: dict[str, Any]
) -> Site:
    """A build as its parts see it.

    Args:
        where: the function that was called, for messages.
        inputs: as in `tokenloom.build`.
        out: directory of the store.
        stretches: the number of parts.
        files: the interface that everything is written through; None: by `out`.
        settings: as in `tokenloom.build`; those of the mode are taken out.
    """
    if "tokenizer" not in settings:
        raise ConfigError(f"{where}: no tokenizer. Pass tokenizer=..., None for ready-made ids.")
    mode = BuildMode(**{name: settings.pop(name) for name in _MODE if name in settings})
    options = BuildOptions(**settings, stretches=stretches)
    return prepare(inputs, out, options, mode, files)
