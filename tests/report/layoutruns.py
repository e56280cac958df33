"""Small runs of every layout and end, and what they lose, counted cell by cell."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np

import tokenloom as tl
from tokenloom.report.subject import Asked, RunSubject
from tokenloom.testing import write_store

SEQ_LEN = 8


def store_of(root: Path, seed: int = 0, count: int = 40, longest: int = 20) -> tl.Store:
    """A store of documents of 0 to `longest` tokens in two shards."""
    rng = np.random.Generator(np.random.PCG64(seed))
    made = [rng.integers(4, 1000, int(rng.integers(0, longest + 1))).tolist() for _ in range(count)]
    write_store(root, [made[: count // 2], made[count // 2 :]], inner=16, chunk_tokens=32)
    return tl.open(root, cache_bytes=1 << 20)


def subject_of(run: tl.Dataset, **asked) -> RunSubject:
    return RunSubject(run, Asked(**({"batch_size": 1} | asked)))


ONE = {  # of one source, each from a store
    "windows": lambda s: s.windows(SEQ_LEN),
    "windows, tail": lambda s: s.windows(SEQ_LEN, tail="keep"),
    "windows, look-ahead": lambda s: s.windows(SEQ_LEN, lookahead=True),
    "windows, overlap": lambda s: s.windows(SEQ_LEN, lookahead=True, overlap=1),
    "pack": lambda s: s.pack(SEQ_LEN).shuffle(),
    "pack, specials": lambda s: s.pack(SEQ_LEN, add_bos=True, bos_id=1, add_eos=True, eos_id=2),
    "pack, truncate": lambda s: s.pack(SEQ_LEN, overflow="truncate"),
    "pack, drop": lambda s: s.pack(SEQ_LEN, overflow="drop").shuffle().epochs(2),
    "pack, error": lambda s: s.select(num_docs=9, max_doc_length=SEQ_LEN).pack(
        SEQ_LEN, overflow="error"
    ),
    "pack, lengths": lambda s: s.pack(SEQ_LEN, min_len=3, max_len=15, max_doc_tokens=11),
    "pack, short rows": lambda s: s.pack(SEQ_LEN, strategy="one_doc", min_row_len=4),
    "pack, stride": lambda s: s.pack(SEQ_LEN, stride=2),
    "pack, sequential": lambda s: s.pack(SEQ_LEN, strategy="sequential"),
    "splice": lambda s: s.splice(SEQ_LEN, content_length=5),
    "splice, epochs": lambda s: s.splice(SEQ_LEN, content_length=3, content_stride=4).epochs(3),
    "splice, anchor": lambda s: s.splice(
        SEQ_LEN, content_start_mode="anchor_start", content_length=6
    ),
    "splice, whole": lambda s: s.splice(SEQ_LEN, content_length=9, adaptive_k=False, mode="slide"),
    "splice, clip and pack": lambda s: s.splice(
        SEQ_LEN, content_length=4, edge="clip", fill="pack"
    ),
    "select": lambda s: s.select(num_docs=9, doc_select_mode="longest").windows(SEQ_LEN),
    "split": lambda s: s.split({"a": 0.7, "b": 0.3})["a"].pack(SEQ_LEN),
    "take": lambda s: s.pack(SEQ_LEN).shuffle().take(11),
    "epochs": lambda s: s.windows(SEQ_LEN).shuffle().epochs(3),
    "quarantine": lambda s: s.pack(SEQ_LEN).shuffle().edit(at=0, quarantine=[("main", 7)]),
}


def mixes(folder: Path) -> dict[str, tl.Dataset]:
    """Runs of several sources."""
    a, b, c = (
        store_of(folder / name, seed, count)
        for name, seed, count in (("a", 1, 40), ("b", 2, 30), ("c", 3, 8))
    )
    sources = {
        "a": a.windows(SEQ_LEN).shuffle(),
        "b": b.pack(SEQ_LEN, overflow="truncate").shuffle(),
        "c": c.pack(SEQ_LEN, strategy="greedy"),
    }
    return {
        "mix": tl.mix(sources, weights={"a": 3, "b": 2, "c": 0.5}),
        "mix, take": tl.mix(sources, weights={"a": 3, "b": 2, "c": 0.5}).take(23),
        "mix, shuffled": tl.mix(sources, stop="all_exhausted").shuffle(),
    }


def covered(run: tl.Dataset, number: int, epochs: int) -> int:
    """Tokens of a source that some row of its first epochs holds, counted one by one."""
    layout = run.run.sources[number].layout
    documents, edges = layout.line.bounds(0, layout.line.documents)
    held = {
        one: np.zeros(size, bool)
        for one, size in zip(documents.tolist(), np.diff(edges), strict=True)
    }
    for epoch in range(epochs):
        rows = int(layout.phases.rows[layout.phases.of(epoch)])
        spans = layout.spans(epoch, np.arange(rows))
        for one, start, length in zip(spans.document, spans.start, spans.length, strict=True):
            held[int(one)][start : start + length] = True
    return sum(int(one.sum()) for one in held.values())


def shown(run: tl.Dataset, examples: int) -> tuple[dict[str, set], dict[str, set], int]:
    """Rows and documents by source that the first examples show, and cells that hold filler."""
    rows, documents = defaultdict(set), defaultdict(set)
    if not examples:
        return rows, documents, 0
    batch = run.batch(range(examples))
    names, _ = run.picked(range(examples))
    _, row = run.locate(range(examples))
    for frame, (name, number) in enumerate(zip(names, row.tolist(), strict=True)):
        rows[name].add(number)
        spans = batch.spans.frames(frame, frame + 1)
        inside = (spans.length > 0) & (spans.at < run.seq_len)
        documents[name] |= set(spans.document[inside].tolist())
    return rows, documents, int((batch.segment_ids == 0).sum())
