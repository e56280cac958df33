"""One store per source, and a look inside."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

import tokenloom as tl
from examples.demo.printing import histogram, megabytes, prove, say, table
from examples.demo.world import World

__all__ = ["build_stores", "look_inside", "median_document"]

SHOWN_TOKENS = 10


def build_stores(world: World) -> World:
    """The step: text files in, stores out."""
    options = world.build_options
    shown = [f"{name}={value!r}" for name, value in options.items()]
    say(f">>> tl.build(text, store, {shown[0]},")
    say(f"...          {', '.join(shown[1:])})")
    stores = {}
    for source, path in world.inputs.items():
        began = time.perf_counter()
        stores[source] = tl.build(path, world.out / "stores" / source, **options)
        say(f"{path} → {stores[source].path}  {time.perf_counter() - began:.1f} s")
    say()
    columns = {source: facts(store, world, source) for source, store in stores.items()}
    table(
        {source: list(about.values()) for source, about in columns.items()}, list(columns["code"])
    )
    return replace(world, stores=stores)


def facts(store: tl.Store, world: World, source: str) -> dict[str, str]:
    """A column of the table; lengths are in tokens, including EOS."""
    text_bytes = sum(len(one.text.encode()) for one in world.documents[source])
    lengths, about = store.lengths, info(store)
    return {
        "documents": f"{store.num_documents:,}",
        "tokens": f"{store.num_tokens:,}",
        "bytes per token": f"{text_bytes / store.num_tokens:.2f}",
        "mean length": f"{lengths.mean():,.0f}",
        "median length": f"{np.median(lengths):,.0f}",
        "99th percentile": f"{np.percentile(lengths, 99):,.0f}",
        "longest": f"{lengths.max():,}",
        "on disk": megabytes(about["bytes"]),
        "shards": str(about["shards"]),
        "engine": str(about["engine"]),
        "digest": store.digest[:16],
    }


def info(store: tl.Store) -> dict[str, Any]:
    """The output of `tokenloom info --json` for a store."""
    command = [sys.executable, "-m", "tokenloom", "info", str(store.path), "--json"]
    done = subprocess.run(command, check=True, capture_output=True)
    about: dict[str, Any] = json.loads(done.stdout)
    return about


def look_inside(world: World) -> World:
    """The step: the lengths of documents, and one document token by token."""
    for source, store in world.stores.items():
        say(f"{source:<5} {'tokens':>9} {'documents':>9} share of all tokens")
        for line in histogram(store.lengths):
            say(line)
        say()
    show_document(world, "prose")
    return world


def show_document(world: World, source: str) -> None:
    """One document of median length: its origin, its first tokens, and its decoded text."""
    store = world.stores[source]
    number = median_document(store)
    ids = store.document(number)
    say(f">>> {source}.metadata({number})")
    say(f"{store.metadata(number)}")
    say(f">>> {source}.document({number})  # {len(ids):,} tokens, of which the first")
    strings = store.tokenizer.token_strings(ids[:SHOWN_TOKENS])
    columns = [(text.replace(" ", "·"), str(i)) for text, i in zip(strings, ids, strict=False)]
    for row in zip(*columns, strict=True):
        cells = (f"{cell:<{max(map(len, pair))}}" for cell, pair in zip(row, columns, strict=True))
        say("  ".join(cells))
    text = world.documents[source][number].text
    same = ids[-1] == store.tokenizer.eos and store.tokenizer.decode(ids[:-1]) == text
    prove("all of them, decoded: the text that went in", same)


def median_document(store: tl.Store) -> int:
    """The document whose length is the median."""
    order = np.argsort(store.lengths, kind="stable")
    return int(order[len(order) // 2])
