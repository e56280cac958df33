"""A build that several machines share: each does parts of it, then one publishes the store.

`build_part` does part 3 of 64, on any machine, in any order, again after a crash; `finish_build`
publishes the store of all parts, with the bytes of a build on one machine. See
docs/on-a-cluster.md; ``tokenloom.build(..., executor="ray")`` does the same on a Ray cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenloom.api.store import Store, open_store
from tokenloom.arguments import near_misses
from tokenloom.ingest.cluster.drive import (
    SETTINGS,
    build_part,
    finish_parts,
    planned_stretches,
    site_of,
)
from tokenloom.store.files import Files

__all__ = ["build_part", "finish_build"]


@near_misses("finish_build", *SETTINGS)
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
    finish_parts(site_of("finish_build", inputs, out, count, files, settings))
    return open_store(out)
