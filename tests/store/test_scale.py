"""What must not grow: memory with the corpus, opening with the documents."""

import subprocess
import sys
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[1] / "shared"


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


def virtual(tmp_path, shards):
    """Code that opens a store whose bytes are made up when they are asked for."""
    return f"""
import sys
sys.path.insert(0, {str(SHARED)!r})
from pathlib import Path
from virtual import VirtualStore
import tokenloom as tl
virtual = VirtualStore({shards!r})
root = virtual.write_manifest(Path({str(tmp_path / "s")!r}))
peak()
store = tl.open(root, source=virtual, verify="never", cache_bytes=1 << 20)
"""


def test_opening_reads_no_offset_however_many_documents_there_are(tmp_path):
    """10^8 documents in 763 shards: one manifest, little memory."""
    shards = [(131_072, 131_072_000)] * 763
    code = f"""
assert store.num_documents == {131_072 * 763}
assert store.index_reads.bytes == store.reads.bytes == 0
peak()
"""
    before, after = peak_kib(virtual(tmp_path, shards) + code)
    assert after - before < 100 * 1024


@pytest.mark.parametrize("by", ["id", "content"])
def test_a_split_of_eight_million_documents_takes_little_more_than_its_lists(tmp_path, by):
    """8 bytes for the number of each document in its part, and one for the part."""
    documents = 64 * 131_072
    code = f"""
parts = store.split({{"train": 0.9, "eval": 0.1}}, by={by!r})
assert sum(len(part.indices) for part in parts.values()) == {documents}
peak()
"""
    before, after = peak_kib(virtual(tmp_path, [(131_072, 1 << 18)] * 64) + code)
    assert 8 * documents < (after - before) * 1024 < 14 * documents
