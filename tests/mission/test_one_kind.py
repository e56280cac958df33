"""One kind of run: what a dataset of one source can do, a mix can, and the other way round."""

import json

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl
from tokenloom.testing import assert_elastic, assert_exactly_once, assert_resumable

SEQ_LEN = 8

ARRAYS = ("tokens", "labels", "loss_mask", "segment_ids", "position_ids", "attention_mask", "index")


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    texts = [{"text": chr(97 + i % 26) * (3 + 5 * i % 17)} for i in range(30)]
    a = tl.build(texts, folder / "a", tokenizer="bytes", progress=False)
    b = tl.build(texts[:9], folder / "b", tokenizer="bytes", progress=False)
    return a, b


def members(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def runs(stores):
    a, b = stores
    alone = a.pack(SEQ_LEN).shuffle().seed(3)
    mixed = tl.mix({"a": a.pack(SEQ_LEN).shuffle(), "b": b.windows(SEQ_LEN)}).seed(3)
    return {
        "alone": alone,
        "mix": mixed,
        "mix of one": tl.mix({"a": a.pack(SEQ_LEN)}),
        "edited alone": a.windows(SEQ_LEN).shuffle().edit(at=5, quarantine=[("main", 7)]),
        "edited mix": mixed.edit(at=5, weights={"b": 3}),
    }


def test_every_public_attribute_of_one_is_there_for_the_other(stores):
    every = runs(stores)
    wanted = members(every["alone"])
    assert {"sources", "rule", "edits", "edit", "picked", "index"} <= wanted
    for name, run in every.items():
        assert members(run) == wanted, name
        for member in wanted:
            getattr(run, member)  # none raises


def test_descriptions_come_back_as_they_were(stores):
    for name, run in runs(stores).items():
        told = json.loads(json.dumps(run.describe()))
        again = tl.from_config(told)
        assert again.describe() == run.describe(), name
        assert again.fingerprint == run.fingerprint
        assert np.array_equal(again.batch(range(9)).tokens, run.batch(range(9)).tokens)


# -- edits of a run of one source ----------------------------------------------------------


def test_a_hidden_document_is_filler_from_there_on_and_nothing_before_changes(stores):
    a, _ = stores
    run = a.pack(SEQ_LEN).shuffle().epochs(3).seed(1)
    for at in (0, 7, len(run) - 1):
        with pytest.warns(UserWarning, match="main"):  # some rows hold one document only
            edited = run.edit(at=at, quarantine=[("main", 4), ("main", 20)])
        before, after = run.batch(range(len(run))), edited.batch(range(len(run)))
        for array in ARRAYS:
            old, new = getattr(before, array), getattr(after, array)
            assert np.array_equal(new[:at], old[:at]), array
        shown = after.spans.document[after.spans.row >= at]
        assert not np.isin(shown, [4, 20]).any()
        hidden = np.isin(before.spans.document, [4, 20]) & (before.spans.row >= at)
        kept = before.spans.where(~hidden)
        assert np.array_equal(kept.document, after.spans.document)
        assert np.array_equal(kept.at, after.spans.at)


def test_the_first_time_a_document_is_hidden_counts(stores):
    a, _ = stores
    run = a.windows(SEQ_LEN)
    once = run.edit(at=2, quarantine=[("main", 7)])
    twice = once.edit(at=6, quarantine=[("main", 7)])
    assert np.array_equal(once.batch(range(9)).tokens, twice.batch(range(9)).tokens)


@pytest.mark.parametrize("order", ["stored", "full", "block"])
def test_documents_are_appended_to_a_run_of_one_source(order, tmp_path):
    texts = [{"text": chr(97 + i % 26) * (3 + 5 * i % 17)} for i in range(40)]
    old = tl.build(texts[:25], tmp_path / "s", tokenizer="bytes", progress=False)
    run = old.pack(SEQ_LEN).epochs(3).seed(5)
    if order != "stored":
        run = run.shuffle() if order == "full" else run.block_shuffle(io_block_size=3)
    new = tl.build(texts[25:], tmp_path / "s", tokenizer="bytes", progress=False, append=True)
    rows = len(old.pack(SEQ_LEN))
    fresh = len(new.pack(SEQ_LEN))  # as many or fewer: the parts are packed apart
    for at in (0, 4, rows, rows + 3):
        edited = run.edit(at=at, append={"main": new})
        assert len(edited) > len(run)
        assert len(edited) <= len(run) + 3 * fresh
        together = edited.batch(range(len(edited)))
        assert np.array_equal(together.tokens[:at], run.batch(range(at)).tokens)
        assert set(together.spans.document.tolist()) == set(range(40))
        assert (together.spans.document[together.spans.row < at] < 25).all()
        if at == rows:  # from its second epoch on the run has all documents, each epoch anew
            assert_exactly_once(edited)
        assert_resumable(edited, batch_size=4, steps=6)
        assert_elastic(edited, batch_size=8, steps=3)
        again = tl.from_config(json.loads(json.dumps(edited.describe())))
        assert again.fingerprint == edited.fingerprint
        assert np.array_equal(again.batch(range(len(again))).tokens, together.tokens)


def test_a_state_from_before_an_edit_loads_into_the_edited_run_and_not_the_other_way(stores):
    a, _ = stores
    run = a.windows(SEQ_LEN).shuffle().seed(2)
    loader = tl.Loader(run, batch_size=4)
    next(loader)
    next(loader)
    state = loader.state_dict()
    edited = run.edit(at=8, quarantine=[("main", 1)])
    going_on = tl.Loader(edited, batch_size=4)
    going_on.load_state_dict(state)
    assert np.array_equal(next(going_on).tokens, edited.batch(range(8, 12)).tokens)
    too_early = run.edit(at=7, quarantine=[("main", 1)])
    refused(lambda: tl.Loader(too_early, 4).load_state_dict(state), tl.StateError, 7, 8)
    after = going_on.state_dict()
    refused(lambda: tl.Loader(run, 4).load_state_dict(after), tl.StateError)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        ({"weights": {"main": 2}}, "edit.weights"),
        ({"remove": ["main"]}, "edit.remove"),
        ({"quarantine": [("mian", 1)]}, "'mian'"),
        ({"quarantine": [("main", 99)]}, "99"),
        ({"append": {"main": 3}}, "edit.append.main: found 3"),
        ({"at": -1}, "edit.at: found -1"),
        ({"at": 10**6}, "1,000,000"),
    ],
)
def test_what_one_source_cannot_be_edited_to_is_refused(stores, edit, named):
    run = stores[0].windows(SEQ_LEN)
    refused(lambda: run.edit(**{"at": 0, **edit}), (tl.ConfigError, IndexError), named)


def test_what_was_edited_keeps_its_order(stores):
    a, _ = stores
    edited = a.windows(SEQ_LEN).edit(at=3, quarantine=[("main", 1)])
    for change in (lambda run: run.seed(3), lambda run: run.shuffle()):
        with pytest.raises(tl.ConfigError, match="edited"):
            change(edited)
    with pytest.raises(tl.ConfigError, match="3"):
        edited.edit(at=2, quarantine=[("main", 2)])
    with pytest.raises(tl.ConfigError, match=r"mix\.x"):
        tl.mix({"x": edited})


def test_rows_of_different_kinds_have_the_starts_that_their_kind_sees(shared_store_of):
    """Boundaries guessed from EOS in one source, stored ones in the other, in one batch."""
    stored = shared_store_of(range(5), range(5, 11), range(11, 18)).windows(4)
    guessed = shared_store_of([1, 9, 2, 9, 3, 4, 5, 6]).windows(4, segments="eos", eos_id=9)
    mixed = tl.mix({"stored": stored, "guessed": guessed}, rule="round_robin")
    batch = mixed.batch(range(len(mixed)))
    assert set(batch.source) == {"stored", "guessed"}
    for row in range(len(mixed)):
        alone = mixed[row].document_starts[0].tolist()
        wide = batch.document_starts[row].tolist()
        assert wide[: len(alone)] == alone
        assert set(wide[len(alone) :]) <= {-1}
