"""The report says how many rows hold several documents from all of its rows."""

import re

import pytest

import tokenloom as tl
from tokenloom.report import report_on
from tokenloom.testing import write_store

S = 16

# rows of an epoch: 9,000 of one document, with 300 of two documents in the middle
WHOLE, HALVES = 9_000, 300

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("boundaries") / "store"
    documents = [[1] * S] * (WHOLE // 2) + [[2] * (S // 2)] * (2 * HALVES)
    write_store(folder, [documents + [[3] * S] * (WHOLE // 2)])
    return tl.open(folder)


def boundaries(run):
    (figure,) = (one for one in report_on(run, batch_size=4).figures if one.name == "boundaries")
    return figure


def pairs(cells):
    return cells * (cells + 1) // 2


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("layout", ["windows", "pack"])
def test_the_share_between_documents_is_that_of_all_rows(store, layout, epochs):
    run = getattr(store, layout)(S).shuffle().epochs(epochs)
    message = boundaries(run).message
    between = HALVES * (pairs(S) - 2 * pairs(S // 2))
    share = 100 * between / ((WHOLE + HALVES) * pairs(S))
    assert f"{share:.1f} %" in message
    assert f"{epochs * (WHOLE + HALVES):,} rows" in message


def test_sources_of_a_mix_count_by_the_rows_that_they_give(store):
    """No row of "whole" holds two documents; a third of the run's rows are those of "parts"."""
    whole = store.select(num_docs=WHOLE, min_doc_length=S).windows(S).shuffle()
    parts = store.select(num_docs=2 * HALVES, max_doc_length=S // 2).windows(S)
    run = tl.mix({"whole": whole, "parts": parts}, rule="weights", weights={"whole": 2})
    share = 100 / 3 * (1 - 2 * pairs(S // 2) / pairs(S))
    found = re.search(r"([\d.]+) % (of the attention pairs would|over)", boundaries(run).message)
    assert float(found[1]) == pytest.approx(share, abs=0.2)


def test_a_long_run_is_judged_by_a_sample_of_an_epoch(tmp_path):
    documents = [[1] * S, [2] * (S // 2), [3] * (S // 2)] * 30_000
    write_store(tmp_path / "s", [documents])
    found = boundaries(tl.open(tmp_path / "s").windows(S).shuffle().epochs(2))
    wanted = 50 * (1 - 2 * pairs(S // 2) / pairs(S))
    (share,) = re.findall(r"([\d.]+) % over \d+ rows|Over \d+ rows, ([\d.]+) %", found.message)
    assert float(share[0] or share[1]) == pytest.approx(wanted, abs=6)
    assert any("drawn by a key" in note for note in found.notes)
