"""States: small, strict, of one run only; and their files, which are whole or skipped."""

import json
import logging
import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from spoiling import places, replaced, without
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.loader import latest_state, read_state, write_state

DECIDES = ("format", "examples", "step", "fingerprint", "render", "wrapped")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


def state_at(dataset, steps=3, **options):
    with tl.Loader(dataset, 4, prefetch=0, **options) as loader:
        loader.seek(steps)
        return loader.state_dict()


def load(dataset, state, **options):
    """A call that loads a state, for `refused`."""
    return lambda: tl.Loader(dataset, 4).load_state_dict(state, **options)


@pytest.fixture
def dataset(store):
    return toy_run(store)


# -- what it is ----------------------------------------------------------------------------

INFORMATIVE = ("dataset", "sources")


def deciding(state):
    return {key: value for key, value in state.items() if key not in INFORMATIVE}


def test_a_state_is_json_and_says_what_it_counts(dataset):
    state = state_at(dataset)
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    assert set(state) == {*DECIDES, "step", *INFORMATIVE}
    assert (state["examples"], state["step"]) == (12, 3)
    assert state["sources"] == [{"name": "main", "rows": 12, "tokens": 96, "epochs": 0}]
    assert state["dataset"] == dataset.describe()
    assert tl.from_config(state["dataset"]).fingerprint == dataset.fingerprint


def test_ruling_19_a_state_without_its_description_meets_the_same_checks(store):
    run = tl.mix({"a": store.windows(8), "b": store.windows(8).shuffle()}).seed(2)
    small = deciding(state_at(run))
    edited = run.edit(at=12, weights={"b": 3})
    loader = tl.Loader(edited, 4)
    loader.load_state_dict(small)  # saved before the edit
    assert loader.examples == 12
    for other, named in (
        (run.edit(at=8, weights={"b": 3}), ("edit", 8)),
        (run.seed(3), ("fingerprint",)),
        (run.render(pad_id=7), ()),
        (run.take(8), (8,)),
    ):
        refused(load(other, small), tl.StateError, *named)
    for name in small:  # a control: each of these is needed
        rest = {key: value for key, value in small.items() if key != name}
        refused(load(run, rest), tl.StateError, name)


def test_a_state_does_not_know_ranks_prefetch_batch_size_or_machine(store, dataset):
    states = [
        state_at(dataset),
        state_at(dataset, rank=1, world_size=2, end="pad", fetch="rows"),
        tl.Loader(dataset, 6, 2, 3, prefetch=64).seek(2).state_dict() | {"step": 3},
    ]
    assert states[0] == states[1] == states[2]
    words = json.dumps({k: v for k, v in states[0].items() if k != "dataset"})
    names = [os.environ.get("USER"), os.environ.get("HOSTNAME"), os.uname().nodename, os.getcwd()]
    assert not [name for name in names if name and name in words]


# -- another run ---------------------------------------------------------------------------


def test_another_cut_is_another_run(store, dataset):
    state = state_at(dataset)
    for layout in ({"seq_len": 16}, {"tail": "keep"}, {"lookahead": True}):
        other = store.windows(**({"seq_len": 8} | layout)).shuffle().seed(7).epochs(3)
        refused(load(other, state), tl.StateError, f"layout.{next(iter(layout))}")


def test_another_store_is_refused_and_a_moved_one_is_not(store, dataset, tmp_path):
    state = state_at(dataset)
    other = toy_store(tmp_path / "other", rows=38)
    refused(load(toy_run(other), state), tl.StateError, "store.digest", other.digest)
    moved = toy_store(tmp_path / "moved")
    assert moved.digest == store.digest
    loader = tl.Loader(toy_run(moved), 4)
    loader.load_state_dict(state)
    assert next(loader).index.tolist() == [12, 13, 14, 15]
    loader.close()


ENDS = {
    "more epochs": lambda ds: ds.epochs(4),
    "endless": lambda ds: ds.epochs(None),
    "cut later": lambda ds: ds.epochs(9).take(50),
    "cut here": lambda ds: ds.take(12),
}


@pytest.mark.parametrize("end", ENDS)
def test_ruling_18_a_run_with_another_end_continues_the_one_that_was(dataset, end):
    other, state = ENDS[end](dataset), state_at(dataset)
    assert other.fingerprint == dataset.fingerprint
    assert other != dataset
    loader = tl.Loader(other, 4, end="pad")
    loader.load_state_dict(state)
    assert loader.examples == state["examples"] == 12
    following = next(loader, None)
    assert (following is None) == (end == "cut here")
    if following is not None:
        assert np.array_equal(following.tokens, dataset.batch(range(12, 16)).tokens)


def test_ruling_18_after_wrapping_around_the_end_counts(dataset):
    with tl.Loader(dataset, 4, end="wrap") as loader:
        state = loader.seek(30).state_dict()  # example 120 of 111
    assert state["wrapped"] == 111
    again = tl.Loader(dataset, 4, end="wrap")
    again.load_state_dict(state)
    assert np.array_equal(next(again).tokens, dataset.batch(range(9, 13)).tokens)
    for other in (dataset.epochs(4), dataset.take(100), dataset.epochs(None)):
        wraps = tl.Loader(other, 4, end="wrap")
        refused(lambda wraps=wraps: wraps.load_state_dict(state), tl.StateError, 111)


def test_a_state_of_a_longer_run_is_refused(dataset):
    state = state_at(dataset) | {"examples": 112}
    for options in ({}, {"allow_mismatch": True}):
        refused(load(dataset, state, **options), tl.StateError, 112, 111)
    longer = state_at(dataset.epochs(9), steps=50)
    refused(load(dataset, longer, allow_mismatch=True), tl.StateError, 200, 111)
    around = tl.Loader(dataset, 4, end="wrap")
    refused(lambda: around.load_state_dict(state), tl.StateError, 112)  # other examples would come
    around.load_state_dict(state | {"wrapped": 111})
    assert around.examples == 112


def test_a_state_is_loaded_before_the_first_step_or_not_at_all(dataset):
    state = state_at(dataset)
    loader = tl.Loader(dataset, 4)
    for _ in range(2):
        next(loader)
    refused(lambda: loader.load_state_dict(state), tl.StateError, "delivered 2 steps")
    loader.close()
    refused(lambda: loader.load_state_dict(state), tl.StateError, "delivered 2 steps")
    assert next(loader).index.tolist() == [8, 9, 10, 11]
    loader.close()


# -- hostile states ------------------------------------------------------------------------


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"a": value}
    return value


BAD_VALUES = {
    "none": None,
    "true": True,
    "negative": -1,
    "too large": 2**62 + 1,
    "too large to be shown": 10**5000,
    "float": 1.0,
    "nan": math.nan,
    "digits": "12",
    "empty text": "",
    "bytes": b"12",
    "list": [12],
    "mapping": {"a": 1},
    "deep": nested(50_000),
    "long": "x" * 10**6,
}


@pytest.mark.parametrize("key", DECIDES)
def test_a_wrong_value_is_a_state_error_that_names_its_key(dataset, key):
    for value in BAD_VALUES.values():
        state = state_at(dataset) | {key: value}
        for allow in (False, True):
            said = refused(load(dataset, state, allow_mismatch=allow), tl.StateError, key)
            assert len(said) < 2000


def test_what_is_no_state_at_all_is_a_state_error(dataset):
    for value in [*BAD_VALUES.values(), (), object()]:
        refused(load(dataset, value), tl.StateError, "state")


def test_a_state_of_an_older_format_is_refused_wherever_it_comes_from(dataset, tmp_path):
    old = state_at(dataset) | {"format": "tokenloom.state/1"}
    path = tmp_path / "state-000000000012.json"
    path.write_text(json.dumps(old))
    for call in (
        load(dataset, old),
        load(dataset, old, allow_mismatch=True),
        lambda: read_state(path),
        lambda: write_state(old, tmp_path),
    ):
        refused(call, tl.StateError, "format", "tokenloom.state/1")


@pytest.mark.parametrize("key", ["fingerprint", "render"])
def test_a_description_that_is_none_prevents_no_refusal(dataset, key):
    """The description is for people."""
    render = [{"render": 3}, {"render": {"pad_id": 10**5000}}]
    for value in [*BAD_VALUES.values(), *render]:
        state = state_at(dataset) | {key: "0" * 64, "dataset": value}
        assert len(refused(load(dataset, state), tl.StateError)) < 30_000
    del state["dataset"]
    refused(load(dataset, state), tl.StateError)


def test_unknown_keys_are_ignored_and_the_largest_state_there_can_be_loads(store):
    endless = toy_run(store, epochs=None)
    more = {"trainer": {"epoch": 3}, "note": nested(50_000)}
    loader = tl.Loader(endless, 4, prefetch=0)
    loader.load_state_dict(state_at(endless) | more | {"examples": 2**62 - 2, "step": 2**62})
    assert next(loader).index.tolist() == list(range(2**62 - 2, 2**62 + 2))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.just("0" * 64),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


def fuzz(dataset, count):
    state, run = state_at(dataset), dataset.describe()
    found_places, outcomes = list(places(state)), {"loads": 0, "refused": 0}

    @settings(max_examples=count, deadline=None, derandomize=True, database=None)
    @given(
        st.lists(
            st.tuples(st.sampled_from(found_places), JSON, st.booleans()), min_size=1, max_size=2
        )
    )
    def attack(changes):
        found = state
        for path, value, delete in changes:
            try:
                found = without(found, path) if delete and path else replaced(found, path, value)
            except (KeyError, IndexError, TypeError):
                continue  # the place went with the first change
        loader = tl.Loader(dataset, 4)
        try:
            loader.load_state_dict(found)
        except tl.StateError:
            outcomes["refused"] += 1
        else:
            assert found["fingerprint"] == state["fingerprint"]
            assert 0 <= loader.examples == found["examples"] <= len(dataset)
            outcomes["loads"] += 1

    attack()
    assert run == dataset.describe()
    return outcomes


@pytest.mark.filterwarnings("ignore::UserWarning")  # of other cached arrays
def test_a_mutated_state_loads_or_is_a_state_error(dataset):
    outcomes = fuzz(dataset, 400)
    assert outcomes["refused"] > 40
    assert outcomes["loads"] > 40  # what was changed was for people only


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_s7_ten_thousand_mutated_states(dataset):
    outcomes = fuzz(dataset, 10_000)
    assert min(outcomes.values()) > 2000


# -- files ---------------------------------------------------------------------------------


def test_a_state_comes_back_from_its_file_and_the_one_with_most_examples_is_latest(
    dataset, tmp_path
):
    state = state_at(dataset)
    assert latest_state(tmp_path) is None
    assert latest_state(tmp_path / "missing") is None
    assert write_state(state, tmp_path / "here.json") == tmp_path / "here.json"
    assert read_state(tmp_path / "here.json") == state
    assert write_state(state, tmp_path) == tmp_path / "state-000000000012.json"
    assert latest_state(tmp_path) == state
    for examples in (8, 10**12 - 1, 10**12, 3 * 10**15, 5):
        write_state(state | {"examples": examples}, tmp_path)
    assert latest_state(tmp_path)["examples"] == 3 * 10**15
    os.remove(tmp_path / f"state-{3 * 10**15}.json")
    assert latest_state(tmp_path)["examples"] == 10**12
    later = state | {"examples": 10**13}
    write_state(later, tmp_path / "mine.json")
    (tmp_path / "trainer_state.json").write_text('{"step": 9}')
    (tmp_path / "notes.txt").write_text("n")
    os.mkfifo(tmp_path / "pipe.json")
    assert latest_state(tmp_path) == later, "under whatever name"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4096,
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"{}",
        b"12",
        b"NaN",
        b'{"examples": 1' + b"0" * 5000 + b"}",
        b"{" + b'"a":{' * 50_000,
    ],
)
def test_a_file_that_holds_no_state_is_a_state_error(tmp_path, content, caplog):
    caplog.set_level(logging.CRITICAL)
    path = tmp_path / "state-000000000099.json"
    path.write_bytes(content)
    refused(lambda: read_state(path), tl.StateError, path.name)
    assert latest_state(tmp_path) is None


def test_files_that_are_too_large_missing_or_no_files_are_state_errors(dataset, tmp_path):
    path = write_state(state_at(dataset), tmp_path)
    path.write_bytes(path.read_bytes() + b" " * (16 << 20))
    (tmp_path / "link.json").symlink_to(path)
    os.mkfifo(tmp_path / "pipe.json")
    for name in (path.name, "nothing.json", "", "link.json", "pipe.json"):
        refused(lambda name=name: read_state(tmp_path / name), tl.StateError, tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        {"note": "x" * (16 << 20)},
        {"note": math.nan},
        {"note": b"bytes"},
        {"note": nested(50_000)},
        {"examples": -1},
        {"format": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_state_that_could_not_be_read_again_is_not_written(dataset, tmp_path, change):
    write_state(state_at(dataset), tmp_path / "state.json")
    refused(lambda: write_state(state_at(dataset) | change, tmp_path / "state.json"), tl.StateError)
    assert os.listdir(tmp_path) == ["state.json"]
    assert read_state(tmp_path / "state.json") == state_at(dataset)


@pytest.mark.parametrize("name", ["states", "run.d", "a.json/states", "x.json", "..", "é"])
def test_what_was_written_under_a_name_is_found_under_that_name(dataset, tmp_path, name):
    """Folders that are missing are made."""
    (tmp_path / "in").mkdir()
    where = tmp_path / "in" / name
    write_state(state_at(dataset, 4), where)
    assert latest_state(where) == state_at(dataset, 4)


def test_what_is_nearly_a_url_is_no_folder(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(lambda: write_state(state_at(dataset), "s3:/bucket/s"), tl.ConfigError, "s3:/bucket/s")
    refused(lambda: latest_state("s3:/bucket/s"), tl.ConfigError, "s3:/bucket/s")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="no /proc here")
def test_every_directory_that_is_made_is_synced_into_the_one_above(dataset, tmp_path, monkeypatch):
    """Or a power loss could take the folder of a state that was synced."""
    synced, really = [], os.fsync
    note = lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), really(fd))  # noqa: E731
    monkeypatch.setattr(os, "fsync", note)
    write_state(state_at(dataset), tmp_path / "a/b/c")
    places = ("", "a", "a/b", "a/b/c")
    assert [one for one in synced if os.path.isdir(one)] == [
        str(tmp_path / place) for place in places
    ]
