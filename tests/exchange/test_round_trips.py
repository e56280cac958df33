"""What is exported opens again with the digest of the store it came from."""

import json
from pathlib import Path

import pytest
from everyformat import EVERY
from exports import COLUMNS, same
from foreignfiles import EOT
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import quick_folder
from toystore import toy

import tokenloom as tl
from tokenloom.exchange import convert, export

CACHES = Path(__file__).parents[1] / "golden/levanter_caches"


# with the delimiter among them, as the last, as the first, alone
WITH_EOT = st.lists(st.integers(0, EOT) | st.just(EOT), max_size=12)

# as docs/stores.md has it: what has no place for empty documents, or for its delimiter inside one
NO_EMPTY, NO_EOT = ("llm.c", "flat", "npy", "OLMo", "mds"), ("llm.c", "flat", "npy")


@settings(max_examples=4)
@given(documents=st.lists(WITH_EOT, min_size=4, max_size=14))
@pytest.mark.parametrize("name", sorted(EVERY))
def test_every_format_has_one_digest_for_what_it_holds(name, documents):
    documents = [[1, EOT, 2], *documents, [EOT], [3]]
    with quick_folder() as folder:
        (folder / "files").mkdir()
        path, said, expected = EVERY[name](folder / "files", documents)
        if not name.startswith(NO_EOT):
            assert expected == [one for one in documents if one or not name.startswith(NO_EMPTY)]
        store = tl.open(path, vocab_size=EOT + 1, **said)
        columns = {one: COLUMNS[one] for one in store.columns}
        half = len(expected) // 2
        shards = [expected[:half], expected[half:]]
        own = toy(folder / "own", shards, vocab_size=EOT + 1, columns=columns)
        assert store.columns == own.columns
        assert same(store.documents(range(len(store))), expected)
        for column in columns:
            every = range(len(store))
            assert same(store.documents(every, column), own.documents(every, column))
        assert store.digest == own.digest
        assert convert(store, folder / "copy", progress=False).digest == own.digest


@pytest.mark.parametrize("name", ["chat_two_leaves", "prebuilt_weights"])
def test_an_export_of_a_cache_that_levanter_wrote_is_laid_out_as_it_was(tmp_path, name):
    theirs = CACHES / name
    store = tl.open(theirs)
    export(store, tmp_path / "ours", to="levanter")
    again = tl.open(tmp_path / "ours")
    assert again.digest == store.digest
    for path in theirs.rglob("zarr.json"):
        ours = tmp_path / "ours" / path.relative_to(theirs)
        assert json.loads(ours.read_text()) == json.loads(path.read_text()), path
    ledgers = [
        json.loads((one / "shard_ledger.json").read_text()) for one in (theirs, ours.parents[2])
    ]
    assert ledgers[0].keys() == ledgers[1].keys()
    assert ledgers[0]["total_num_rows"] == ledgers[1]["total_num_rows"]
