"""Copies of a store have one order: nothing that its digest leaves out decides anything.

Ruling 17: copies differ in shard cuts, dtype, workers, stretches and appends, and every layout
under every shuffle must give them the same spans, at the same index, on the same rank.
"""

import hashlib

import numpy as np
import pytest
from toystore import write_store

import tokenloom as tl
from tokenloom.layout.blocks import Blocks
from tokenloom.layout.splice import rows as spliced
from tokenloom.layout.windows import Windows

pytestmark = pytest.mark.filterwarnings("ignore:seq_len", "ignore:block_shuffle", "ignore:splice")

CHUNK = 32
TEXTS = [chr(97 + n % 26) * (n * 37 % 41) for n in range(60)]
SPLICE = {"content_length": 6}
LAYOUTS = {
    "windows": lambda docs: docs.windows(7),
    "windows, tail and label": lambda docs: docs.windows(8, tail="keep", lookahead=True),
    "windows, aligned": lambda docs: docs.windows(7, align=True),
    "windows, aligned to 50": lambda docs: docs.windows(7, align=50),
    "pack": lambda docs: docs.pack(16, group_docs=7),
    "pack, sequential": lambda docs: docs.pack(16, strategy="sequential", group_tokens=100),
    "pack, shuffled": lambda docs: docs.pack(16, shuffle_output=True, group_docs=11),
    "splice": lambda docs: docs.splice(16, **SPLICE),
    "splice, relative": lambda docs: docs.splice(16, position_scheme="relative", **SPLICE),
    "splice, jitter": lambda docs: docs.splice(16, offset_jitter=3, alpha=0.8, **SPLICE),
}
SHUFFLES = {
    "stored": lambda ds: ds,
    "full": lambda ds: ds.shuffle(),
    "era": lambda ds: ds.shuffle(9),
    "levanter": lambda ds: ds.shuffle(perm_type="levanter"),
    "block": lambda ds: ds.block_shuffle(),
    "block of 3": lambda ds: ds.block_shuffle(io_block_size=3, window_blocks=2),
    "large units": lambda ds: ds.block_shuffle(shuffle_block_size=8, window_blocks=2),
    "lanes": lambda ds: ds.block_shuffle(lanes=3, window_blocks=2),
}
CHOICES = {
    "all": lambda store: store,
    "some": lambda store: store.select(num_docs=40, doc_select_mode="random", seed=3),
    "half": lambda store: store.split({"a": 0.5, "b": 0.5}, by="content")["a"],
}


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    root = tmp_path_factory.mktemp("copies")
    records = [{"text": text} for text in TEXTS]
    options = {"tokenizer": "bytes", "chunk_tokens": CHUNK, "duplicates": "allow"}
    tl.build(records, root / "built", **options)
    tl.build(records, root / "workers", workers=2, shard_tokens=64, block_bytes=200, **options)
    tl.build(records[:23], root / "appended", shard_tokens=100, **options)
    tl.build(records[23:], root / "appended", append=True, shard_tokens=100, **options)
    tl.build(records, root / "stretched", stretches=13, **options)
    documents = [list(text.encode()) for text in TEXTS]
    shards = [documents[n : n + 7] for n in range(0, 60, 7)]
    write_store(root / "uint32", shards, vocab_size=10**6, chunk_tokens=CHUNK, inner=4)
    return {path.name: tl.open(path) for path in sorted(root.iterdir())}


def plan_digest(run, n):
    """Ruling 45: the spans of every example, and which rank would get it."""
    found = hashlib.sha256()
    for first in range(0, n, 512):
        wanted = np.arange(first, min(first + 512, n))
        spans = run.spans(wanted)
        epoch, row = run.locate(wanted)
        columns = [spans.frame, spans.source, spans.document, spans.start, spans.length]
        for column in (*columns, spans.at, spans.flags, spans.seen, epoch, row):
            found.update(np.ascontiguousarray(column, "<i8").tobytes())
        if run.run.lanes > 1:
            found.update(np.ascontiguousarray(run.run.fractions(wanted), "<f8").tobytes())
    return found.hexdigest()


def digests(copies, make):
    runs = {name: make(store) for name, store in copies.items()}
    return {
        (plan_digest(run, min(len(run), 700)), len(run), run.fingerprint, run.render_fingerprint)
        for run in runs.values()
    }


def test_the_copies_are_copies_and_differ(copies):
    assert len(copies) == 5
    assert len({store.digest for store in copies.values()}) == 1
    assert {store.dtype.name for store in copies.values()} == {"uint16", "uint32"}
    assert len({len(store.reader.manifest.shards) for store in copies.values()}) >= 4


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_shuffle_has_one_plan_for_all_copies(copies, monkeypatch, layout, shuffle):
    monkeypatch.setattr(spliced, "BLOCK_TOKENS", 200)
    choices = CHOICES.values() if shuffle == "full" else [CHOICES["all"]]
    for choose in choices:

        def make(store, choose=choose):
            return SHUFFLES[shuffle](LAYOUTS[layout](choose(store))).epochs(2).seed(5)

        assert len(digests(copies, make)) == 1


def test_a_mix_of_copies_has_one_plan(copies):
    def make(store):
        sources = {name: LAYOUTS[name](store).shuffle() for name in ("pack", "splice")}
        return tl.mix(sources, weights={"pack": 2}).seed(1)

    assert len(digests(copies, make)) == 1


def test_a_block_that_ends_with_its_shard_is_noticed(copies, monkeypatch):
    """A control: the way it was, which only the digest told apart."""

    def by_shard(self, phase=0):
        tokens = [shard.tokens for shard in self.line.reader.manifest.shards]
        starts = np.cumsum([0, *tokens]) // self.spec.step
        return Blocks.cut(np.unique(np.minimum(np.append(starts, self._rows), self._rows)))

    monkeypatch.setattr(Windows, "blocks", by_shard)
    make = lambda store: store.windows(7, align=True).block_shuffle(window_blocks=2)  # noqa: E731
    assert len(digests(copies, make)) > 1
