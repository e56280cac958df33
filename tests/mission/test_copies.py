"""Copies of stores, selections, datasets, loaders, batches and inner runs: whole, or refused."""

import copy
import gc
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import tokenloom as tl
from tokenloom.testing import write_store

ARRAYS = ("tokens", "labels", "loss_mask", "loss_weights", "segment_ids", "position_ids")
ARRAYS += ("attention_mask", "document_starts", "continues", "cu_seqlens", "index")

HOWS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
}

RUNS = {
    "windows": lambda a: a.windows(64).shuffle(),
    "look-ahead": lambda a: a.windows(64, lookahead=True).era_shuffle(10),
    "lanes": lambda a: a.windows(64).block_shuffle(lanes=4, window_blocks=1),
    "own cache": lambda a: a.windows(64).block_shuffle(cache_windows=2),
    "levanter": lambda a: a.windows(64).shuffle(perm_type="levanter").epochs(None),
    "pack": lambda a: a.pack(64, add_eos=True, eos_id=3).shuffle(),
    "splice": lambda a: a.splice(64, content_length=16).shuffle(),
    "select": lambda a: a.select(num_docs=3).windows(64),
    "split": lambda a: a.split({"x": 0.5, "y": 0.5})["x"].pack(64).block_shuffle(),
    "quarantine": lambda a: a.windows(512).edit(at=0, quarantine=[("main", 1)]),
    **{
        rule: lambda a, rule=rule: tl.mix(
            {"x": a.windows(64).shuffle(), "y": a.pack(64).block_shuffle()}, rule=rule
        )
        for rule in ("least_consumed", "weights", "rounds", "random", "round_robin")
    },
    "shuffled mix": lambda a: RUNS["weights"](a).shuffle(),
    "edited mix": lambda a: RUNS["weights"](a).edit(at=10, weights={"x": 3.0}),
    "kinds": lambda a: tl.mix({"x": a.pack(64), "y": a.splice(64, content_length=16)}),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    root = tmp_path_factory.mktemp("copies")
    a = [{"text": "ab" * (100 + 31 * i), "id": str(i)} for i in range(20)]
    tl.build(a, root / "a", tokenizer="bytes", id_key="id")
    tl.build([{"text": "z" * 40_000}], root / "z", tokenizer="bytes")
    return root


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    root = tmp_path_factory.mktemp("weighted")
    columns = {"loss_weights": ("float32", lambda ids: ids % 3 / 2)}
    documents = [np.arange(5, 5 + 7 * i).tolist() for i in range(1, 30)]
    write_store(root / "w", [documents], inner=64, chunk_tokens=256, columns=columns)
    return tl.open(root / "w")


pytestmark = pytest.mark.usefixtures("few_objects")


def descriptors(wanted=0):
    """Open files; those of threads that are ending are waited for."""
    deadline = time.monotonic() + 900
    while len(os.listdir("/proc/self/fd")) > wanted and wanted and time.monotonic() < deadline:
        gc.collect()
    return len(os.listdir("/proc/self/fd"))


def same(a, b):
    """Whether all arrays are; those of folded batches may be lists of arrays."""
    for name in ARRAYS:
        pair = [getattr(one, name) for one in (a, b)]
        listed = [one if isinstance(one, list) else [one] for one in pair]
        if not all(
            x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(*listed, strict=True)
        ):
            return False
    return True


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", RUNS)
def test_a_copied_dataset_gives_the_same(stores, kind, how):
    run = RUNS[kind](tl.open(stores / "a"))
    wanted = run.batch(range(8))
    again = HOWS[how](run)
    assert same(again.batch(range(8)), wanted)
    assert again.describe() == run.describe()
    assert again == run
    assert again.cache_bytes == run.cache_bytes


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("kind", ["pack", "quarantine", "rounds", "kinds"])
def test_a_copied_batch_has_the_same_arrays_and_no_store(stores, kind, how):
    for made in ((), ("labels",), ARRAYS):  # fields that were made before the copy
        batch = RUNS[kind](tl.open(stores / "a")).batch([3, 1, 4])
        _ = [getattr(batch, name) for name in made]
        again = HOWS[how](batch)
        if how != "copy":
            assert str(stores).encode() not in pickle.dumps(again)
        assert same(again, batch)
        assert repr(again) == repr(batch)
        if how == "deepcopy":
            assert not np.shares_memory(again.tokens, batch.tokens)


@pytest.mark.parametrize("how", HOWS)
def test_a_copied_batch_keeps_stored_weights_and_groups(weighted, how):
    run = weighted.pack(16)
    batch = next(tl.Loader(run, 4, accumulate=2))
    again = HOWS[how](batch)
    assert again.tokens.shape == (2, 2, 16)
    assert same(again, batch)
    assert len({*again.loss_weights.reshape(-1).tolist()}) > 2


@pytest.mark.parametrize("how", HOWS)
def test_a_copied_batch_is_judged_like_the_original(stores, how):
    """A step without a trained token is refused; a rank's share of one that has some is not."""
    store = tl.open(stores / "a")
    untrained = next(tl.Loader(tl.open(stores / "z").windows(64, ignore_id=122), 2))
    for one in (untrained, HOWS[how](untrained)):
        refused(lambda one=one: one.labels, tl.NoTrainedTokens, "step 0", "2 rows")
    alone = tl.mix({"a": store.windows(64), "z": tl.open(stores / "z").windows(64)})
    alone = alone.render(ignore_id=122)
    shares = [next(tl.Loader(alone, 2, rank, 2)) for rank in range(2)]
    assert [bool(HOWS[how](one).loss_mask.any()) for one in shares].count(False) == 1


# -- descriptors ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("what", ["store", "select", "split", "run", "loader", "batch"])
def test_a_copy_that_goes_takes_nothing_of_the_original_along(stores, what, how):
    """A copied descriptor was closed twice; the next file got its number and was read as tokens."""
    store = tl.open(stores / "a")
    run = store.windows(64).shuffle()
    wanted = run.batch(range(len(run))).tokens
    loader = tl.Loader(run, 8, prefetch=4, fetch="rows")
    batch = next(loader)
    victim = {
        "store": store,
        "select": store.select(num_docs=3),
        "split": store.split({"x": 0.5, "y": 0.5})["x"],
        "run": run,
        "loader": loader,
        "batch": batch,
    }[what]
    _ = getattr(victim, "lengths", None)
    gc.collect()
    before = descriptors()
    copies = [HOWS[how](victim) for _ in range(5)]
    for one in copies:
        used = getattr(one, "lengths", None)
        if isinstance(one, tl.Loader):
            used = next(one)
        assert one is not None or used is not None
    del copies, one, used
    gc.collect()
    assert descriptors(before) == before
    other = tl.open(stores / "z", cache_bytes=0)
    other.tokens(0, other.num_tokens)  # opens files: were a number free, it would be given to it
    assert np.array_equal(run.batch(range(len(run))).tokens, wanted)
    rest = [batch, *loader]
    assert [int(i) for one in rest for i in one.index] == list(range(len(rest) * 8))
    assert len(rest) == len(run) // 8


@pytest.mark.parametrize("how", HOWS)
def test_a_selection_is_copied_with_its_documents(stores, how):
    store = tl.open(stores / "a")
    chosen = [
        store.select(num_docs=3),
        store.select(num_docs=2, doc_select_mode="random", seed=4),
        store.select(doc_key=lambda row: row["id"] in ("3", "5"), num_docs=2),
        *store.split({"x": 0.5, "y": 0.5}).values(),
    ]
    for one in chosen:
        again = HOWS[how](one)
        assert type(again) is type(one)
        assert again.indices.tolist() == one.indices.tolist()
        assert again.windows(8).describe() == one.windows(8).describe()
        assert repr(again) == repr(one)


@pytest.mark.parametrize("how", HOWS)
def test_a_copy_is_read_as_the_original_was_opened(stores, how):
    store = tl.open(stores / "a", cache_bytes=1 << 20, verify="always")
    other = tl.open(stores / "z", cache_bytes=1 << 16)
    run = tl.mix({"x": store.windows(64), "y": store.pack(64), "z": other.windows(64)})
    again = HOWS[how](run)
    assert again.cache_bytes == run.cache_bytes == (1 << 20) + (1 << 16)  # x and y share one


def test_a_store_that_was_built_again_is_not_taken_for_the_one_that_was_copied(tmp_path):
    tl.build([{"text": "abc"}], tmp_path / "s", tokenizer="bytes")
    store = tl.open(tmp_path / "s")
    sent = [pickle.dumps(one) for one in (store, store.windows(2), store.select(num_docs=1))]
    os.rename(tmp_path / "s", tmp_path / "gone")
    tl.build([{"text": "xyz"}], tmp_path / "s", tokenizer="bytes")
    for one in sent:
        refused(lambda one=one: pickle.loads(one), tl.StoreError, tmp_path / "s")


# -- relative paths ------------------------------------------------------------------------


ELSEWHERE = """
import pickle, sys
for one in pickle.load(open(sys.argv[1], "rb")):
    print((one if hasattr(one, "describe") else one.windows(8)).describe()["store"]["path"])
    (one if hasattr(one, "describe") else one.windows(8)).batch([0, 1]).tokens
"""


def test_a_relative_path_survives_another_directory_and_another_process(
    stores, tmp_path, monkeypatch
):
    monkeypatch.chdir(stores)
    store = tl.open("a")
    things = [store.windows(8).shuffle(), store, store.select(num_docs=2), store.pack(8)]
    mixed = tl.mix({"x": store.windows(8), "y": store.pack(8)})
    monkeypatch.chdir(tmp_path)
    assert store.check(progress=False).ok
    for how in HOWS.values():
        again = how(mixed)
        assert [one["store"]["path"] for one in again.describe()["sources"]] == ["a", "a"]
        assert np.array_equal(again.batch(range(9)).tokens, mixed.batch(range(9)).tokens)
        assert how(store).path == Path("a")
        assert how(how(store)).tokens(0, 4).tolist() == store.tokens(0, 4).tolist()
    (tmp_path / "things").write_bytes(pickle.dumps(things))
    command = [sys.executable, "-c", ELSEWHERE, str(tmp_path / "things")]
    here = {**os.environ, "PYTHONPATH": str(Path(tl.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, env=here)
    assert (done.stdout.split(), done.stderr) == (["a"] * 4, "")


def test_an_appended_store_of_a_relative_path_travels_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tl.build([{"text": "abcdefgh" * 20}], "s", tokenizer="bytes")
    run = tl.open("s").windows(8).shuffle()
    tl.build([{"text": "ijklmnop" * 20}], "s", tokenizer="bytes", append=True)
    run = run.edit(at=5, append={"main": tl.open("s")})
    monkeypatch.chdir("/")
    for how in HOWS.values():
        again = how(run)
        assert again.describe() == run.describe()
        assert np.array_equal(again.batch(range(30)).tokens, run.batch(range(30)).tokens)


# -- loaders -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_loader_is_copied_as_its_settings_and_its_position(stores, prefetch, how):
    run = tl.open(stores / "a").pack(64).shuffle().epochs(2)
    settings = {"end": "pad", "fields": ("tokens", "labels"), "fetch": "rows", "accumulate": 2}
    loader = tl.Loader(run, [(0, 4), (20, 8)], 1, 2, prefetch=prefetch, **settings)
    for _ in range(3):
        next(loader)
    again = HOWS[how](loader)
    assert again.state_dict() == loader.state_dict()
    assert (again.rank, again.world_size, len(again)) == (1, 2, len(loader))
    assert again.stats().steps == 0
    wanted = list(loader)
    found = list(again)
    assert len(found) == len(wanted) > 3
    assert all(same(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("how", HOWS)
def test_a_resumed_loader_is_copied_with_the_steps_it_counts(stores, how):
    """No step of 8 rows starts at example 12, so steps are counted from there."""
    run = tl.open(stores / "a").windows(64).shuffle()
    first = tl.Loader(run, 12)
    next(first)
    loader = tl.Loader(run, 8)
    loader.load_state_dict(first.state_dict())
    next(loader)
    again = HOWS[how](loader)
    assert again.state_dict() == loader.state_dict()
    assert next(again).index.tolist() == next(loader).index.tolist() == list(range(20, 28))


def test_a_copy_that_is_dropped_ends_nobody(stores):
    loader = tl.Loader(tl.open(stores / "a").windows(8).shuffle(), 4, prefetch=4, fetch="rows")
    count = len(loader)
    next(loader)
    for how in HOWS.values():
        how(loader)
        next(how(loader))
    assert 1 + sum(1 for _ in loader) == count
