"""Ruling 17: what the digest leaves out decides no order.

The same documents in other shards, of another dtype, by other workers, built at once or appended:
one digest, and the same rows in the same order for every layout and every shuffle.
"""

import json

import numpy as np
import pytest
from crashdisk import mix
from kit import QUICK, quick_folder

import tokenloom as tl

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

OPTIONS = {"inner": 64, "chunk_tokens": 256, "files": QUICK, "block_bytes": 4000}


def texts():
    return ["x" * (mix(i) % 90) + str(i) for i in range(300)]


@pytest.fixture(scope="module")
def copies():
    """Name → a store of the same documents."""
    with quick_folder() as folder:
        lines = [json.dumps({"text": text, "id": f"d{i}"}) for i, text in enumerate(texts())]
        whole, half, rest = (folder / f"{name}.jsonl" for name in ("whole", "half", "rest"))
        whole.write_text("\n".join(lines))
        half.write_text("\n".join(lines[:170]))
        rest.write_text("\n".join(lines[170:]))

        def build(name, inputs=whole, **options):
            settings = {"tokenizer": "bytes", **OPTIONS, **options}
            return tl.build(str(inputs), folder / name, **settings)

        made = {
            "one shard": build("one"),
            "many shards": build("many", shard_tokens=700),
            "odd shards": build("odd", shard_tokens=1111),
            "uint32": build("wide", vocab_size=100_000, shard_tokens=3000),
            "two workers": build("two", workers=2, shard_tokens=900),
            "three workers": build("three", workers=3),
            "other checksums": build("inner", inner=16),
        }
        build("grown", half, shard_tokens=1000)
        made["grown"] = build("grown", rest, append=True)
        yield made


def test_copies_differ_in_everything_but_their_digest(copies):
    assert len({store.digest for store in copies.values()}) == 1
    assert len({len(store.reader.manifest.shards) for store in copies.values()}) > 3
    assert {store.dtype.name for store in copies.values()} == {"uint16", "uint32"}
    assert len({store.manifest_sha256 for store in copies.values()}) > 5


LAYOUTS = {
    "windows": lambda s: s.windows(32),
    "windows, kept tail": lambda s: s.windows(30, tail="keep", lookahead=True, overlap=1),
    "windows, aligned": lambda s: s.windows(30, align=True),
    "windows, aligned to 100": lambda s: s.windows(7, align=100),
    "pack": lambda s: s.pack(64),
    "pack in groups": lambda s: s.pack(64, group_docs=40, strategy="first_fit"),
    "sequential": lambda s: s.pack(64, strategy="sequential"),
    "splice": lambda s: s.select(num_docs=9).splice(64, content_length=16),
    "random choice": lambda s: s.select(num_docs=50, doc_select_mode="random").windows(16),
    "split by id": lambda s: s.split({"a": 0.5, "b": 0.5})["a"].windows(16, align=64),
    "split by content": lambda s: s.split({"a": 0.5, "b": 0.5}, by="content")["b"].pack(64),
}

SHUFFLES = {
    "as stored": lambda d: d,
    "full": lambda d: d.shuffle(),
    "era": lambda d: d.era_shuffle(7),
    "block": lambda d: d.block_shuffle(window_blocks=2),
    "lanes": lambda d: d.block_shuffle(window_blocks=2, lanes=3),
}


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_copy_has_the_same_rows_in_the_same_order(copies, layout, shuffle):
    runs = {
        name: SHUFFLES[shuffle](LAYOUTS[layout](store)).epochs(2).seed(5)
        for name, store in copies.items()
    }
    first = runs["one shard"]
    every = np.arange(len(first))
    assert len(every) > 20
    expected = first.spans(every)
    for name, run in runs.items():
        assert len(run) == len(first), name
        assert run.fingerprint == first.fingerprint, name
        found = run.spans(every)
        for field in ("frame", "document", "start", "length", "at", "flags"):
            assert getattr(found, field).tolist() == getattr(expected, field).tolist(), name
    some = runs["many shards"].batch(every[:50]).tokens
    np.testing.assert_array_equal(some, first.batch(every[:50]).tokens)
