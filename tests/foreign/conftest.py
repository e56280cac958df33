"""Foreign files and a store of ours with the same documents."""

import pytest
from everyformat import EVERY
from foreignfiles import some_documents
from toystore import write_store

import tokenloom as tl
from tokenloom.store import format as fmt
from tokenloom.testing import tiny

VOCAB = 1000


@pytest.fixture
def copied(tmp_path):
    """Opens the files of a format, and a store of ours with the same documents.

    Shards of both are small, so that every border is met.
    """
    with tiny(foreign_shard_tokens=200):

        def make(name, documents=None, **said):
            folder = tmp_path / "files"
            folder.mkdir()
            path, told, expected = EVERY[name](folder, documents or some_documents())
            third = len(expected) // 3
            shards = [expected[:third], expected[third:]]
            write_store(tmp_path / "own", shards, vocab_size=VOCAB, chunk_tokens=fmt.CHUNK_TOKENS)
            own = tl.open(tmp_path / "own", cache_bytes=1 << 20)
            said = {"vocab_size": VOCAB, "cache_bytes": 1 << 20, **told, **said}
            return tl.open(path, **said), own, expected

        yield make
