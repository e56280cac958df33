"""Small stores of known documents."""

import functools

import pytest

import tokenloom as tl


@pytest.fixture
def store_of(tmp_path):
    """Builds a store from lists of ids: `store_of([[1, 2, 3], [], [4, 5]])`.

    Options are those of `tl.build`; `more=[{"id": "a"}, …]` adds columns to the records.
    """
    count = iter(range(1_000_000))

    def make(documents, *, more=None, **options):
        records = [{"input_ids": list(ids)} for ids in documents]
        for record, extra in zip(records, more or [], strict=False):
            record.update(extra)
        options = {"tokenizer": None, "vocab_size": 1000, "progress": False} | options
        return tl.build(records, tmp_path / f"store-{next(count)}", **options)

    return make


@pytest.fixture(scope="session")
def shared_store_of(tmp_path_factory):
    """Opens a store of documents that are built once a session: `shared_store_of([1, 2], [3])`.

    For tests that only read.
    """
    folder = tmp_path_factory.mktemp("shared")
    count = iter(range(1_000_000))

    @functools.cache
    def path_of(documents):
        path = folder / str(next(count))
        records = [{"input_ids": list(ids)} for ids in documents]
        tl.build(records, path, tokenizer=None, vocab_size=1000, progress=False)
        return path

    def make(*documents):
        return tl.open(path_of(tuple(map(tuple, documents))))

    return make
