"""`blame` finds planted documents, and nobody where nobody was planted."""

import json

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl
from tokenloom import blame
from tokenloom.errors import ConfigError
from tokenloom.testing import write_store

DOCUMENTS, SEQ_LEN = 10_000, 32


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """10,000 documents of 8 to 40 tokens."""
    root = tmp_path_factory.mktemp("blamed")
    rng = np.random.Generator(np.random.PCG64(5))
    lengths = rng.integers(8, 41, DOCUMENTS).tolist()
    documents = [rng.integers(1, 1000, n).tolist() for n in lengths]
    write_store(root, [documents], vocab_size=1000, inner=512, chunk_tokens=2048)
    return tl.open(root)


def noise(shape, seed):
    return np.random.Generator(np.random.PCG64(seed)).normal(0, 0.3, shape)


def trend(steps):
    """A loss that falls while the run trains."""
    return 3 + 2 * np.exp(-np.arange(steps) / 100)


def holds(run, rows, planted):
    """The share of each row's tokens that planted documents have, by walking the spans."""
    spans = run.spans(rows)
    found = np.zeros(len(rows))
    for row, document, length in zip(
        spans.row.tolist(), spans.document.tolist(), spans.length.tolist(), strict=True
    ):
        found[row] += (document in planted) * length
    whole = np.bincount(spans.row, spans.length, len(rows))
    return found / whole


PLANTED = (("main", 77), ("main", 4321), ("main", 9876))
NUMBERS = {77, 4321, 9876}


@pytest.mark.filterwarnings("ignore:edit.quarantine")
def test_three_planted_documents_among_ten_thousand_are_found_from_row_losses(store):
    run = store.pack(SEQ_LEN).shuffle().epochs(3).seed(2)
    size = 16
    steps = len(run) // size
    share = holds(run, np.arange(steps * size), NUMBERS).reshape(steps, size)
    losses = trend(steps)[:, None] + noise((steps, size), 1) + 4 * share
    found = blame(run, losses, batch_size=size)
    same = {(s, d) for one in found.documents for s, d, _ in one.same}
    assert set(PLANTED) <= set(found.named) | same
    assert len(found.named) == 3
    for one in found.documents[:3]:
        assert abs(one.effect - 4) < 4 * one.error
    edited = eval(found.edit, {"run": run})  # noqa: S307 - our own words, as a user pastes them
    assert {document for _, document in edited.edits[0].quarantine} >= NUMBERS
    assert json.loads(json.dumps(found.to_dict()))["per"] == "row"


def test_planted_documents_that_repeat_are_found_from_step_losses(store):
    """A step of 32 rows says little about one of them; thirty of them say enough."""
    run = store.pack(64, strategy="one_doc").shuffle().epochs(30).seed(4)
    size = 32
    steps = len(run) // size
    rows = np.arange(steps * size)
    share = holds(run, rows, NUMBERS).reshape(steps, size)
    losses = trend(steps) + noise((steps, size), 2).mean(axis=1) + 4 * share.mean(axis=1)
    found = blame(run, losses, batch_size=size)
    assert found.per == "step"
    assert set(found.named) == set(PLANTED)
    for one in found.documents[:3]:
        assert one.shown in (29, 30)
        assert 1 <= one.needed < 30


def test_the_rows_of_a_step_are_in_the_order_of_the_loader(store):
    """With lanes they are sorted, so row losses must be matched with the sorted rows."""
    run = store.windows(SEQ_LEN).block_shuffle(window_blocks=2, lanes=4).epochs(4).seed(1)
    size = 16
    with tl.Loader(run, size) as loader:
        losses = [3 + 4 * holds(run, batch.index, NUMBERS) for batch in loader]
    values = np.array(losses) + noise((len(losses), size), 7)
    assert len(blame(run, values, batch_size=size).named) == 3
    # the control: rows in order of index, as if they had not been sorted
    begin = np.arange(len(losses) * size)
    assert not NUMBERS & {one for _, one in blame(run, values.reshape(-1), index=begin).named}


def test_a_control_with_no_planted_document_names_nobody(store):
    """Six runs at 5 %: more than two with a name would come once in five hundred times."""
    run = store.windows(SEQ_LEN).shuffle().epochs(2).seed(9)
    size = 16
    steps = len(run) // size
    guilty = 0
    for seed in range(6):
        losses = np.random.Generator(np.random.PCG64(seed)).exponential(0.5, (steps, size))
        found = blame(run, trend(steps)[:, None] + losses, batch_size=size, false_positives=0.05)
        guilty += bool(found.named)
        assert (found.edit == "") == (not found.named)
    assert guilty <= 2


def test_the_documents_of_a_hard_source_are_not_blamed(store):
    sources = {"easy": store.windows(SEQ_LEN).shuffle(), "hard": store.windows(SEQ_LEN).shuffle()}
    run = tl.mix(sources, weights={"easy": 4, "hard": 1}, rule="weights").seed(1).take(16_000)
    source = np.array(run.picked(np.arange(16_000))[0]).reshape(1000, 16)
    losses = 3 + noise((1000, 16), 1) + 2.0 * (source == "hard")
    found = blame(run, losses, batch_size=16)
    assert found.named == ()
    above = {one.source: one.above for one in found.sources}
    assert above["hard"] - above["easy"] == pytest.approx(2, abs=0.05)


def test_losses_of_tokens_blame_documents_and_not_short_ones_for_being_short(store):
    run = store.pack(SEQ_LEN).shuffle().seed(6)
    rows = np.arange(3000)
    spans = run.spans(rows)
    losses = np.full((3000, SEQ_LEN), np.nan)
    planted = spans.document[[40, 900]].tolist()
    clean = losses.copy()
    columns = (spans.row, spans.document, spans.length, spans.at)
    for row, document, length, at in zip(*(c.tolist() for c in columns), strict=True):
        easy = 3 / (1 + np.arange(length)) + 2  # the first tokens of a document are hard
        clean[row, at : at + length] = easy
        losses[row, at : at + length] = easy + 3 * (document in planted)
    found = blame(run, losses + noise(losses.shape, 8), index=rows)
    assert found.per == "token"
    assert {document for _, document in found.named} == set(planted)
    assert found.documents[0].effect == pytest.approx(3, abs=0.4)
    assert blame(run, clean + noise(losses.shape, 8), index=rows).named == ()


def test_steps_that_spike_are_listed_and_losses_that_are_not_finite_are_left_out(store):
    run = store.windows(SEQ_LEN).shuffle().epochs(2)
    losses = trend(500) + noise(500, 1) / 10
    losses[[100, 317]] += (9, 2)
    losses[[7, 9]] = np.inf, np.nan
    found = blame(run, losses, batch_size=16)
    assert {one.step: one.loss for one in found.spikes} == {100: losses[100], 317: losses[317]}
    assert found.losses == 498


def test_losses_that_do_not_fit_are_refused(store):
    run = store.windows(SEQ_LEN).shuffle()
    refused(lambda: blame(run, [1.0, 2.0]), ConfigError, "batch_size")
    refused(lambda: blame(run, np.ones((10, 3)), batch_size=16), ConfigError, "(10, 3)")
    refused(lambda: blame(run, np.ones(2), index=[1, 10**9]), IndexError, 10**9)
