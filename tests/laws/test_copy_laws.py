"""Copies: of runs through files, of stores with other bytes, of stores in other formats."""

import json
import pickle
import random

import pytest
from known_stores import Known, Stores, build
from lawbook import law
from random_runs import draw_run, length_of, make_run, sources_of

import tokenloom as tl
from tokenloom.exchange import export

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def same_run(one, other, n):
    assert other.fingerprint == one.fingerprint
    assert other.render_fingerprint == one.render_fingerprint
    assert other.is_finite == one.is_finite
    assert not one.is_finite or len(other) == len(one)
    assert other.plan_digest(0, n) == one.plan_digest(0, n)
    assert other.digest(0, n) == one.digest(0, n)


@law(examples=0.6)
def test_a_description_makes_the_same_run(known, draw):
    _, run = draw_run(draw, known)
    described = json.loads(json.dumps(run.describe(), allow_nan=False))
    again = tl.from_config(described)
    same_run(run, again, length_of(run))
    assert json.loads(json.dumps(again.describe())) == described


@law
def test_a_value_of_another_type_anywhere_in_a_description_is_refused(known, draw):
    _, run = draw_run(draw, known)
    described = json.loads(json.dumps(run.describe()))
    places = [one for one in leaves(described) if one[1] is not None]
    for path, value in draw.sample(places, min(6, len(places))):
        junk = draw.choice([one for one in JUNK if type(one) is not type(value)])
        if (path[-1], junk) == ("max_epochs", {}):  # one number, or one for each source
            continue
        spoilt = json.loads(json.dumps(described))
        place = spoilt
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = junk
        with pytest.raises(tl.TokenloomError):
            tl.from_config(spoilt).spans([])


JUNK = ("junk", True, 1.5, -3, [], {})


def leaves(value, path=()):
    """(path, value) of everything in a description that is no container."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, (*path, key))
    elif isinstance(value, list):
        for key, one in enumerate(value):
            yield from leaves(one, (*path, key))
    else:
        yield path, value


@law(examples=0.6)
def test_a_saved_run_loads_as_the_same_run(known, draw):
    _, run = draw_run(draw, known)
    if not length_of(run):  # a file is of a run that can be trained
        return
    path = known.folder / f"run.{draw.choice(['yaml', 'json'])}"
    try:
        tl.save(run, path, overwrite=True)
    except tl.ConfigError:  # what no file can say is refused, not dropped
        return
    same_run(run, tl.load(path), length_of(run))


@law(examples=0.6)
def test_a_pickled_run_is_the_same_run(known, draw):
    _, run = draw_run(draw, known)
    same_run(run, pickle.loads(pickle.dumps(run)), length_of(run))


@pytest.fixture(scope="session")
def copies(known, tmp_path_factory):
    """Every store again: one shard, wide ids, workers, checksums of another size, grown."""
    folder, ways = tmp_path_factory.mktemp("copies"), {
        "one shard": {"shard_tokens": 10_000},
        "uint32": {"vocab_size": 100_000, "shard_tokens": 200},
        "two workers": {"workers": 2, "block_bytes": 500},
        "parts": {"stretches": 3},
    }  # fmt: skip
    made = {}
    for way, options in ways.items():
        made[way] = Stores()
        for name, one in known.items():
            path = folder / way.replace(" ", "-") / name
            store = build(path, one.documents, weights=one.weights, **options)
            made[way][name] = Known(store, one.documents, one.weights)
    return made


def test_copies_have_one_digest_and_other_files(known, copies):
    for stores in copies.values():
        for name, one in known.items():
            assert stores[name].store.digest == one.store.digest
            assert stores[name].store.manifest_sha256 != one.store.manifest_sha256


def test_a_run_over_a_copy_is_the_same_run(known, copies):
    """Shard cuts, dtypes, workers and checksums decide nothing."""
    check_copies(known, copies, range(60))


@pytest.mark.slow
def test_many_runs_over_copies_are_the_same_runs(known, copies):
    check_copies(known, copies, range(1000, 1400))


def check_copies(known, copies, seeds):
    for seed in seeds:
        recipe, run = draw_run(random.Random(seed), known)
        for stores in copies.values():
            if can_be_made_over(recipe, stores):
                same_run(run, make_run(recipe, stores), length_of(run))


def can_be_made_over(recipe, stores):
    """Whether a run has the same rows over these stores.

    None of them grew; their io blocks may have another size; foreign ones have no ids to split by.
    """
    if any("append" in edit for edit in recipe.edits):
        return False
    sources = sources_of(recipe).values()
    has_all = {one.store for one in sources} <= stores.keys()
    return has_all and not any(
        one.order in ("block", "merged block", "linear block") or one.choice == "split"
        for one in sources
    )


FORMATS = ("megatron", "parquet", "npy")  # those that hold empty documents


@pytest.fixture(scope="session")
def foreign(known, tmp_path_factory):
    """The stores without loss columns in other formats, opened in place."""
    folder, made = tmp_path_factory.mktemp("foreign"), {}
    for to in FORMATS:
        made[to] = Stores()
        for name, one in known.items():
            if one.weights is None:
                path = folder / to / name
                export(one.store, path, to=to, lossy=True)  # without ids
                made[to][name] = Known(tl.open(path), one.documents)
    return made


def test_a_run_over_another_format_is_the_same_run(known, foreign):
    check_copies(known, foreign, range(60))


@pytest.mark.slow
def test_many_runs_over_other_formats_are_the_same_runs(known, foreign):
    check_copies(known, foreign, range(1000, 1200))
