"""What must not grow: memory with the corpus, opening with the documents."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toystore import write_store

from tokenloom.store import format as fmt
from tokenloom.store.files import LOCAL
from tokenloom.store.writer import publish_manifest
from tokenloom.testing.stores import first_manifest


def peak_kib(code: str) -> list[int]:
    """VmHWM wherever the code prints it."""
    prelude = (
        "def peak():\n"
        "    lines = open('/proc/self/status').read().splitlines()\n"
        "    print(*[line.split()[1] for line in lines if line.startswith('VmHWM')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", prelude + code], capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


def test_opening_reads_no_offset_however_many_documents_there_are(tmp_path):
    """10^8 documents in 763 shards of holes: one manifest, one stat per file, little memory."""
    manifest = write_store(tmp_path / "real", [[[1]]]).reader.manifest
    documents, shards = 131_072, 763
    chunks = -(-(documents + 1) // fmt.INNER)
    size = chunks * fmt.INNER * 4 + chunks * 16 + 4
    model = manifest.shards[0]
    entries = []
    for number in range(shards):
        name = fmt.shard_name(number)
        (tmp_path / "big" / name / "offsets/c").mkdir(parents=True)
        path = tmp_path / "big" / name / "offsets/c/0"
        path.touch()
        os.truncate(path, size)
        entries.append(
            fmt.ShardEntry(
                name=name,
                documents=documents,
                tokens=documents * 1000,
                sha256=model.sha256,
                files={"offsets/c/0": size},
            )
        )
    publish_manifest(LOCAL, tmp_path / "big", first_manifest(entries, vocab_size=1000))
    code = f"""
import tokenloom as tl
peak()
store = tl.open({str(tmp_path / "big")!r})
assert store.num_documents == {documents * shards}
assert store.index_reads.bytes == store.reads.bytes == 0
peak()
"""
    before, after = peak_kib(code)
    assert after - before < 100 * 1024


@pytest.mark.parametrize("by", ["id", "content"])
def test_a_split_of_eight_million_documents_takes_little_more_than_its_lists(tmp_path, by):
    """8 bytes for the number of each document in its part, and one for the part."""
    documents = 64 * 131_072
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1] / "shared")!r})
from pathlib import Path
from virtual import VirtualStore
import tokenloom as tl
virtual = VirtualStore([(131_072, 1 << 18)] * 64)
root = virtual.write_manifest(Path({str(tmp_path / "s")!r}))
store = tl.open(root, source=virtual, verify="never", cache_bytes=1 << 20)
peak()
parts = store.split({{"train": 0.9, "eval": 0.1}}, by={by!r})
assert sum(len(part.indices) for part in parts.values()) == {documents}
peak()
"""
    before, after = peak_kib(code)
    assert 8 * documents < (after - before) * 1024 < 14 * documents
