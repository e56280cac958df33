"""States: small, strict, of one run only; and their files, which are whole or passed over."""

import json
import logging
import math
import os
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spoiling import places, replaced, without
from toyruns import toy_run, toy_store

import tokenloom as tl
from tokenloom.loader.state import DECIDES, latest_state, read_state, write_state
from tokenloom.store.files import LocalFiles


def state_at(dataset, steps=3, **options):
    with tl.Loader(dataset, 4, prefetch=0, **options) as loader:
        loader.seek(steps)
        return loader.state_dict()


@pytest.fixture
def dataset(store):
    return toy_run(store)


# -- what it is ----------------------------------------------------------------------------


def test_a_state_is_small_json_and_says_what_it_counts(dataset):
    state = state_at(dataset)
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    small = {key: value for key, value in state.items() if key != "dataset"}
    assert len(json.dumps(small)) < 1024
    assert set(state) == {
        "format",
        "examples",
        "step",
        "fingerprint",
        "render",
        "wrapped",
        "arrays",
        "dataset",
        "sources",
    }
    assert (state["examples"], state["step"]) == (12, 3)
    assert state["sources"] == [{"name": "main", "rows": 12, "tokens": 96, "epochs": 0}]
    assert state["dataset"] == dataset.describe()
    assert tl.from_config(state["dataset"]).fingerprint == dataset.fingerprint


INFORMATIVE = ("dataset", "sources")


def deciding(state):
    return {key: value for key, value in state.items() if key not in INFORMATIVE}


@pytest.mark.parametrize("sources", [1, 2, 30, 300])
def test_ruling_19_what_decides_is_under_1_kib_for_any_number_of_sources(store, sources, tmp_path):
    """And it is enough: `dataset` and `sources` are for people, and for messages."""
    named = {f"a source with a long name, number {n}": store.windows(8) for n in range(sources)}
    run = tl.mix(named).seed(2) if sources > 1 else store.windows(8).shuffle().epochs(9)
    run = run.take(10**6) if sources == 1 else run
    with tl.Loader(run, 4, prefetch=0, end="wrap") as loader:
        for step in (0, 3, 10**5):  # the last one has wrapped around
            state = loader.seek(step).state_dict()
            small = deciding(state)
            assert len(json.dumps(small)) < 512
            assert set(state) - set(small) == set(INFORMATIVE)
            assert (small["wrapped"] > 0) == (step == 10**5)
            again = tl.Loader(run, 2, end="wrap", prefetch=0)
            again.load_state_dict(json.loads(json.dumps(small)))
            assert again.examples == loader.examples
            assert again.state_dict()["sources"] == state["sources"]
    path = write_state(small, tmp_path / "state.json")
    assert read_state(path) == small


def test_ruling_19_a_state_without_its_description_meets_the_same_checks(store):
    run = tl.mix({"a": store.windows(8), "b": store.windows(8).shuffle()}).seed(2)
    small = deciding(state_at(run))
    edited = run.edit(at=12, weights={"b": 3})
    loader = tl.Loader(edited, 4)
    loader.load_state_dict(small)  # saved before the edit
    assert loader.examples == 12
    with pytest.raises(tl.StateError, match="the edit at 8 changes what it has already seen"):
        tl.Loader(run.edit(at=8, weights={"b": 3}), 4).load_state_dict(small)
    with pytest.raises(tl.StateError, match=r"fingerprint: the state has .*, this run has"):
        tl.Loader(run.seed(3), 4).load_state_dict(small)
    with pytest.raises(tl.StateError, match="rendered otherwise"):
        tl.Loader(run.render(pad_id=7), 4).load_state_dict(small)
    with pytest.raises(tl.StateError, match="this run ends after 8"):
        tl.Loader(run.take(8), 4).load_state_dict(small)
    for name in small:  # a control: each of these is needed
        with pytest.raises(tl.StateError, match=name):
            tl.Loader(run, 4).load_state_dict({k: v for k, v in small.items() if k != name})


def test_a_state_does_not_know_ranks_prefetch_batch_size_or_cache(store, dataset):
    states = [
        state_at(dataset),
        state_at(dataset, rank=1, world_size=2, end="pad", fetch="rows"),
        tl.Loader(dataset, 6, 2, 3, prefetch=64).seek(2).state_dict() | {"step": 3},
    ]
    assert states[0] == states[1] == states[2]


def test_a_state_holds_no_name_of_a_machine_or_user(dataset):
    words = json.dumps({k: v for k, v in state_at(dataset).items() if k != "dataset"})
    names = [os.environ.get("USER"), os.environ.get("HOSTNAME"), os.uname().nodename, os.getcwd()]
    assert not [name for name in names if name and name in words]


@pytest.mark.parametrize("kind", ["stored", "full", "lanes 2"])
def test_tokens_are_counted_with_the_short_row_where_it_stands(store, kind):
    dataset = toy_run(store, kind, epochs=2, tail="keep")
    lengths = [int((dataset[i].segment_ids > 0).sum()) for i in range(len(dataset))]
    assert sorted(set(lengths)) == [3, 8]
    with tl.Loader(dataset, 1, prefetch=0) as loader:
        for examples in range(len(dataset) + 1):
            state = loader.seek(examples).state_dict()
            assert state["sources"][0]["tokens"] == sum(lengths[:examples])
    with tl.Loader(dataset, 1, prefetch=0, end="wrap") as loader:  # the same rows again
        state = loader.seek(2 * len(dataset) + 5).state_dict()
        assert state["sources"][0]["tokens"] == 2 * sum(lengths) + sum(lengths[:5])
    with tl.Loader(dataset.take(20), 1, prefetch=0, end="wrap") as loader:
        state = loader.seek(45).state_dict()
        assert state["sources"][0]["tokens"] == 2 * sum(lengths[:20]) + sum(lengths[:5])


# -- another run ---------------------------------------------------------------------------

OTHER_RUNS = {
    "seed": (lambda ds: ds.seed(8), "seed: the state has 7, this run has 8"),
    "order": (lambda ds: ds.shuffle(10), "shuffle.kind: the state has 'full', this run has 'era'"),
    "stored order": (lambda ds: ds.shuffle(False), "shuffle.kind: the state has 'full'"),
    "perm_type": (
        lambda ds: ds.shuffle(perm_type="linear"),
        "shuffle.perm_type: the state has 'feistel', this run has 'linear'",
    ),
    "lanes": (
        lambda ds: ds.block_shuffle(window_blocks=2, lanes=2),
        "shuffle.lanes: the state has nothing, this run has 2",
    ),
}


@pytest.mark.parametrize("what", OTHER_RUNS)
def test_a_state_of_another_run_is_refused_with_both_values(dataset, what):
    change, message = OTHER_RUNS[what]
    other, state = change(dataset), state_at(dataset)
    with pytest.raises(tl.StateError) as refusal:
        tl.Loader(other, 4).load_state_dict(state)
    assert message in str(refusal.value)
    assert "allow_mismatch=True" in str(refusal.value)
    loader = tl.Loader(other, 4)
    loader.load_state_dict(state, allow_mismatch=True)
    assert next(loader).index.tolist() == list(range(12, 16)) or what == "lanes"
    assert loader.examples == 16
    loader.close()


def test_another_number_of_lanes_or_blocks_is_another_run(store):
    state = state_at(toy_run(store, "lanes 2"))
    for fields, message in (
        ({"lanes": 3}, "shuffle.lanes: the state has 2, this run has 3"),
        ({"window_blocks": 3}, "shuffle.window_blocks: the state has 2, this run has 3"),
        ({"io_block_size": 3}, "shuffle.io_block_size: the state has 4, this run has 3"),
    ):
        changed = {"window_blocks": 2, "lanes": 2} | fields
        other = toy_run(store).block_shuffle(**changed)
        with pytest.raises(tl.StateError, match=message):
            tl.Loader(other, 4).load_state_dict(state)


def test_another_cut_is_another_run(store, dataset):
    state = state_at(dataset)
    for layout, message in (
        ({"seq_len": 16}, "layout.seq_len: the state has 8, this run has 16"),
        ({"tail": "keep"}, "layout.tail: the state has 'drop', this run has 'keep'"),
        ({"lookahead": True}, "layout.lookahead: the state has False, this run has True"),
    ):
        fresh = store.windows(**({"seq_len": 8} | layout)).shuffle().seed(7).epochs(3)
        with pytest.raises(tl.StateError, match=message):
            tl.Loader(fresh, 4).load_state_dict(state)


def test_another_store_is_refused_and_a_moved_one_is_not(store, dataset, tmp_path):
    state = state_at(dataset)
    other = toy_store(tmp_path / "other", rows=38)
    with pytest.raises(tl.StateError, match=r"store.digest: the state has '[0-9a-f]{64}', this"):
        tl.Loader(toy_run(other), 4).load_state_dict(state)
    moved = toy_store(tmp_path / "moved")
    assert moved.digest == store.digest
    loader = tl.Loader(toy_run(moved), 4)
    loader.load_state_dict(state)
    assert next(loader).index.tolist() == [12, 13, 14, 15]
    loader.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"label_layout": "shifted"},
        {"mask_boundary_loss": False},
        {"position_scheme": "absolute"},
        {"ignore_id": 3},
        {"pad_id": 9},
    ],
)
def test_other_render_options_are_refused_for_themselves(dataset, fields):
    other, state = dataset.render(**fields), state_at(dataset)
    assert other.fingerprint == dataset.fingerprint
    name, value = next(iter(fields.items()))
    with pytest.raises(tl.StateError, match="rendered otherwise") as refusal:
        tl.Loader(other, 4).load_state_dict(state)
    was = dataset.describe()["render"][name]
    assert f"{name}: the state has {was!r}, this run has {value!r}" in str(refusal.value)
    loader = tl.Loader(other, 4)
    loader.load_state_dict(state, allow_mismatch=True)
    assert loader.examples == 12


@pytest.mark.parametrize("other", [lambda ds: ds.seed(99), lambda ds: ds.render(pad_id=9)])
def test_a_state_without_a_description_is_refused_with_advice_that_fits(dataset, other):
    """It said that the state holds its description, also where it does not."""
    whole = state_at(dataset)
    for state, advice in (
        ({name: whole[name] for name in DECIDES}, "compare print(run)"),
        (whole, "from_config" if other(dataset).fingerprint != dataset.fingerprint else "pad_id"),
    ):
        with pytest.raises(tl.StateError) as refusal:
            tl.Loader(other(dataset), 4).load_state_dict(state)
        assert advice in str(refusal.value)
        assert ("holds its description" in str(refusal.value)) is (advice == "from_config")
        assert "has None" not in str(refusal.value)


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
    assert (other == dataset) == (other.run.n == dataset.run.n)
    loader = tl.Loader(other, 4, end="pad")
    loader.load_state_dict(state)
    assert loader.examples == state["examples"] == 12
    if other.run.n != 12:
        assert np.array_equal(next(loader).tokens, dataset.batch(range(12, 16)).tokens)


def test_ruling_18_after_wrapping_around_the_end_counts(dataset):
    with tl.Loader(dataset, 4, end="wrap") as loader:
        state = loader.seek(30).state_dict()  # example 120 of 111
    assert state["wrapped"] == 111
    again = tl.Loader(dataset, 4, end="wrap")
    again.load_state_dict(state)
    assert np.array_equal(next(again).tokens, dataset.batch(range(9, 13)).tokens)
    for other in (dataset.epochs(4), dataset.take(100), dataset.epochs(None)):
        with pytest.raises(tl.StateError, match="its run has 111 examples and had wrapped around"):
            tl.Loader(other, 4, end="wrap").load_state_dict(state)
    for wrong in (-1, True, "111", 1.5):
        with pytest.raises(tl.StateError, match="wrapped: found"):
            tl.Loader(dataset, 4, end="wrap").load_state_dict(state | {"wrapped": wrong})


def test_a_state_of_a_longer_run_is_refused(dataset):
    state = state_at(dataset) | {"examples": 112}
    for options in ({}, {"allow_mismatch": True}):
        with pytest.raises(tl.StateError, match=r"112 examples into .* ends after 111"):
            tl.Loader(dataset, 4).load_state_dict(state, **options)
    longer = state_at(dataset.epochs(9), steps=50)
    with pytest.raises(tl.StateError, match=r"200 examples into .* ends after 111"):
        tl.Loader(dataset, 4).load_state_dict(longer, allow_mismatch=True)
    around = tl.Loader(dataset, 4, end="wrap")
    with pytest.raises(tl.StateError, match=r"112 examples into the run, but this run ends"):
        around.load_state_dict(state)  # of a longer run: it would come to other examples
    around.load_state_dict(state | {"wrapped": 111})
    assert around.examples == 112


def test_a_state_is_loaded_before_the_first_step_or_not_at_all(dataset):
    state = state_at(dataset)
    loader = tl.Loader(dataset, 4)
    next(loader)
    with pytest.raises(tl.StateError, match=r"has delivered 1 steps already.*new Loader, or use"):
        loader.load_state_dict(state)
    assert next(loader).index.tolist() == [4, 5, 6, 7]
    loader.close()
    with pytest.raises(tl.StateError, match="has delivered 2 steps already"):
        loader.load_state_dict(state)
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
    "very negative": -(10**30),
    "just too large": 2**62 + 1,
    "too large": 10**30,
    "too large to be shown": 10**5000,
    "float": 1.0,
    "nan": math.nan,
    "infinite": math.inf,
    "digits": "12",
    "empty text": "",
    "bytes": b"12",
    "empty list": [],
    "list": [12],
    "empty mapping": {},
    "mapping": {"a": 1},
    "deep": nested(50_000),
    "long": "x" * 10**6,
}


@pytest.mark.parametrize("key", DECIDES)
@pytest.mark.parametrize("name", BAD_VALUES)
def test_a_wrong_value_is_a_state_error_that_names_its_key(dataset, key, name):
    if (key, name) == ("arrays", "empty text"):
        return  # no array decided anything
    state = state_at(dataset) | {key: BAD_VALUES[name]}
    for allow in (False, True):
        with pytest.raises(tl.StateError, match=f"{key}: found") as refusal:
            tl.Loader(dataset, 4).load_state_dict(state, allow_mismatch=allow)
        assert len(str(refusal.value)) < 2000


@pytest.mark.parametrize("key", DECIDES)
def test_a_missing_key_is_a_state_error(dataset, key):
    state = state_at(dataset)
    del state[key]
    for allow in (False, True):
        with pytest.raises(tl.StateError, match=f"{key}: found None"):
            tl.Loader(dataset, 4).load_state_dict(state, allow_mismatch=allow)


def test_a_state_of_format_1_is_refused_with_one_sentence(dataset, tmp_path):
    old = state_at(dataset) | {"format": "tokenloom.state/1"}
    del old["wrapped"], old["arrays"]  # which it did not have
    path = tmp_path / "state-000000000012.json"
    path.write_text(json.dumps(old))
    for refused in (
        lambda: tl.Loader(dataset, 4).load_state_dict(old),
        lambda: tl.Loader(dataset, 4).load_state_dict(old, allow_mismatch=True),
        lambda: read_state(path),
        lambda: write_state(old, tmp_path),
    ):
        with pytest.raises(tl.StateError) as refusal:
            refused()
        said = str(refusal.value).removeprefix(f"{path}: ")
        assert said.startswith("state: format: found 'tokenloom.state/1', which this version does")
        assert len(re.findall(r"\.(?:\s|$)", said)) == 1
        assert "state_dict()" not in said
    with pytest.raises(tl.StateError, match=r"It is not what state_dict\(\) gave"):  # control
        tl.Loader(dataset, 4).load_state_dict(old | {"format": "tokenloom.state/3"})


@pytest.mark.parametrize("name", [*BAD_VALUES, "tuple", "object"])
def test_what_is_no_state_at_all_is_a_state_error(dataset, name):
    value = {"tuple": (), "object": object(), **BAD_VALUES}[name]
    with pytest.raises(tl.StateError, match="state: "):
        tl.Loader(dataset, 4).load_state_dict(value)


@pytest.mark.parametrize("name", [*BAD_VALUES, "render 3", "render huge"])
@pytest.mark.parametrize("key", ["fingerprint", "render"])
def test_a_description_that_is_none_spoils_no_message(dataset, key, name):
    """The description is for people; whatever it is, the refusal comes."""
    render = {"render 3": {"render": 3}, "render huge": {"render": {"pad_id": 10**5000}}}
    state = state_at(dataset) | {key: "0" * 64, "dataset": (render | BAD_VALUES)[name]}
    with pytest.raises(tl.StateError, match=r"another run|rendered otherwise") as refusal:
        tl.Loader(dataset, 4).load_state_dict(state)
    assert len(str(refusal.value)) < 30_000
    del state["dataset"]
    with pytest.raises(tl.StateError, match=r"another run|rendered otherwise"):
        tl.Loader(dataset, 4).load_state_dict(state)


def test_unknown_keys_are_left_alone(dataset):
    loader = tl.Loader(dataset, 4)
    loader.load_state_dict(state_at(dataset) | {"trainer": {"epoch": 3}, "note": nested(50_000)})
    assert loader.examples == 12


def test_the_largest_state_there_can_be_goes_on(store):
    endless = toy_run(store, epochs=None)
    loader = tl.Loader(endless, 4, prefetch=0)
    loader.load_state_dict(state_at(endless) | {"examples": 2**62 - 2, "step": 2**62})
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


def test_a_mutated_state_loads_or_is_a_state_error(dataset):
    outcomes = fuzz(dataset, 400)
    assert outcomes["refused"] > 40
    assert outcomes["loads"] > 40  # what was changed was for people only


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:state. it was saved with other cached arrays")
def test_s7_ten_thousand_mutated_states(dataset):
    outcomes = fuzz(dataset, 10_000)
    assert min(outcomes.values()) > 2000


# -- files ---------------------------------------------------------------------------------


def test_a_state_comes_back_from_its_file(dataset, tmp_path):
    state = state_at(dataset)
    assert write_state(state, tmp_path / "here.json") == tmp_path / "here.json"
    assert read_state(tmp_path / "here.json") == state
    assert write_state(state, tmp_path) == tmp_path / "state-000000000012.json"
    assert latest_state(tmp_path) == state
    write_state(state_at(dataset, 5), tmp_path / "here.json")  # replaced
    assert read_state(tmp_path / "here.json")["examples"] == 20
    assert sorted(os.listdir(tmp_path)) == ["here.json", "state-000000000012.json"]


def test_the_state_with_the_most_examples_is_the_latest(dataset, tmp_path):
    assert latest_state(tmp_path) is None
    assert latest_state(tmp_path / "missing") is None
    for examples in (8, 10**12 - 1, 10**12, 3 * 10**15, 5):
        write_state(state_at(dataset) | {"examples": examples}, tmp_path)
    assert latest_state(tmp_path)["examples"] == 3 * 10**15
    os.remove(tmp_path / f"state-{3 * 10**15}.json")
    assert latest_state(tmp_path)["examples"] == 10**12
    os.remove(tmp_path / f"state-{10**12}.json")
    assert latest_state(tmp_path)["examples"] == 10**12 - 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 4096,
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"{}",
        b"[]",
        b"12",
        b"NaN",
        b'{"examples": 1' + b"0" * 5000 + b"}",
        b"{" + b'"a":{' * 50_000,
    ],
)
def test_a_file_that_holds_no_state_is_a_state_error(dataset, tmp_path, content, caplog):
    caplog.set_level(logging.CRITICAL)
    path = tmp_path / "state-000000000099.json"
    path.write_bytes(content)
    with pytest.raises(tl.StateError, match=r"state-000000000099.json"):
        read_state(path)
    assert latest_state(tmp_path) is None


def test_files_that_are_too_large_missing_or_no_files_are_state_errors(dataset, tmp_path):
    path = write_state(state_at(dataset), tmp_path)
    path.write_bytes(path.read_bytes() + b" " * (16 << 20))
    with pytest.raises(tl.StateError, match=r"allowed(:| are) 16,777,216"):
        read_state(path)
    with pytest.raises(tl.StateError, match="no such file"):
        read_state(tmp_path / "nothing.json")
    with pytest.raises(tl.StateError, match="Is a directory"):
        read_state(tmp_path)
    (tmp_path / "link.json").symlink_to(path)
    with pytest.raises(tl.StateError, match=r"link\.json"):
        read_state(tmp_path / "link.json")
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(tl.StateError, match="not a regular file"):
        read_state(tmp_path / "pipe.json")


@pytest.mark.parametrize(
    "change",
    [
        {"note": "x" * (16 << 20)},
        {"note": math.nan},
        {"note": b"bytes"},
        {"note": nested(50_000)},
        {"examples": "12"},
        {"examples": -1},
        {"format": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_state_that_could_not_be_read_again_is_not_written(dataset, tmp_path, change):
    write_state(state_at(dataset), tmp_path / "state.json")
    with pytest.raises(tl.StateError):
        write_state(state_at(dataset) | change, tmp_path / "state.json")
    assert os.listdir(tmp_path) == ["state.json"]
    assert read_state(tmp_path / "state.json") == state_at(dataset)


def test_a_kill_while_writing_leaves_the_old_state(dataset, tmp_path, monkeypatch):
    old = state_at(dataset, 3)
    path = write_state(old, tmp_path)

    def killed(*_):
        raise KeyboardInterrupt

    for call in ("fsync", "replace"):
        new = state_at(dataset, 5)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, killed)
            with pytest.raises(KeyboardInterrupt):
                write_state(new, tmp_path)
        assert os.listdir(tmp_path) == [path.name]
        assert latest_state(tmp_path) == old


def test_half_written_temporary_files_are_not_states(dataset, tmp_path):
    write_state(state_at(dataset), tmp_path)
    (tmp_path / ".tmp-0123456789abcdef0123456789abcdef").write_bytes(b'{"examples": 99')
    (tmp_path / "state-99.json").write_bytes(b"{}")
    (tmp_path / "state-٠٠٠٠٠٠٠٠٠٠٩٩.json").write_bytes(b"{}")
    assert latest_state(tmp_path)["examples"] == 12


@pytest.mark.parametrize("order", ["stored", "full", "era", "block", "lanes"])
def test_ruling_18_no_number_of_epochs_changes_what_is_where(store, order):
    layouts = {
        "windows": store.windows(8),
        "kept tail": store.windows(8, tail="keep"),
        "look ahead": store.windows(8, lookahead=True),
        "packed": store.pack(16),
        "in groups": store.pack(16, group_docs=3),
        "sequential": store.pack(16, strategy="sequential"),
        "spliced": store.splice(16, content_length=4),
        "enumerated": store.splice(16, content_length=4, sampler="enumerate"),
        "jitter": store.splice(16, content_length=4, offset_jitter=2),
        "chosen": store.select(num_docs=4).windows(8),
    }
    for name, rows in layouts.items():
        run = {
            "stored": lambda ds=rows: ds,
            "full": lambda ds=rows: ds.shuffle(),
            "era": lambda ds=rows: ds.era_shuffle(5),
            "block": lambda ds=rows: ds.block_shuffle(io_block_size=3, window_blocks=2),
            "lanes": lambda ds=rows: ds.block_shuffle(io_block_size=3, window_blocks=2, lanes=2),
        }[order]().seed(5)
        whole = run.epochs(5)
        for epochs in (1, 2, 3, None):
            part = run.epochs(epochs)
            assert part.fingerprint == whole.fingerprint
            wanted = np.arange(len(whole) if epochs is None else len(part))
            for a, b in zip(part.run.locate(wanted), whole.run.locate(wanted), strict=True):
                assert np.array_equal(a, b), (name, epochs)


# -- folders -------------------------------------------------------------------------------


def test_a_missing_folder_is_made_and_what_was_written_is_found(dataset, tmp_path):
    """The finding: write_state into a folder that was missing wrote a file that nobody found."""
    folder = tmp_path / "run/7/states"
    for steps in (2, 3):
        path = write_state(state_at(dataset, steps), folder)
        assert path.parent == folder
    assert latest_state(folder) == state_at(dataset, 3)
    path = write_state(state_at(dataset, 5), tmp_path / "other/deep/mine.json")
    assert path == tmp_path / "other/deep/mine.json"
    assert latest_state(path) == latest_state(path.parent) == state_at(dataset, 5)


@pytest.mark.parametrize("name", ["states", "s", "run.d", "a.json/states", "x.json", "..", "é"])
def test_whatever_name_is_written_to_the_same_name_finds_it(dataset, tmp_path, name):
    (tmp_path / "in").mkdir()
    where = tmp_path / "in" / name
    write_state(state_at(dataset, 4), where)
    assert latest_state(where) == state_at(dataset, 4)


def test_the_state_with_the_most_examples_wins_under_whatever_name(dataset, tmp_path):
    write_state(state_at(dataset, 4), tmp_path)
    write_state(state_at(dataset, 6), tmp_path / "before-the-edit.json")
    (tmp_path / "trainer_state.json").write_text('{"step": 9}')
    (tmp_path / "notes.txt").write_text("n")
    os.mkfifo(tmp_path / "pipe.json")
    assert latest_state(tmp_path) == state_at(dataset, 6)
    write_state(state_at(dataset, 7), tmp_path)
    assert latest_state(tmp_path) == state_at(dataset, 7)
    mine = state_at(dataset, 7) | {"step": 5}
    write_state(mine, tmp_path / "mine.json")
    assert latest_state(tmp_path) == mine, "of two with as many examples, the one with a name"


def test_what_is_nearly_a_url_is_no_folder(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tl.ConfigError, match="allowed: scheme://bucket/key"):
        write_state(state_at(dataset), "s3:/bucket/states")
    with pytest.raises(tl.ConfigError, match="allowed: scheme://bucket/key"):
        latest_state("s3:/bucket/states")
    assert os.listdir(tmp_path) == []


def test_every_directory_that_is_made_is_written_into_the_one_above(dataset, tmp_path, monkeypatch):
    """Or a power loss could take the folder of a state that was synced."""
    synced, really = [], LocalFiles.sync_directory
    monkeypatch.setattr(
        LocalFiles, "sync_directory", lambda self, path: (synced.append(path), really(self, path))
    )
    write_state(state_at(dataset), tmp_path / "a/b/c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/c"]
    synced.clear()
    write_state(state_at(dataset), tmp_path / "a/b/c")
    assert synced == [tmp_path / "a/b/c"]
