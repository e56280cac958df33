import copy
import dataclasses
import json
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from toydata import ARRAYS, ToyStore, numbered

import tokenloom as tl
from tokenloom.api import describe as description
from tokenloom.order.shuffle import EraShuffle, FullShuffle
from tokenloom.store.byte_source import LocalSource

pytestmark = pytest.mark.filterwarnings("ignore:seq_len", "ignore:block_shuffle")


@pytest.fixture(scope="module")
def toy():
    with ToyStore(numbered([[9, 0, 14, 5], [30, 1, 1], [7] * 6], first=1), chunk_tokens=32) as made:
        yield made


counts = st.none() | st.integers(1, 6)
perm_types = st.sampled_from(["feistel", "linear", "levanter"])
shuffles = st.one_of(
    st.none(),
    st.builds(FullShuffle, perm_type=perm_types),
    st.builds(EraShuffle, length=st.integers(1, 40), perm_type=perm_types),
    st.builds(
        tl.BlockShuffle,
        io_block_size=counts,
        window_blocks=counts,
        lanes=st.integers(1, 3),
        shuffle_block_size=counts,
        cache_windows=counts,
        perm_type=st.sampled_from(["feistel", "linear"]),
    ),
)
layouts = st.fixed_dictionaries(
    {"seq_len": st.integers(1, 9)},
    optional={
        "tail": st.sampled_from(["drop", "keep"]),
        "lookahead": st.booleans(),
        "align": st.booleans(),
        "label_layout": st.sampled_from(["aligned", "shifted"]),
        "position_scheme": st.sampled_from(["reset", "absolute"]),
        "ignore_id": st.none() | st.integers(0, 9),
        "pad_id": st.integers(0, 9),
    },
)
choices = st.none() | st.tuples(
    st.sampled_from(["id", "content"]), st.integers(0, 2**64 - 1), st.sampled_from(["a", "b"])
)


@st.composite
def recipes(draw):
    """How to make a dataset of a store."""
    layout, choice, shuffle = draw(layouts), draw(choices), draw(shuffles)
    epochs = draw(st.none() | st.integers(0, 3))
    seed = draw(st.none() | st.integers(0, 2**64 - 1))
    take = draw(st.none() | st.integers(0, 50))

    def make(store):
        options = dict(layout)
        source = store
        if choice is not None:
            by, key, part = choice
            source = store.split({"a": 0.6, "b": 0.4}, by=by, seed=key)[part]
        made = source.windows(options.pop("seq_len"), mask_boundary_loss=False, **options)
        made = made.shuffle(shuffle if shuffle is not None else False).epochs(epochs)
        made = made if seed is None else made.seed(seed)
        return made if take is None else made.take(take)

    return make


def some(dataset):
    return np.arange(min(dataset.run.n if dataset.is_finite else 60, 60))


def assert_equal_batches(one, other, indices):
    a, b = one.batch(indices), other.batch(indices)
    names = ARRAYS if a.trained().any() else ("tokens", "segment_ids", "position_ids", "index")
    for name in names:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)


@given(recipes())
def test_a_description_gives_the_dataset_back(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ToyStore(numbered([[9, 0, 14], [30, 1]], first=1), chunk_tokens=32) as toy:
            dataset = make(toy.store)
            text = json.dumps(dataset.describe())
            again = tl.from_config(json.loads(text), cache_bytes=1 << 20)
            assert again.describe() == dataset.describe()
            assert json.dumps(again.describe()) == text
            assert again.fingerprint == dataset.fingerprint
            assert again.is_finite == dataset.is_finite
            assert_equal_batches(dataset, again, some(dataset))
            travelled = pickle.loads(pickle.dumps(dataset))
            assert travelled.fingerprint == dataset.fingerprint
            assert travelled.cache_bytes == dataset.cache_bytes
            assert_equal_batches(dataset, travelled, some(dataset))


def made(toy):
    return toy.store.windows(4).block_shuffle(window_blocks=2).seed(3).epochs(2)


def test_every_number_left_open_is_written_down(toy):
    described = toy.store.windows(4).block_shuffle().describe()
    assert described["shuffle"] == {
        "kind": "block",
        "io_block_size": 8,
        "window_blocks": 512,
        "lanes": 1,
        "perm_type": "feistel",
        "shuffle_block_size": None,
    }
    assert described["seed"] == 0
    assert described["store"]["digest"] == toy.store.digest
    assert described["store"]["path"] == str(toy.path)


def test_the_fingerprint_is_of_what_is_trained_when(toy):
    dataset = made(toy)
    different = [
        dataset.seed(4),
        dataset.shuffle(),
        dataset.shuffle(False),
        dataset.shuffle(4),
        dataset.block_shuffle(window_blocks=3),
        dataset.block_shuffle(window_blocks=2, lanes=2),
        dataset.block_shuffle(window_blocks=2, perm_type="linear"),
        toy.store.windows(5).block_shuffle(window_blocks=2).seed(3).epochs(2),
        toy.store.windows(4, tail="keep").block_shuffle(window_blocks=2).seed(3).epochs(2),
        toy.store.split({"a": 1})["a"].windows(4).block_shuffle(window_blocks=2).seed(3).epochs(2),
    ]
    prints = [one.fingerprint for one in different]
    assert len({dataset.fingerprint, *prints}) == len(prints) + 1
    assert all(len(one) == 64 and int(one, 16) >= 0 for one in prints)


def test_the_fingerprint_is_not_of_memory_or_rendering(toy):
    dataset = made(toy)
    same = [
        dataset.block_shuffle(window_blocks=2, cache_windows=3),
        dataset.block_shuffle(window_blocks=2, io_block_size=8),  # what it comes down to anyway
        dataset.render(mask_boundary_loss=False, label_layout="shifted", pad_id=9),
    ]
    assert {one.fingerprint for one in same} == {dataset.fingerprint}
    hashes = [description.render_fingerprint(one.describe()) for one in (dataset, *same)]
    assert len(set(hashes)) == 2


def test_runs_are_equal_if_they_give_the_same_arrays_in_the_same_order_to_the_same_end(toy):
    """`run == same_run` was False; equal runs are one key of a dict."""
    run = made(toy)
    same = [
        made(toy),
        run.block_shuffle(window_blocks=2, cache_windows=3),
        tl.from_config(run.describe()),
        toy.store.windows(4).epochs(2).seed(3).block_shuffle(window_blocks=2),
    ]
    assert all(one == run and hash(one) == hash(run) for one in same)
    assert len({run, *same}) == 1
    other = [run.seed(4), run.epochs(3), run.take(5), run.render(pad_id=9), run.shuffle()]
    assert all(one != run for one in other)
    assert len({run, *other}) == 1 + len(other)
    assert run != run.describe()
    mixed = [tl.mix({"a": one, "b": run.shuffle()}).seed(1) for one in (run, same[0], other[0])]
    assert mixed[0] == mixed[1] != mixed[2]
    assert mixed[0] != mixed[0].edit(at=2, weights={"a": 2})


def test_the_fingerprint_is_not_of_the_place(toy, tmp_path):
    shutil.copytree(toy.path, tmp_path / "moved")
    there = tl.open(tmp_path / "moved").windows(4).block_shuffle(window_blocks=2).seed(3).epochs(2)
    assert there.fingerprint == made(toy).fingerprint
    again = tl.from_config(made(toy).describe(), path=str(tmp_path / "moved"))
    assert again.sources["main"].path == str(tmp_path / "moved")
    assert again.fingerprint == made(toy).fingerprint


def test_a_described_run_is_read_as_asked(toy):
    run = toy.store.windows(4)
    source = LocalSource(toy.path)
    again = tl.from_config(
        run.describe(),
        verify="always",
        cache_bytes=1 << 20,
        gap_bytes=7,
        cap_bytes=1 << 12,
        source=source,
    )
    reader = again.sources["main"].reader
    assert (reader.rules.verify, reader.rules.gap, reader.rules.cap) == ("always", 7, 1 << 12)
    assert reader.cache.capacity == 1 << 20
    assert reader.source is source
    with pytest.raises(tl.ConfigError, match="seq_len: found 8"):
        tl.from_config(run.describe(), seq_len=8)


def test_a_seed_of_nought_is_the_seed_nobody_gave(toy):
    dataset = toy.store.windows(4).shuffle()
    assert dataset.fingerprint == dataset.seed(0).fingerprint


@pytest.mark.parametrize("windows", [None, 1, 8])
def test_the_windows_kept_in_memory_come_back(toy, windows):
    """SH-07: a published setting serialises whole, and memory is no identity."""
    published = dataclasses.replace(tl.BlockShuffle.published(), cache_windows=windows)
    store = tl.open(toy.path)
    dataset = store.windows(4).block_shuffle(published)
    described = dataset.describe()
    assert described["shuffle"].get("cache_windows") == windows
    for again in (tl.from_config(json.loads(json.dumps(described))), pickled(dataset)):
        assert again.describe() == described
        assert again.sources["main"].config.shuffle.cache_windows == windows
        assert again.cache_bytes == dataset.cache_bytes
        assert again == dataset
    assert dataset.fingerprint == toy.store.windows(4).block_shuffle(window_blocks=8).fingerprint
    mixed = tl.mix({"a": dataset, "b": store.windows(4).shuffle()})
    again = tl.from_config(mixed.describe())
    assert again.sources["a"].config.shuffle.cache_windows == windows
    assert again.cache_bytes == mixed.cache_bytes


def pickled(dataset):
    return pickle.loads(pickle.dumps(dataset))


@pytest.mark.parametrize("path", ["./s", "s", "../{}/s", "s/", "s/../s", ".//s", Path("./s")])
def test_a_path_stays_as_it_was_written(tmp_path, monkeypatch, path):
    """Ruling 19: nothing is made absolute or tidied up."""
    monkeypatch.chdir(tmp_path)
    first = tl.build([{"text": "abcdefgh"}], tmp_path / "s", tokenizer="bytes")
    written = str(path).format(tmp_path.name)
    store = tl.open(path if isinstance(path, Path) else written)
    tl.build([{"text": "ijkl"}], tmp_path / "s", tokenizer="bytes", append=True)
    newest = tl.open(written)
    runs = {
        "alone": store.windows(2),
        "chosen": store.select(num_docs=1).windows(2),
        "part": store.split({"a": 1.0})["a"].windows(2),
        "sent": pickled(store).windows(2),
    }
    for name, run in runs.items():
        assert run.describe()["store"]["path"] == written, name
        assert tl.from_config(run.describe()).describe() == run.describe()
        assert run == tl.from_config(run.describe(), path=str(tmp_path / "s"))
    grown = store.windows(2).edit(at=1, append={"main": newest})
    assert grown.describe()["edits"][0]["append"]["main"]["path"] == written
    assert first.digest == store.digest


# -- written by hand -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "make"),
    [
        ({"kind": "windows", "seq_len": 4}, lambda s: s.windows(4)),
        (
            {"kind": "windows", "seq_len": 4, "lookahead": True},
            lambda s: s.windows(4, lookahead=True),
        ),
        ({"kind": "pack", "seq_len": 8}, lambda s: s.pack(8)),
        (
            {"kind": "pack", "seq_len": 8, "strategy": "greedy"},
            lambda s: s.pack(8, strategy="greedy"),
        ),
        ({"kind": "splice", "seq_len": 8, "content_length": 4}, None),
    ],
    ids=lambda one: one.get("strategy", one["kind"]) if isinstance(one, dict) else "made",
)
@pytest.mark.parametrize(
    ("shuffle", "same"),
    [
        (None, False),
        (True, True),
        (8, 8),
        ({"window_blocks": 2}, tl.BlockShuffle(window_blocks=2)),
        ({"kind": "era", "length": 8}, 8),
    ],
    ids=str,
)
def test_a_config_written_by_hand_needs_no_derived_keys(toy, layout, make, shuffle, same):
    config = {"store": {"path": str(toy.path)}, "layout": layout, "shuffle": shuffle, "seed": 3}
    found = tl.from_config(config)
    if make is not None:
        assert found == make(toy.store).shuffle(same).seed(3)
    assert tl.from_config(found.describe()) == found
    least = tl.from_config({"store": {"path": str(toy.path)}, "layout": layout})
    assert make is None or least == make(toy.store)


@pytest.mark.parametrize(
    "path",
    [
        "format",
        "order_version",
        "name",
        "choice",
        "epochs",
        "take",
        "render",
        "render.pad_id",
        "store.digest",
        "store.documents",
        "store.tokens",
        "store.snapshot",
    ],
)
def test_each_derived_key_may_be_left_out(toy, path):
    dataset = toy.store.windows(4).block_shuffle(window_blocks=2).seed(3)
    assert tl.from_config(changed(dataset.describe(), path, KeyError)) == dataset


def test_a_mix_written_by_hand(toy):
    config = {
        "mix": {"weights": {"a": 1, "b": 2}, "rule": "weights", "seed": 5},
        "sources": [
            {"name": name, "store": {"path": str(toy.path)}, "layout": layout, "shuffle": True}
            for name, layout in (
                ("a", {"kind": "windows", "seq_len": 8}),
                ("b", {"kind": "pack", "seq_len": 8}),
            )
        ],
    }
    sources = {"a": toy.store.windows(8).shuffle(), "b": toy.store.pack(8).shuffle()}
    expected = tl.mix(sources, weights={"a": 1, "b": 2}, rule="weights").seed(5)
    assert tl.from_config(config) == expected


# -- what is refused -----------------------------------------------------------------------


def changed(config, path, value):
    config = copy.deepcopy(config)
    *outer, last = path.split(".")
    inner = config
    for name in outer:
        inner = inner[name]
    if value is KeyError:
        del inner[last]
    else:
        inner[last] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("colour", "red", "$.colour: "),
        ("store", KeyError, "$.store: "),
        ("format", "tokenloom.dataset/9", "$.format: found 'tokenloom.dataset/9'"),
        ("order_version", 99, "$.order_version: found 99"),
        ("seed", "7", "$.seed: found '7'"),
        ("seed", -1, "$.seed: found -1"),
        ("seed", True, "$.seed: found True"),
        ("epochs", "two", "$.epochs: found 'two'"),
        ("take", 1.5, "$.take: found 1.5"),
        ("name", 5, "$.name: found 5"),
        ("store", [], "$.store: found []"),
        ("store.path", KeyError, "$.store.path: "),
        ("store.snapshot", "x", "$.store.snapshot: found 'x'"),
        ("layout.kind", "packs", "$.layout.kind: found 'packs'"),
        ("layout.kind", KeyError, "$.layout.kind: found None"),
        ("layout.seq_len", 0, "seq_len: found 0"),
        ("layout.sequence", 4, "$.layout.sequence: "),
        ("shuffle", "full", "$.shuffle: found 'full'"),
        ("shuffle.kind", "ful", "$.shuffle.kind: found 'ful'"),
        ("shuffle", 0, "shuffle: found era length 0"),
        ("shuffle.lanes", 0, "lanes: found 0"),
        ("shuffle.length", 8, "$.shuffle.length: "),
        ("choice", {"part": "a"}, "$.choice.names: "),
        ("choice", {"names": ["a", "b"], "shares": [1.0], "part": "a"}, "$.choice: split: "),
        ("choice", {"names": ["a", "b"], "shares": [0.5, 0.5], "part": "x"}, "split.part: "),
        ("render", None, "$.render: found None"),
        ("render.pad_id", "x", "$.render.pad_id: found 'x'"),
        ("render.label_layout", "hf", "label_layout: found 'hf'"),
    ],
)
def test_a_wrong_description_is_refused_by_its_path(toy, path, value, named):
    config = changed(made(toy).describe(), path, value)
    refused(lambda: tl.from_config(config), tl.ConfigError, named)


@pytest.mark.parametrize("config", [None, [], "stores/wiki", 5, {}])
def test_what_is_no_description_is_refused(config):
    with pytest.raises(tl.ConfigError, match=r"\$"):
        tl.from_config(config)


def test_all_problems_are_told_at_once(toy):
    config = made(toy).describe()
    for path, value in (("seed", "x"), ("epochs", "y"), ("colour", 1), ("render.pad_id", None)):
        config = changed(config, path, value)
    lines = refused(lambda: tl.from_config(config), tl.ConfigError).splitlines()
    assert len(lines) == 4
    assert all(line.startswith("$.") for line in lines)


def test_another_store_is_refused_with_both_digests(toy):
    with ToyStore(numbered([[40]])) as other:
        config = made(toy).describe()
        refused(
            lambda: tl.from_config(config, path=str(other.path)),
            tl.ConfigError,
            *(str(other.path), other.store.digest, toy.store.digest),
        )


def test_a_store_that_is_gone_is_named(toy, tmp_path):
    with pytest.raises(tl.StoreNotFound, match="nowhere"):
        tl.from_config(made(toy).describe(), path=str(tmp_path / "nowhere"))


def test_a_description_pins_its_snapshot(tmp_path):
    first = tl.build([{"text": "abcdefgh"}], tmp_path / "s", tokenizer="bytes").windows(2)
    tl.build([{"text": "ijkl"}], tmp_path / "s", tokenizer="bytes", append=True)
    again = tl.from_config(first.describe())
    assert (len(again), again.fingerprint) == (4, first.fingerprint)
    newest = tl.open(tmp_path / "s").windows(2)
    assert (len(newest), newest.fingerprint == first.fingerprint) == (6, False)


# -- other processes -----------------------------------------------------------------------


def test_a_dataset_travels_with_the_way_its_store_was_opened(toy):
    hints = {"verify": "always", "gap_bytes": 16, "cap_bytes": 64, "cache_bytes": 12345}
    store = tl.open(toy.path, **hints)
    there = pickle.loads(pickle.dumps(store.windows(4).shuffle()))
    assert there.sources["main"].reader.rules == store.reader.rules
    assert there.cache_bytes == 12345
    shared = pickle.loads(pickle.dumps(tl.open(toy.path).windows(4)))
    assert shared.sources["main"].reader.cache is tl.open(toy.path).reader.cache


def test_a_pickled_dataset_is_the_same_in_another_process(toy, tmp_path):
    dataset = made(toy)
    (tmp_path / "dataset.pickle").write_bytes(pickle.dumps(dataset))
    code = (
        "import pickle, sys; ds = pickle.load(open(sys.argv[1], 'rb'));"
        "print(ds.fingerprint, ds.batch([5, 1]).tokens.tolist())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "dataset.pickle")]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert answer.strip() == f"{dataset.fingerprint} {dataset.batch([5, 1]).tokens.tolist()}"


# -- plain functions -----------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values, json_values)
def test_two_descriptions_differ_where_a_leaf_does(one, other):
    saved, now = {"a": one}, {"a": other}
    assert description.differences(saved, saved) == []
    lines = description.differences(saved, now)
    leaves = [dict(description.flattened(value)) for value in (saved, now)]
    keys = leaves[0].keys() | leaves[1].keys()
    missing = object()
    expected = [k for k in keys if leaves[0].get(k, missing) != leaves[1].get(k, missing)]
    assert [line.split(":")[0] for line in lines] == sorted(expected)
    assert (description.fingerprint(saved) == description.fingerprint(now)) >= (saved == now)


def test_a_setting_that_only_one_of_them_has_is_told_by_its_keys():
    plain, shuffled = {"shuffle": None}, {"shuffle": {"kind": "full", "perm_type": "feistel"}}
    there = "shuffle.kind: the state has nothing, this run has 'full'"
    lines = description.differences(plain, shuffled)
    assert there in lines
    assert not [line for line in lines if line.startswith("shuffle:")]
    assert len(description.differences(shuffled, plain)) == len(lines) == 2


def test_a_description_of_format_1_is_refused(toy):
    run = toy.store.windows(8).shuffle()
    for one in (run, tl.mix({"a": run, "b": toy.store.pack(8)})):
        old = one.describe() | {"format": "tokenloom.dataset/1"}
        del old["order_version"]
        old["pack"] = {"of": "another time"}  # whatever else is wrong with it
        refused(
            lambda old=old: tl.from_config(old),
            tl.ConfigError,
            "$.format: found 'tokenloom.dataset/1'",
        )
