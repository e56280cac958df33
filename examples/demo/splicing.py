"""Splice a few documents: every start exactly as often as requested, and a map of it."""

from __future__ import annotations

import numpy as np

import tokenloom as tl
from examples.demo.printing import explain, prove, say
from examples.demo.world import World
from tokenloom.inspect import coverage, places, triples

__all__ = ["splice_documents"]

SEQ_LEN, CONTENT = 512, 128
FAR = 10**12


def splice_documents(world: World) -> World:
    """The step: three documents, seen from every start, and what is known about it in advance."""
    store = world.stores["prose"]
    chosen = store.select(num_docs=3, doc_select_mode="longest", max_doc_length=2000)
    run = chosen.splice(SEQ_LEN, content_length=CONTENT, position_scheme="relative")
    seen = coverage(run)
    for line in str(seen).splitlines():
        say(line)
    even = all(np.ptp(seen.targets(document)[1:]) == 0 for document in chosen.indices.tolist())
    prove(f"every token but the first is trained {CONTENT - 1} times, none more or less", even)
    listed = triples(run)
    filled = f"{_filled(run):.0%} of their cells"
    prove(
        f"{len(run):,} frames hold {len(listed.t):,} splices, which take {filled}",
        len(listed.t) == int(np.sum(chosen.lengths + CONTENT - 3)),
    )
    document, t = int(chosen.indices[0]), 300
    prove(
        f"document {document} from token {t} is at index {places(run, document, t).tolist()}",
        places(run, document, t).tolist()
        == listed.index[(listed.document == document) & (listed.t == t)].tolist(),
    )
    published = chosen.splice(SEQ_LEN, content_length=CONTENT, offset_jitter=3, sampler="stream")
    first = published.batch([FAR, FAR + 1])
    again = tl.from_config(published.describe()).batch([FAR, FAR + 1])
    prove(
        f"example 10^12 of an endless run, twice: the same bytes (document {first.document[0]})",
        np.array_equal(first.tokens, again.tokens),
    )
    swept = store.select(doc_index=document).splice(
        SEQ_LEN,
        content_length=CONTENT,
        content_start_mode="slide_within",
        content_stride=16,
        offset_stride=16,
        position_scheme="absolute",
    )
    say()
    say(f"Starts t and offsets s of slide_within for document {document}, {len(swept):,} frames:")
    for line in coverage(swept).map(document).splitlines():
        say(line)
    explain(
        "That sweep is for models with learned positions. With RoPE the offset makes no "
        "difference, so position_scheme='relative' puts windows side by side instead."
    )
    return world


def _filled(run: tl.Dataset) -> float:
    """Share of cells that hold a token."""
    return float(run.spans(np.arange(len(run))).length.sum() / (len(run) * run.seq_len))
