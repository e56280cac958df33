"""`tokenloom.exchange.export`: a store in, a folder of another format out.

One idea: an export is checked, then streamed, then published: what the format cannot hold is found
before anything is written, and the folder appears when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tokenloom.api.store import Store, open_store
from tokenloom.arguments import local_path, near_misses, one_of
from tokenloom.errors import ConfigError, plural
from tokenloom.exchange.folder import Folder, fresh_folder
from tokenloom.exchange.holds import Holding, Limits, Loss, losses
from tokenloom.exchange.to_arrays import write_megatron, write_npy
from tokenloom.exchange.to_levanter import lost_weight, write_levanter
from tokenloom.exchange.to_mds import write_mds
from tokenloom.exchange.to_parquet import write_parquet
from tokenloom.progress import Progress
from tokenloom.store.files import LOCAL, Files


class Format(NamedTuple):
    """A format of others: what it can hold, what writes it, and what else it would lose."""

    limits: Limits
    write: Callable[[Holding, Folder, Progress], None]
    also: Callable[[Store], list[Loss]] = lambda _: []


FORMATS = {
    "megatron": Format(Limits(name="megatron", columns=False, metadata=False), write_megatron),
    "levanter": Format(
        Limits(name="levanter", longest=1 << 53, metadata=False), write_levanter, lost_weight
    ),
    "parquet": Format(Limits(name="parquet", beside=True), write_parquet),
    # its writer refuses arrays without elements; starts in a shard are uint32
    "mds": Format(Limits(name="mds", empty=False, longest=1 << 28), write_mds),
    "npy": Format(Limits(name="npy", longest=1 << 53, metadata=False), write_npy),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """What an export wrote.

    Attributes:
        path: the folder.
        to: the format.
        documents: documents in it.
        tokens: tokens in it.
        files: its files, name → bytes.
        left_out: what the format could not hold, in words → documents that had it.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abc"}], folder + "/toy", tokenizer="bytes")
    ...     sorted(export(store, folder + "/arrays", to="npy").files)
    ['document_ends.npy', 'export.json', 'input_ids.npy']
    """

    path: str
    to: str
    documents: int
    tokens: int
    files: dict[str, int]
    left_out: dict[str, int]


@near_misses("export")
def export(
    store: Store | str | Path,
    out: str | Path,
    *,
    to: str,
    lossy: bool = False,
    progress: bool | None = None,
    files: Files = LOCAL,
) -> Exported:
    """Write the documents of a store as a folder that another library reads.

    The store is read once, a million tokens at a time. The folder appears when it is complete.

    Args:
        store: what to write, or its path; also a store of others that `tokenloom.open` reads.
        out: the folder, on this machine; it must not exist, or be empty.
        to: "megatron" (`text_document.bin` and `.idx`), "levanter" (a consolidated cache),
            "parquet" (a row for each document), "mds" (streaming's shards, uncompressed) or "npy"
            (flat arrays and document ends).
        lossy: leave out what the format cannot hold, and count it (`Exported.left_out`);
            otherwise it is refused.
        progress: show a progress bar; default: if standard error is a terminal.
        files: the file system interface that everything is written through.

    Raises:
        ConfigError: the format cannot hold something; names the first document.
        StoreExists: something is at `out`.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.exchange import export
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = [{"input_ids": [1, 2, 3]}, {"input_ids": [4]}]
    ...     store = tl.build(rows, folder + "/toy", tokenizer=None, vocab_size=9)
    ...     written = export(store, folder + "/out", to="npy")
    ...     sorted(written.files), written.tokens
    (['document_ends.npy', 'export.json', 'input_ids.npy'], 4)
    """
    one_of("to", to, FORMATS)
    local_path("out", out)  # before anything is read
    opened = store if isinstance(store, Store) else open_store(store)
    limits, write, also = FORMATS[to]
    lost = [*losses(opened, limits, counted=lossy), *also(opened)]
    if lost and not lossy:
        raise _refused(opened, limits, lost)
    kept = Holding.of(opened, limits)
    total = kept.tokens * (1 + len(kept.columns))
    show = Progress(f"export to {to}", total=total, unit="tok", show=progress)
    with fresh_folder(files, out) as folder, show as bar:
        write(kept, folder, bar)
    return Exported(
        path=str(out),
        to=to,
        documents=kept.documents,
        tokens=kept.tokens,
        files=folder.sizes,
        left_out={one.what: one.documents for one in lost},
    )


def _refused(store: Store, limits: Limits, lost: list[Loss]) -> ConfigError:
    told = [
        f"{what} ({plural(count, 'document')}, the first is {document})"
        if count
        else f"{what}, first in document {document}"
        for what, document, count in lost
    ]
    return ConfigError(
        f"{store.path}: {limits.name} cannot hold {'; '.join(told)}. Pass lossy=True to leave "
        "that out, or choose a format that holds it (see docs/stores.md)."
    )
