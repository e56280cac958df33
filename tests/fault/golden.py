"""The golden store: how it is made. Run this file to make it again after a wanted change of format.

It has no Parquet file, whose bytes are those of a library version: the documents are kept as JSON
lines, as on a machine without pyarrow, and the producer is a fixed word.
"""

import contextlib
import shutil
from pathlib import Path

import tokenloom as tl
from tokenloom import version
from tokenloom.store import metadata

PATH = Path(__file__).parent.parent / "golden" / "store-v2"
TEXTS = ["a loom", "", "weaves", "Zürich, 東京", "\x00\n\x7f", "end to end " * 4]
MORE = ["appended", "twice"]
OPTIONS = {
    "tokenizer": "bytes",
    "ids_key": "input_ids",
    "inner": 16,
    "shard_tokens": 40,
    "chunk_tokens": 32,
}


@contextlib.contextmanager
def plain_machine():
    """A machine without pyarrow, and a version that never changes."""
    before = metadata.have_pyarrow, version.__version__
    metadata.have_pyarrow, version.__version__ = lambda: False, "golden"
    try:
        yield
    finally:
        metadata.have_pyarrow, version.__version__ = before


def tokens(text: str) -> dict[str, list[int]]:
    ids = list(text.encode())
    return {"input_ids": ids, "loss_mask": [int(one > 100) for one in ids]}


def make(path: Path) -> None:
    with plain_machine():
        known = [{"id": f"doc-{i}", "n": i, "even": i % 2 == 0} for i in range(len(TEXTS))]
        rows = [tokens(text) | more for text, more in zip(TEXTS, known, strict=True)]
        tl.build(rows, path, **OPTIONS)
        tl.build([tokens(text) for text in MORE], path, append=True, **OPTIONS)
    (path / ".lock").unlink()


if __name__ == "__main__":
    shutil.rmtree(PATH, ignore_errors=True)
    PATH.parent.mkdir(exist_ok=True)
    make(PATH)
    store = tl.open(PATH)
    print(store.digest, store.manifest_sha256, tl.open(PATH, snapshot=1).digest)
