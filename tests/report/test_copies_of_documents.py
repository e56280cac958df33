"""What the report says about documents that are there twice, and what it says lists them."""

import pytest

import tokenloom as tl
from tokenloom.report import report_on
from tokenloom.testing import write_store

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def store_of(tmp_path):
    def make(name, *texts):
        records = [{"text": text} for text in texts]
        return tl.build(records, tmp_path / name, tokenizer="bytes", progress=False)

    return make


def warnings_about_copies(run):
    """(words, remedy) of each warning about equal documents."""
    cautions = report_on(run, batch_size=1).cautions
    return [(one.words, one.remedy) for one in cautions if " another " in one.words]


def listed(remedy, *stores):
    """How many copies the call that the remedy names finds, in all these stores together."""
    if "store.duplicates()" in remedy:
        groups = [group for store in stores for group in store.duplicates()]
        with_tokens = (g for s in stores for g in s.duplicates() if s.lengths[g[0]])
        assert groups
        return sum(len(group) - 1 for group in with_tokens)
    assert "document_hashes(range(store.num_documents))" in remedy
    hashes = [set(store.document_hashes(range(store.num_documents))) for store in stores]
    return sum(map(len, hashes)) - len(set.union(*hashes))


def test_both_kinds_are_two_warnings(store_of):
    a, b = store_of("a", "aaaa", "aaaa", "bbbb"), store_of("b", "bbbb")
    run = tl.mix({"left": a.windows(2).shuffle(), "right": b.windows(2).shuffle()})
    within, across = warnings_about_copies(run)
    assert "1 document of 4" in within[0]
    assert listed(within[1], a) == 1
    assert "1 document of 4" in across[0]
    assert listed(across[1], a, b) == 1


def test_only_selected_documents_count(store_of):
    a, b = store_of("a", "aaaa", "bbbb", "aaaa"), store_of("b", "bbbb")
    pair = {"left": a.select(doc_index=[0, 1]).windows(2), "right": b.windows(2)}
    ((words, _),) = warnings_about_copies(tl.mix(pair))
    assert "1 document of 3" in words
    assert "another store" in words
    assert not warnings_about_copies(a.select(doc_index=[0, 1]).windows(2))


@pytest.mark.parametrize(("documents", "warned"), [(1_000, True), (270_000, False)])
def test_hashes_of_very_many_documents_are_not_read_for_a_page(tmp_path, documents, warned):
    write_store(tmp_path / "s", [[[1, 2]] * documents])
    store = tl.open(tmp_path / "s")
    assert bool(warnings_about_copies(store.windows(64).shuffle())) == warned
