"""Small answers of runs, stores and plans that no row of the checklist asks for by itself."""

import itertools
import logging

import numpy as np
import pytest
from refusals import refused
from torch.utils.data import DataLoader
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.integrations.torch import dataloader


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def mixed(store):
    return tl.mix({"a": store.windows(8).shuffle(), "b": store.pack(8)}, weights={"a": 2}).seed(1)


def test_items_of_sources_and_indices_of_the_run_are_inverse(mixed):
    indices = np.arange(len(mixed))
    names, items = mixed.picked(indices)
    assert set(names) == {"a", "b"}
    for name in "ab":
        here = [i for i, one in zip(indices, names, strict=True) if one == name]
        assert mixed.index(name, items[here]).tolist() == here
        assert items[here].tolist() == list(range(len(here)))
    assert mixed.take(3).index("b", [10**6]).tolist() == [-1]
    refused(lambda: mixed.index("c", [0]), tl.ConfigError, "c")


def test_a_run_without_its_end_is_itself(store, mixed):
    endless = mixed.endless()
    assert endless.endless() is endless
    alone = toy_run(store, epochs=2).take(5)
    assert alone.endless() == toy_run(store, epochs=None)


def test_an_edit_of_a_run_that_was_cut_keeps_its_end(mixed):
    edited = mixed.take(40).edit(at=10, weights={"b": 5})
    assert len(edited) == 40
    assert edited.plan_digest(0, 40) == mixed.edit(at=10, weights={"b": 5}).plan_digest(0, 40)


def test_a_sampler_that_shuffles_again_is_warned_of_once(store):
    run = toy_run(store, epochs=1)
    with pytest.warns(UserWarning, match="order") as told:
        found = list(DataLoader(run, batch_size=8, shuffle=True))
    assert len(told) == 1
    assert sorted(int(i) for one in found for i in one["index"]) == list(range(37))


def test_a_document_that_is_not_shown_again_is_answered_with_a_reason(store):
    run = toy_run(store, epochs=2)
    document = int(run.spans([3]).document[0])
    places = [place.index for place in run.where(doc=document)]
    assert run.next(doc=document, after=-1).index == places[0]
    for before, after in itertools.pairwise(sorted(set(places))):
        assert run.next(doc=document, after=before).index == after
    last = run.next(doc=document, after=places[-1])
    assert not last
    assert last.reason
    endless = toy_run(store, epochs=None)
    hidden = endless.edit(at=0, quarantine=[("main", document)])
    assert all(place.blank for place in hidden.where(doc=document, epochs=1))
    assert not run.next(doc=document, after=len(run))


@pytest.mark.parametrize("epochs", [[2, 0], range(1, 3), 1])
def test_places_are_asked_for_by_epoch(store, epochs):
    run = toy_run(store, epochs=4)
    wanted = {epochs - 1} if isinstance(epochs, int) else set(epochs)
    found = list(run.where(doc=1, epochs=epochs))
    assert {place.epoch for place in found} == wanted
    every = [place.index for place in run.where(doc=1) if place.epoch in wanted]
    assert [place.index for place in found] == every


def test_a_plan_counts_what_is_trained_where_a_store_says_it(tmp_path):
    store = toy_store(tmp_path, weights=True)
    options = {"seq_len": 16, "strategy": "sequential", "bos_id": 3, "add_bos": True}
    plan, rows = tl.plan_packing(store, **options), store.pack(**options)
    assert plan.rows == len(rows)
    trained = rows.batch(range(len(rows))).loss_mask
    assert plan.tally.trained == int(trained.sum()) < trained.size
    bare = tl.plan_packing(store.lengths, seq_len=16, strategy="sequential", add_bos=True)
    assert bare.rows == plan.rows
    ends = tl.plan_packing(store.lengths, seq_len=16, strategy="sequential", add_eos=True)
    assert ends.rows == plan.rows


def test_tokenizers_that_differ_in_one_special_id_are_told_apart(tmp_path):
    stores = {
        name: tl.build([{"text": "abc"}], tmp_path / name, tokenizer="bytes", eos=eos)
        for name, eos in (("a", 0), ("b", 1))
    }
    runs = {name: one.windows(2) for name, one in stores.items()}
    refused(lambda: tl.mix(runs), tl.ConfigError, "'a'", "'b'", "eos 0 and 1")
    assert len(tl.mix(runs, different_tokenizers=True)) > 0


def test_a_setting_of_a_run_file_that_an_adapter_has_not_is_logged(store, tmp_path, caplog):
    path = tmp_path / "run.yaml"
    path.write_text(
        f"sources: {{main: {{store: {store.path}, windows: 8}}}}\n"
        "loader: {batch_size: 4, accumulate: 2}\n"
    )
    with caplog.at_level(logging.WARNING, logger="tokenloom"):
        loop = dataloader(tl.load(path))
    assert next(iter(loop))["input_ids"].shape == (4, 8)
    (record,) = caplog.records
    assert f"{path}: loader.accumulate" in record.getMessage()


def test_a_bar_of_progress_is_shown_where_it_is_asked_for(tmp_path, capsys):
    records = [{"text": "abc"}] * 20
    for progress in (True, False, None):  # None: if standard error is a terminal
        store = tl.build(records, tmp_path / str(progress), tokenizer="bytes", progress=progress)
        store.verify(progress=progress)
        printed = capsys.readouterr().err
        assert bool(printed) == bool(progress)
        assert ("verify" in printed) == bool(progress)
