"""One store per source, and a look inside."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

import tokenloom as tl
from examples.demo.printing import prove, say, table
from examples.demo.world import World
from tokenloom.cli.printing import binary_size, histogram, summary

__all__ = ["build_stores", "look_inside"]

SHOWN_TOKENS = 12


def build_stores(world: World) -> World:
    """The step: text files in, stores out."""
    stores = {}
    for source, path in world.inputs.items():
        began = time.perf_counter()
        stores[source] = tl.build(path, world.out / "stores" / source, **world.build_options)
        seconds = time.perf_counter() - began
        rate = stores[source].num_tokens / seconds / 1e6
        say(f"{path} → {stores[source].path} in {seconds:.1f} s ({rate:.1f} million tokens/s)")
    say()
    table(
        {source: _about(store, world, source) for source, store in stores.items()},
        [
            *("documents", "tokens", "bytes per token", "mean length", "median", "99 %"),
            *("longest", "on disk", "shards", "engine", "digest"),
        ],
    )
    return replace(world, stores=stores)


def _about(store: tl.Store, world: World, source: str) -> list[str]:
    text_bytes = sum(len(one.text.encode()) for one in world.documents[source])
    lengths, facts = store.lengths, summary(store)
    return [
        f"{store.num_documents:,}",
        f"{store.num_tokens:,}",
        f"{text_bytes / store.num_tokens:.2f}",
        f"{lengths.mean():,.0f}",
        f"{np.median(lengths):,.0f}",
        f"{np.percentile(lengths, 99):,.0f}",
        f"{lengths.max():,}",
        binary_size(facts["bytes"]),
        str(facts["shards"]),
        str(facts["engine"]),
        store.digest[:16],
    ]


def look_inside(world: World) -> World:
    """The step: how long documents are, and one of them token by token."""
    for source, store in world.stores.items():
        say(f"{source}: tokens per document, documents, share of all tokens")
        for row in histogram(store.lengths):
            say(row.removeprefix(" " * 8))
        say()
    store = world.stores["prose"]
    number = shown_document(store)
    ids = store.document(number)
    say(f"prose, document {number}: {store.metadata(number)}")
    tokens = store.tokenizer.token_strings(ids[:SHOWN_TOKENS])
    say(" ".join(f"{token!r}={i}" for token, i in zip(tokens, ids.tolist(), strict=False)) + " …")
    texts = [one.text for one in world.documents["prose"]]
    back = store.tokenizer.decode(ids[:-1])
    ends = ids[-1] == store.tokenizer.eos
    say()
    prove(f"its {len(ids):,} tokens decoded: the text that went in", ends and back == texts[number])
    return world


def shown_document(store: tl.Store) -> int:
    """The document whose length is the median."""
    order = np.argsort(store.lengths, kind="stable")
    return int(order[len(order) // 2])
