"""`tokenloom build`, `tokenloom convert` and `tokenloom export`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict

from tokenloom import exchange
from tokenloom.api.build import build_store
from tokenloom.api.store import Store, open_store
from tokenloom.cli.part import settings_of
from tokenloom.cli.printing import said, summary, write
from tokenloom.cluster import finish_build
from tokenloom.errors import ConfigError, binary_size, plural
from tokenloom.foreign.opened import is_ours


def build(arguments: argparse.Namespace) -> int:
    """Make a store, or one of parts: `tokenloom build`; `--part` is in `tokenloom.cli.part`."""
    settings = settings_of(arguments)
    if arguments.executor is not None and arguments.finish:
        raise ConfigError("--executor, --finish: found both, allowed: one of them.")
    began = time.perf_counter()
    if arguments.finish:
        settings.pop("workers", None)
        store = finish_build(arguments.inputs, arguments.out, **settings)
    else:
        quiet = False if arguments.quiet else None
        settings |= {"executor": arguments.executor or "local"}
        store = build_store(arguments.inputs, arguments.out, progress=quiet, **settings)
    return _told(arguments, store, time.perf_counter() - began)


def _told(arguments: argparse.Namespace, store: Store, seconds: float) -> int:
    about = {**summary(store), "seconds": round(seconds, 3)}
    part = store.reader.manifest.parts[-1]
    left_out = f", {part.skipped:,} skipped, {part.filtered:,} filtered"
    lines = [
        (
            f"{store.path}: {plural(store.num_documents, 'document')}, "
            f"{plural(store.num_tokens, 'token')}"
            f"{left_out if part.skipped or part.filtered else ''} in {seconds:.1f} s"
        ),
        (
            f"digest {store.digest[:16]}, snapshot {store.snapshot}, "
            f"{plural(len(store.reader.manifest.shards), 'shard')}, {store.dtype.name}"
        ),
    ]
    write(arguments, about, lines)
    return 0


def convert(arguments: argparse.Namespace) -> int:
    """Copy a store into our own format: `tokenloom convert`."""
    began = time.perf_counter()
    more = {} if arguments.shard_tokens is None else {"shard_tokens": arguments.shard_tokens}
    store = exchange.convert(
        _source(arguments, sample=True),
        arguments.out,
        progress=False if arguments.quiet else None,
        **more,
    )
    return _told(arguments, store, time.perf_counter() - began)


def _source(arguments: argparse.Namespace, *, sample: bool = False) -> Store:
    """The store to read, with what was said about files of others."""
    told = said(arguments)
    if sample and told["seal"] is None and not is_ours(arguments.store):
        told["identity"] = "sample"  # the digest is worked out while copying
    return open_store(arguments.store, **told)


def export(arguments: argparse.Namespace) -> int:
    """Write a store as files of another library: `tokenloom export`."""
    written = exchange.export(
        _source(arguments),
        arguments.out,
        to=arguments.to,
        lossy=arguments.lossy,
        progress=False if arguments.quiet else None,
    )
    write(arguments, asdict(written), _export_lines(written))
    return 0


def _export_lines(written: exchange.Exported) -> Iterator[str]:
    yield (
        f"{written.path}: {plural(written.documents, 'document')}, "
        f"{plural(written.tokens, 'token')} as {written.to}, "
        f"{plural(len(written.files), 'file')}, {binary_size(sum(written.files.values()))}"
    )
    for what, count in written.left_out.items():
        yield f"left out: {what} of {plural(count, 'document')}"
