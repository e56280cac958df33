"""Every law can fail: each is shown a planted defect of the kind that it is there for."""

import dataclasses
import pickle
import random

import numpy as np
import pytest
import test_copy_laws
import test_edit_laws
import test_look_laws
import test_order_laws
import test_resume_laws
import test_row_laws
from known_stores import Known, Stores, build
from lawbook import LAWS, breaks

import tokenloom as tl
from tokenloom import order

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

FILES = (
    test_copy_laws,
    test_edit_laws,
    test_look_laws,
    test_order_laws,
    test_resume_laws,
    test_row_laws,
)


def after(kind, name, change):
    """A patch of a method: `change` gets what it returned, and may return something else."""
    original = getattr(kind, name)

    def changed(self, *args, **options):
        found = original(self, *args, **options)
        other = change(found)
        return found if other is None else other

    return kind, name, changed


def before(kind, name, change):
    """A patch of a method: `change` gets its arguments and returns others."""
    original = getattr(kind, name)

    def changed(self, *args, **options):
        args, options = change(*args, **options)
        return original(self, *args, **options)

    return kind, name, changed


def of_batches(change):
    return after(tl.Dataset, "batch", change)


def of_steps(change):
    return after(tl.Loader, "__next__", change)


def add_one(name, row=0, column=3):
    """One cell of an array of a batch is wrong."""

    def change(batch):
        if len(batch.index) > row:
            getattr(batch, name)[row, column] += 1

    return change


def other_segment(batch):
    """The last document of a row is in the segment of the one before it."""
    batch.segment_ids[batch.segment_ids > 1] = 1


def swap_rows(batch):
    batch.tokens[:] = batch.tokens[::-1].copy()


def count_more(state):
    return {**state, "examples": state["examples"] + 4 * (state["examples"] > 0)}


def one_row_more(state):
    return {**state, "sources": [{**one, "rows": one["rows"] + 1} for one in state["sources"]]}


def without(key):
    return lambda *args, **options: (args, {k: v for k, v in options.items() if k != key})


def later(at=0, **options):
    return (), {"at": at + 20, **options}


def one_row_less(first, last):
    return (first, max(first, last - 1)), {}


def padded(*args, end="drop", **options):
    return args, {"end": "pad", **options}


def step_after(step):
    return (step + (step > 0),), {}


def less_before(name, document, before):
    return (name, document), {"before": before - 1}


def hide(at, **options):
    return (), {"at": at, **options, "quarantine": [("main", 3), ("main", 6)]}


def row_again(spans):
    """The row of the second example is the row of the first."""
    if len(spans) > 1:
        places = np.arange(len(spans))
        places[1] = 0
        return spans.take(places)
    return None


CONTROLS = {
    # rows
    "every_array_is_what_the_recipe_says": of_batches(add_one("position_ids")),
    "a_batch_of_any_indices_is_its_rows_one_by_one": of_batches(swap_rows),
    "cells_hold_the_tokens_that_spans_name_and_filler_elsewhere": of_batches(add_one("tokens")),
    "borders_follow_from_segments": of_batches(add_one("position_ids")),
    "labels_are_views_of_one_mask": of_batches(add_one("tokens")),
    "rendering_moves_no_token": after(
        tl.Dataset, "render", lambda run: None if "mix" in run.describe() else run.shuffle(False)
    ),
    "a_document_in_a_packed_row_is_the_same_as_alone": of_batches(other_segment),
    "every_batch_passes_its_checks_and_every_run_its_audit": of_batches(add_one("segment_ids")),
    "hidden_documents_are_filler_and_nothing_else_changes": before(
        tl.Dataset, "edit", without("quarantine")
    ),
    # orders
    "every_epoch_has_every_row_of_its_layout_once": after(tl.Dataset, "spans", row_again),
    "orders_are_bijections_and_equal_their_loops": (
        order, "full", lambda n, *, seed, original=order.full, **options: original(
            n, seed=seed + 1, **options
        ),
    ),
    "orders_of_any_size_have_an_inverse": after(
        type(order.full(5000, seed=0)), "inverse", lambda found: found + 1
    ),
    "a_mix_is_never_a_row_away_from_its_weights": (
        tl, "mix", lambda sources, original=tl.mix, **options: original(
            sources, **options | {"weights": {"a": 7, "b": 1}}
        ),
    ),
    "a_far_example_of_a_source_is_where_its_epoch_says": after(
        tl.Dataset, "locate", lambda found: (found[0], found[1][::-1])
    ),
    "far_in_a_mix_the_source_that_has_consumed_least_comes_next": (
        tl, "mix", lambda sources, original=tl.mix, **options: original(
            sources, **options | {"weights": {"a": 7, "b": 1, "c": 3}}
        ),
    ),
    "an_example_does_not_depend_on_what_was_asked_before": after(tl.Dataset, "spans", row_again),
    "what_a_run_consumed_is_what_its_examples_hold": before(
        tl.Dataset, "consumed", lambda examples: ((max(0, examples - 1),), {})
    ),
    # resuming
    "a_run_resumes_at_every_step": after(tl.Loader, "state_dict", count_more),
    "every_number_of_ranks_has_the_same_steps": of_steps(swap_rows),
    "rows_of_a_step_stand_in_the_order_of_lanes": of_steps(
        lambda batch: batch.index.sort()
    ),
    "the_end_of_a_run_is_what_was_asked_for": before(tl.Loader, "__init__", padded),
    "settings_of_a_loader_change_no_byte": (
        tl, "from_config", lambda plain, original=tl.from_config, **hints: original(
            {**plain, "seed": 77}, **hints
        ),
    ),
    "a_state_counts_what_was_delivered": after(tl.Loader, "state_dict", one_row_more),
    "any_step_is_reached_at_once": before(tl.Loader, "seek", step_after),
    "a_schedule_of_batch_sizes_only_cuts_the_run_elsewhere": before(
        tl.Loader,
        "__init__",
        lambda run, size, *rest, **options: ((run, size[0][1], *rest), options),
    ),
    "loss_tokens_of_a_step_are_those_of_all_ranks": (
        tl.Batch, "step_loss_tokens", property(lambda batch: batch.loss_tokens),
    ),
    "a_digest_is_the_hash_of_rows_in_order_of_index": before(tl.Dataset, "digest", one_row_less),
    "a_plan_digest_is_the_hash_of_spans": after(tl.Dataset, "spans", row_again),
    "a_longer_run_continues_a_shorter_one": after(tl.Dataset, "take", lambda run: run.seed(77)),
    "another_run_refuses_the_state": before(
        tl.Loader, "load_state_dict", lambda state: ((state,), {"allow_mismatch": True})
    ),
    "indices_outside_a_run_are_refused": before(
        tl.Dataset, "locate", lambda indices: (([abs(i) % 2 for i in indices],), {})
    ),
    # looking
    "at_has_every_cell_and_where_finds_each_and_no_other": before(
        tl.Dataset, "where", less_before
    ),
    "steps_and_rows_of_places_are_those_of_a_loader": before(
        tl.Dataset,
        "where",
        lambda *args, batch_size, **options: (args, {"batch_size": batch_size + 1, **options}),
    ),
    "next_is_the_first_place_after_an_index": before(
        tl.Dataset, "next", lambda *args, after, **options: (args, {"after": after + 1, **options})
    ),
    "triples_are_the_splices_of_all_examples_and_places_find_each": (
        test_look_laws, "places",
        lambda *args, original=test_look_laws.places, **options: original(*args, **options)[1:],
    ),
    "diff_is_what_comparing_all_arrays_says": (
        tl, "diff", lambda a, b, original=tl.diff: dataclasses.replace(original(a, b), share=1.0),
    ),
    "a_simulation_predicts_the_reads_that_a_loader_counts": (
        test_look_laws, "simulate_run",
        lambda run, *, original=test_look_laws.simulate_run, **options: original(
            run, **options | {"fetch": "rows", "cache_bytes": 0}
        ),
    ),
    # copies
    "a_description_makes_the_same_run": after(
        tl.Dataset, "describe", lambda plain: {**plain, "seed": 77}
    ),
    "a_value_of_another_type_anywhere_in_a_description_is_refused": (
        tl, "from_config", lambda plain, original=tl.from_config: original({
            **plain, "seed": plain.get("seed") if isinstance(plain.get("seed"), int) else 0
        }) if "seed" in plain else original(plain),
    ),
    "a_saved_run_loads_as_the_same_run": (
        tl, "load", lambda path, original=tl.load: original(path).render(pad_id=5),
    ),
    "a_pickled_run_is_the_same_run": (
        pickle, "loads", lambda data, original=pickle.loads: original(data).render(pad_id=5),
    ),
    # edits
    "an_edit_keeps_every_example_before_it": before(
        tl.Dataset, "edit", lambda at, **options: ((), {"at": 0, **options})
    ),
    "a_state_from_before_an_edit_loads_and_one_from_behind_it_does_not": before(
        tl.Loader, "load_state_dict", lambda state: ((state,), {"allow_mismatch": True})
    ),
    "an_empty_edit_changes_nothing": before(tl.Dataset, "edit", hide),
    "after_an_append_every_epoch_has_the_old_rows_and_the_new": before(
        tl.Dataset, "edit", without("append")
    ),
    "a_source_that_joins_does_not_dominate": before(tl.Dataset, "edit", later),
}  # fmt: skip


def test_every_law_has_a_control():
    assert set(CONTROLS) == set(LAWS)
    assert len(FILES) == 6, "the files whose laws are in LAWS"


@pytest.mark.parametrize("name", CONTROLS)
def test_a_planted_defect_is_noticed(name, known, monkeypatch):
    monkeypatch.setattr(*CONTROLS[name])
    assert breaks(LAWS[name], known)


def test_a_copy_with_one_other_token_is_noticed(known, tmp_path):
    changed = Stores()
    for name, one in known.items():
        documents = [list(ids) for ids in one.documents]
        place = next(i for i, ids in enumerate(documents) if len(ids) > 2)
        documents[place][1] += 1
        store = build(tmp_path / name, documents, weights=one.weights)
        changed[name] = Known(store, documents, one.weights)
    with pytest.raises(AssertionError):
        test_copy_laws.check_copies(known, {"changed": changed}, range(20))


def test_other_bytes_than_those_written_down_are_noticed(known, monkeypatch):
    from test_frozen_digests import test_every_run_has_the_bytes_that_it_always_had as frozen

    monkeypatch.setattr(*before(tl.Dataset, "digest", one_row_less))
    with pytest.raises(AssertionError):
        frozen(known)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("name", CONTROLS)
def test_a_law_holds_for_hundreds_of_runs(name, part, known):
    for seed in range(1000 + 100 * part, 1100 + 100 * part):
        try:
            LAWS[name](known, random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"draw=Random({seed}): {error}") from error
