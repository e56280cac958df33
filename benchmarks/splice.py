"""Splices: what batches of them cost, what finding one costs, and what is kept for a document.

Documents of some 50,000 tokens, as in the published design (it selects long ones), in frames of
4,096, shuffled, through `tokenloom.Loader`. The same run measures plain windows of the same store,
and the published construction in NumPy: one example at a time, filler, a slice, masks, and a stack
of them. Every rival is checked against that construction before it is timed: the same splices must
give the same arrays. The reference implementation of the published design is not run; it was
measured at 242 examples per CPU-second (Levanter's `MultiSpliceDocumentDataset.get_batch`).

An *index* is turned into (document, t, s) by arithmetic, wherever it is in an endless run: the
second table shows what that costs at 0 and at 10^12, and what listing 10^7 triples costs. The third
counts the memory of a layout, for documents of two sizes.
"""

from __future__ import annotations

import functools
import gc
import itertools
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tokenloom as tl
from benchmarks.clock import Row, Table, against, amount, cost, interleave, rate, want
from benchmarks.loaders import ALL, TOKENS
from benchmarks.stores import publish, virtual_store, write_shard
from tokenloom.layout.splice.rows import Spliced
from tokenloom.order.spec import make_layout

__all__ = ["SIZES", "Size", "rates", "run", "write_documents"]

SEQ, HALF, BATCH, MEAN = 4096, 2048, 32, 50_000
PAD, IGNORE = 0, -100
PUBLISHED = 242  # examples per CPU-second of the reference implementation
FAR = 10**12  # examples
CHUNK, LISTED_TOGETHER = 8192, 65_536  # indices, rows
KINDS = {"tokens only": TOKENS, "all arrays": ALL}

ABSOLUTE: dict[str, Any] = {"position_scheme": "absolute"}
HALVES: dict[str, Any] = {**ABSOLUTE, "content_length": HALF}
JITTER: dict[str, Any] = {"offset_jitter": 64, "jitter_mode": "low_discrepancy"}
SPLICES: dict[str, dict[str, Any]] = {
    "coverage_balanced, K = 4,096": ABSOLUTE,
    "coverage_balanced, K = 2,048": HALVES,
    "coverage_balanced, K = 2,048, jitter": {**HALVES, **JITTER},
    "clip + pack, K = 2,048": {**HALVES, "edge": "clip", "fill": "pack"},
    "slide_within, K = 2,048": {**HALVES, "content_start_mode": "slide_within"},
}
STREAMS: dict[str, dict[str, Any]] = {
    "coverage_balanced": HALVES,
    "with jitter": {**HALVES, **JITTER},
    "with alpha": {**HALVES, "alpha": 0.8},
    "with alpha and jitter": {**HALVES, **JITTER, "alpha": 0.8},
    "clip + pack": SPLICES["clip + pack, K = 2,048"],
}
KEPT: dict[str, dict[str, Any]] = {
    "coverage_balanced": {"content_length": 256},
    "with alpha": {"content_length": 256, "alpha": 0.8},
    "clip + pack": {"content_length": 256, "edge": "clip", "fill": "pack"},
}
SHARD = 1000  # documents


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Tokens of the store, batches of a pass, rounds, triples to list, documents to keep."""

    tokens: int
    batches: int
    rounds: int
    triples: int
    documents: int


SIZES = {
    "tiny": Size(tokens=1 << 20, batches=4, rounds=1, triples=100_000, documents=1_000),
    "small": Size(tokens=1 << 24, batches=256, rounds=6, triples=1_000_000, documents=20_000),
    "default": Size(tokens=1 << 25, batches=256, rounds=16, triples=10**7, documents=100_000),
    "full": Size(tokens=1 << 26, batches=256, rounds=64, triples=10**7, documents=100_000),
}


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of splicing."""
    how = SIZES[size]
    root = folder / "store"
    write_documents(root, max(2, how.tokens // MEAN))
    return [
        rates(root, how, command),
        _indices(root, how, command),
        _kept(folder, how.documents, command),
    ]


def write_documents(root: Path, documents: int) -> None:
    """A store of random documents, of half `MEAN` to three halves of it."""
    root.mkdir()
    random = np.random.default_rng(0)
    lengths = random.integers(MEAN // 2, MEAN * 3 // 2, documents)
    ids = random.integers(1, 50_000, int(lengths.sum())).astype(np.uint16)
    publish(root, [write_shard(root, 0, [(ids, lengths)], "uint16")], "uint16")


# -- 1. the rate ---------------------------------------------------------------------------


def rates(root: Path, how: Size, command: str) -> Table:
    """What batches of splices cost beside plain windows of the same store."""
    whole = tl.open(root)
    documents = whole.documents(np.arange(whole.num_documents))
    ways: dict[tuple[str, str], Iterator[Any]] = {}
    plain, peer = "store.windows(4096).shuffle()", "an example at a time, NumPy, K = 2,048"
    for name, options in {plain: None, **SPLICES}.items():
        store = tl.open(root)  # a cache of its own: layouts do not share blocks
        data = store.windows(SEQ) if options is None else store.splice(SEQ, pad_id=PAD, **options)
        for kind, fields in KINDS.items():
            loader = tl.Loader(data.shuffle().seed(7).epochs(None), BATCH, fields=fields)
            if options is not None:
                _check(loader.dataset, next(loader), documents)
            ways[name, kind] = loader
    for kind, fields in KINDS.items():
        ways[peer, kind] = _one_by_one(documents, fields)
    for batches in ways.values():
        _take(batches, how.tokens // SEQ // BATCH)  # blocks are at hand and checked
    passes = {" ".join(k): functools.partial(_take, b, how.batches) for k, b in ways.items()}
    timing = interleave(passes, max(2, how.rounds))

    def row(name: str, kind: str) -> Row:
        done, what = how.batches * BATCH, f"{name}, {kind}"
        return rate(what, timing[f"{name} {kind}"], done, "examples/CPU-s")

    rows = []
    for kind in KINDS:
        windows, others = row(plain, kind), row(peer, kind)
        rows += [windows, others]
        for name in SPLICES:
            made = row(name, kind)
            rows.append(want(against(made, others, "NumPy"), ">=", 20_000))
            held = want(against(made, windows, "windows"), ">=", 0.5, of_ratio=True)
            rows.append(replace(held, what="  the same"))
    size = f"{len(documents):,} documents, {whole.num_tokens:,} tokens"
    published = f"{PUBLISHED} examples per CPU-second with frames of {SEQ:,}"
    notes = [
        f"{size}; {how.rounds} rounds of passes of {how.batches} batches; one process, warm.",
        "Every rival gives the arrays that the published construction gives for its triples.",
        f"The reference implementation was measured at {published}; it is not run here.",
    ]
    title = f"splice 1: shuffled batches of {BATCH} x {SEQ:,} tokens"
    return Table(title=title, command=command, rows=rows, notes=notes)


def _take(batches: Iterator[Any], count: int) -> None:
    for _ in itertools.islice(batches, count):
        pass


def _built(
    splices: Sequence[tuple[np.ndarray, int, int, int]], fields: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """One example as published: filler, and in it K tokens of a document from t on at s.

    Args:
        splices: (document, K, t, s) of each, in order.
        fields: which arrays to make.
    """
    made = {"tokens": np.full(SEQ, PAD, np.int32)}
    if fields != TOKENS:
        made["labels"] = np.full(SEQ, IGNORE, np.int32)
        made["loss_mask"] = np.zeros(SEQ, np.bool_)
        made["segment_ids"] = np.zeros(SEQ, np.int32)
        made["position_ids"] = np.arange(SEQ, dtype=np.int32)
    for number, (document, content, t, s) in enumerate(splices, 1):
        part = document[max(t, 0) : t + content]
        end = s + len(part)
        made["tokens"][s:end] = part
        if fields != TOKENS:
            made["labels"][s + 1 : end] = part[1:]
            made["loss_mask"][s : end - 1] = True
            made["segment_ids"][s:end] = number
    return made


def _stacked(examples: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([one[name] for one in examples]) for name in examples[0]}


def _one_by_one(
    documents: list[np.ndarray], fields: tuple[str, ...]
) -> Iterator[dict[str, np.ndarray]]:
    """Batches of the published construction, of any document from any start, without end."""
    random = np.random.default_rng(7)
    long = [one for one in documents if len(one) >= HALF]
    while True:
        which = random.integers(0, len(long), BATCH).tolist()
        luck = random.random(BATCH).tolist()
        examples = []
        for number, share in zip(which, luck, strict=True):
            t = int(share * (len(long[number]) - HALF + 1))
            examples.append(_built([(long[number], HALF, t, SEQ - HALF)], fields))
        yield _stacked(examples)


def _check(data: tl.Dataset, batch: tl.Batch, documents: list[np.ndarray]) -> None:
    """Refuse a batch that is not what the published construction gives for its triples."""
    layout = data.run.layout
    assert isinstance(layout, Spliced)
    found = layout.triples(*data.locate(batch.index))
    content = layout.spec.content_length or SEQ
    examples = []
    for row in range(len(batch)):
        here = found.row == row
        triples = zip(*(column[here].tolist() for column in found[1:]), strict=True)
        splices = [(documents[d], min(content, len(documents[d])), t, s) for d, t, s in triples]
        examples.append(_built(splices, ALL))
    for name, wanted in _stacked(examples).items():
        if not np.array_equal(getattr(batch, name), wanted):
            raise ValueError(f"splice: {name} is not what (document, t, s) say.")


# -- 2. an index ---------------------------------------------------------------------------


def _indices(root: Path, how: Size, command: str) -> Table:
    store = tl.open(root)
    ways: dict[str, Callable[[], object]] = {}
    for name, options in STREAMS.items():
        data = store.splice(SEQ, sampler="stream", **options).seed(7)
        for first in (0, FAR):
            ways[_named(name, first)] = functools.partial(_found, data, first)
    timing = interleave(ways, max(3, how.rounds))
    rows = []
    for name in STREAMS:
        near, far = (cost(_named(name, n), timing[_named(name, n)], CHUNK, "ns") for n in (0, FAR))
        rows += [near, want(against(far, near, "n = 0"), "<=", 1.25, of_ratio=True)]
    for name, options in SPLICES.items():
        data = store.splice(SEQ, **options)
        list_all = functools.partial(_listed, data, how.triples)
        took = interleave({name: list_all}, min(3, how.rounds), warm_up=False)[name]
        made = cost(f"list {how.triples:,} triples, {name}", took, 1, "s")
        rows.append(want(made, "<=", 2.0) if how.triples == 10**7 else made)
    notes = [
        f"Endless, shuffled: {CHUNK:,} indices at a time become epoch, row and (document, t, s).",
        f"Triples are listed by rows, {LISTED_TOGETHER:,} at a time. No token is read.",
        "An index of clip + pack is a frame, which has 2 or more triples.",
    ]
    return Table(title="splice 2: an index", command=command, rows=rows, notes=notes)


def _named(name: str, first: int) -> str:
    return f"stream, {name}, n = {'10^12' if first else 0}"


def _found(data: tl.Dataset, first: int) -> object:
    layout = data.run.layout
    assert isinstance(layout, Spliced)
    return layout.triples(*data.run.locate(np.arange(first, first + CHUNK)))


def _listed(data: tl.Dataset, count: int) -> int:
    layout, rows, found, low = data.run.layout, data.run.rows, 0, 0
    assert isinstance(layout, Spliced)
    while found < count and low < rows:
        high = min(low + LISTED_TOGETHER, rows)
        found += len(layout.triples(0, np.arange(low, high)).t)
        low = high
    return found


# -- 3. memory -----------------------------------------------------------------------------


def _kept(folder: Path, documents: int, command: str) -> Table:
    rows = []
    for mean in (400, 4000):
        root = folder / f"documents-of-{mean}"
        virtual_store(root, documents // SHARD, SHARD, mean)
        chosen = tl.open(root).select(num_docs=documents)
        for name, options in KEPT.items():
            spec, line = chosen.splice(1024, **options).sources["main"].config.layout, chosen.line
            gc.collect()
            tracemalloc.start()
            layout = make_layout(spec, line)
            gc.collect()
            kept, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            del layout
            what = f"{name}, documents of {mean:,} tokens"
            rows.append(want(amount(what, kept / documents, "bytes a document"), "<=", 256))
            rows.append(amount("  while it is made", peak / documents, "bytes a document"))
    notes = [f"{documents:,} selected documents; what Python has allocated for the layout itself."]
    return Table(title="splice 3: memory", command=command, rows=rows, notes=notes)
