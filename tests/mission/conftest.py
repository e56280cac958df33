"""Small stores of known documents."""

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
