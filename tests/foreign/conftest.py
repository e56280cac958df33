"""Files of other formats and a tokenloom store with the same documents."""

import pytest
from everyformat import EVERY
from foreignfiles import some_documents

import tokenloom as tl
from tokenloom.testing import tiny, write_store


@pytest.fixture
def copied(tmp_path):
    """Opens the files of a format, and a tokenloom store with the same documents.

    Shards of both are small, so that every border is met.
    """
    with tiny(foreign_shard_tokens=200):

        def make(name):
            folder = tmp_path / "files"
            folder.mkdir()
            path, said, expected = EVERY[name](folder, some_documents())
            third = len(expected) // 3
            write_store(tmp_path / "own", [expected[:third], expected[third:]])
            own = tl.open(tmp_path / "own", cache_bytes=1 << 20)
            return tl.open(path, vocab_size=1000, cache_bytes=1 << 20, **said), own, expected

        yield make
