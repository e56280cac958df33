"""A description is plain JSON, makes the same run again, or is refused by path."""

import copy
import dataclasses
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from counted import CountedFiles
from refusals import refused

import tokenloom as tl
from tokenloom.testing import FaultSource, write_store

pytestmark = pytest.mark.filterwarnings("ignore:seq_len", "ignore:block_shuffle")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    lengths, first, shards = [[9, 0, 14, 5], [30, 1, 1], [7] * 6], 1, []
    for shard in lengths:
        shards.append([])
        for length in shard:
            shards[-1].append(list(range(first, first + length)))
            first += length
    root = tmp_path_factory.mktemp("described") / "toy"
    write_store(root, shards, inner=4, chunk_tokens=32)
    return tl.open(root, cache_bytes=1 << 20)


def made(store):
    return store.windows(4).block_shuffle(window_blocks=2).seed(3).epochs(2)


def test_every_number_left_open_is_written_down(store):
    described = store.windows(4).block_shuffle().describe()
    assert described["shuffle"] == {
        "kind": "block",
        "io_block_size": 8,
        "window_blocks": 512,
        "lanes": 1,
        "perm_type": "feistel",
        "shuffle_block_size": None,
    }
    assert described["seed"] == 0
    assert described["store"]["digest"] == store.digest
    assert described["store"]["path"] == str(store.path)


def test_the_fingerprint_is_of_what_is_trained_when(store):
    dataset = made(store)
    different = [
        dataset.seed(4),
        dataset.shuffle(),
        dataset.shuffle(False),
        dataset.shuffle(4),
        dataset.block_shuffle(window_blocks=3),
        dataset.block_shuffle(window_blocks=2, lanes=2),
        dataset.block_shuffle(window_blocks=2, perm_type="linear"),
        store.windows(5).block_shuffle(window_blocks=2).seed(3).epochs(2),
        store.windows(4, tail="keep").block_shuffle(window_blocks=2).seed(3).epochs(2),
        store.split({"a": 1})["a"].windows(4).block_shuffle(window_blocks=2).seed(3).epochs(2),
    ]
    prints = [one.fingerprint for one in different]
    assert len({dataset.fingerprint, *prints}) == len(prints) + 1
    assert all(len(one) == 64 and int(one, 16) >= 0 for one in prints)


def test_the_fingerprint_is_not_of_memory_or_rendering(store):
    dataset = made(store)
    same = [
        dataset.block_shuffle(window_blocks=2, cache_windows=3),
        dataset.block_shuffle(window_blocks=2, io_block_size=8),  # what it comes down to anyway
        dataset.render(mask_boundary_loss=False, label_layout="shifted", pad_id=9),
    ]
    assert {one.fingerprint for one in same} == {dataset.fingerprint}
    hashes = [one.render_fingerprint for one in (dataset, *same)]
    assert len(set(hashes)) == 2


def test_runs_are_equal_if_they_give_the_same_arrays_in_the_same_order_to_the_same_end(store):
    """`run == same_run` was False; equal runs are one key of a dict."""
    run = made(store)
    same = [
        made(store),
        run.block_shuffle(window_blocks=2, cache_windows=3),
        tl.from_config(run.describe()),
        store.windows(4).epochs(2).seed(3).block_shuffle(window_blocks=2),
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


def test_the_fingerprint_is_not_of_the_place(store, tmp_path):
    shutil.copytree(store.path, tmp_path / "moved")
    there = tl.open(tmp_path / "moved").windows(4).block_shuffle(window_blocks=2).seed(3).epochs(2)
    assert there.fingerprint == made(store).fingerprint
    again = tl.from_config(made(store).describe(), path=str(tmp_path / "moved"))
    assert again.sources["main"].path == str(tmp_path / "moved")
    assert again.fingerprint == made(store).fingerprint


def test_a_described_run_is_read_as_asked(store):
    run = store.windows(4)
    source = FaultSource(CountedFiles(store.path))
    again = tl.from_config(run.describe(), verify="always", cache_bytes=1 << 16, source=source)
    assert again.cache_bytes == 1 << 16
    assert np.array_equal(again.batch([0, 3]).tokens, run.batch([0, 3]).tokens)
    assert source.requests
    broken = FaultSource(CountedFiles(store.path), at=1, action="flip", forever=True, only="ids/c")
    again = tl.from_config(run.describe(), verify="always", source=broken)
    refused(lambda: again.batch([0]), tl.StoreCorrupt)


def test_a_seed_of_nought_is_the_seed_nobody_gave(store):
    dataset = store.windows(4).shuffle()
    assert dataset.fingerprint == dataset.seed(0).fingerprint


@pytest.mark.parametrize("windows", [None, 1, 8])
def test_the_windows_kept_in_memory_come_back(store, windows):
    """SH-07: a published setting serialises whole, and memory is no identity."""
    published = dataclasses.replace(tl.BlockShuffle.published(), cache_windows=windows)
    store = tl.open(store.path)
    dataset = store.windows(4).block_shuffle(published)
    described = dataset.describe()
    assert described["shuffle"].get("cache_windows") == windows
    for again in (tl.from_config(json.loads(json.dumps(described))), pickled(dataset)):
        assert again.describe() == described
        assert again.cache_bytes == dataset.cache_bytes
        assert again == dataset
    assert dataset.fingerprint == store.windows(4).block_shuffle(window_blocks=8).fingerprint
    mixed = tl.mix({"a": dataset, "b": store.windows(4).shuffle()})
    again = tl.from_config(mixed.describe())
    assert again.describe() == mixed.describe()
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
def test_a_config_written_by_hand_needs_no_derived_keys(store, layout, make, shuffle, same):
    config = {"store": {"path": str(store.path)}, "layout": layout, "shuffle": shuffle, "seed": 3}
    found = tl.from_config(config)
    if make is not None:
        assert found == make(store).shuffle(same).seed(3)
    assert tl.from_config(found.describe()) == found
    least = tl.from_config({"store": {"path": str(store.path)}, "layout": layout})
    assert make is None or least == make(store)


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
def test_each_derived_key_may_be_left_out(store, path):
    dataset = store.windows(4).block_shuffle(window_blocks=2).seed(3)
    assert tl.from_config(changed(dataset.describe(), path, KeyError)) == dataset


def test_a_mix_written_by_hand(store):
    config = {
        "mix": {"weights": {"a": 1, "b": 2}, "rule": "weights", "seed": 5},
        "sources": [
            {"name": name, "store": {"path": str(store.path)}, "layout": layout, "shuffle": True}
            for name, layout in (
                ("a", {"kind": "windows", "seq_len": 8}),
                ("b", {"kind": "pack", "seq_len": 8}),
            )
        ],
    }
    sources = {"a": store.windows(8).shuffle(), "b": store.pack(8).shuffle()}
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
def test_a_wrong_description_is_refused_by_its_path(store, path, value, named):
    config = changed(made(store).describe(), path, value)
    refused(lambda: tl.from_config(config), tl.ConfigError, named)


@pytest.mark.parametrize("config", [None, [], "stores/wiki", 5, {}])
def test_what_is_no_description_is_refused(config):
    refused(lambda: tl.from_config(config), tl.ConfigError, "$")


def test_all_problems_are_told_at_once(store):
    config = made(store).describe()
    for path, value in (("seed", "x"), ("epochs", "y"), ("colour", 1), ("render.pad_id", None)):
        config = changed(config, path, value)
    lines = refused(lambda: tl.from_config(config), tl.ConfigError).splitlines()
    assert len(lines) == 4
    assert all(line.startswith("$.") for line in lines)


def test_another_store_is_refused_with_both_digests(store, tmp_path):
    other = write_store(tmp_path / "other", [[list(range(40))]])
    config = made(store).describe()
    digests = other.digest, store.digest
    refused(
        lambda: tl.from_config(config, path=str(other.path)), tl.ConfigError, other.path, *digests
    )


def test_a_store_that_is_gone_is_named(store, tmp_path):
    with pytest.raises(tl.StoreNotFound, match="nowhere"):
        tl.from_config(made(store).describe(), path=str(tmp_path / "nowhere"))


def test_a_description_pins_its_snapshot(tmp_path):
    first = tl.build([{"text": "abcdefgh"}], tmp_path / "s", tokenizer="bytes").windows(2)
    tl.build([{"text": "ijkl"}], tmp_path / "s", tokenizer="bytes", append=True)
    again = tl.from_config(first.describe())
    assert (len(again), again.fingerprint) == (4, first.fingerprint)
    newest = tl.open(tmp_path / "s").windows(2)
    assert (len(newest), newest.fingerprint == first.fingerprint) == (6, False)


# -- other processes -----------------------------------------------------------------------


def test_a_pickled_dataset_is_the_same_in_another_process(store, tmp_path):
    dataset = made(store)
    (tmp_path / "dataset.pickle").write_bytes(pickle.dumps(dataset))
    code = (
        "import pickle, sys; ds = pickle.load(open(sys.argv[1], 'rb'));"
        "print(ds.fingerprint, ds.batch([5, 1]).tokens.tolist())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "dataset.pickle")]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert answer.strip() == f"{dataset.fingerprint} {dataset.batch([5, 1]).tokens.tolist()}"


def test_a_description_of_format_1_is_refused(store):
    run = store.windows(8).shuffle()
    for one in (run, tl.mix({"a": run, "b": store.pack(8)})):
        old = one.describe() | {"format": "tokenloom.dataset/1"}
        del old["order_version"]
        old["pack"] = {"of": "another time"}  # whatever else is wrong with it
        refused(
            lambda old=old: tl.from_config(old),
            tl.ConfigError,
            "$.format: found 'tokenloom.dataset/1'",
        )


# -- splits ------------------------------------------------------------------------------------


def mix_of(store, count, *, within=None):
    """A mix of parts of a split."""
    parts = store.split({f"p{n}": 1 / count for n in range(count)}, by="id")
    kept = [(name, part) for name, part in parts.items() if len(part.indices) > 1][:within]
    return tl.mix({name: part.windows(8).shuffle() for name, part in kept}).seed(3)


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """1,200 documents of 16 tokens."""
    documents = [[n % 90 + 1] * 16 for n in range(1200)]
    return write_store(tmp_path_factory.mktemp("many") / "store", [documents])


def test_a_split_of_many_parts_is_written_once_and_comes_back(many):
    run = mix_of(many, 40)
    plain = run.describe()
    (name,) = plain["splits"]
    assert set(plain["splits"][name]) == {"names", "shares", "by", "seed"}
    assert [one["choice"] for one in plain["sources"]] == [
        {"split": name, "part": one} for one in run.sources
    ]
    again = tl.from_config(json.loads(json.dumps(plain)))
    assert again == run
    assert again.describe() == plain
    assert again.batch(range(99)).tokens.tolist() == run.batch(range(99)).tokens.tolist()
    sizes = [len(json.dumps(mix_of(many, count).describe())) for count in (100, 200)]
    assert sizes[1] < 2.2 * sizes[0]  # not the square of it


def test_a_split_of_a_few_parts_is_spelled_out(many):
    plain = mix_of(many, 16).describe()
    assert "splits" not in plain
    assert plain["sources"][0]["choice"]["names"] == [f"p{n}" for n in range(16)]
    alone = many.split({f"p{n}": 1 / 40 for n in range(40)})["p3"].windows(8)
    assert len(alone.describe()["choice"]["names"]) == 40


def test_a_part_that_joins_leaves_the_states_before_it_alone(many):
    """Whether a split is named depends on the source alone, so an edit changes no older key."""
    parts = many.split({f"p{n}": 1 / 40 for n in range(40)}, by="id")
    run = tl.mix({"p0": parts["p0"].windows(8).epochs(None)}).seed(3)
    state = tl.Loader(run, batch_size=2).seek(2).state_dict()
    edited = run.edit(at=4, add={"p1": parts["p1"].windows(8).epochs(None)})
    loader = tl.Loader(edited, batch_size=2)
    loader.load_state_dict(state)
    assert loader.examples == 4


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda p: p["sources"][1]["choice"].update(split="x"), "sources[1].choice.split"),
        (lambda p: p["sources"][1]["choice"].update(split=7), "sources[1].choice.split: found 7"),
        (lambda p: p["sources"][1]["choice"].update(part="x"), "sources[1].choice.part"),
        (lambda p: p["sources"][1]["choice"].update(by="id"), "choice.by"),
        (lambda p: p.pop("splits"), "choice.split"),
        (lambda p: p.update(splits=3), "splits: found 3"),
    ],
)
def test_a_description_that_names_a_split_wrongly_is_refused(many, change, named):
    plain = mix_of(many, 40, within=4).describe()
    change(plain)
    refused(lambda: tl.from_config(plain), tl.ConfigError, named)


def test_two_sources_of_one_name_or_weights_of_others_are_refused(store):
    plain = tl.mix({"a": store.windows(8), "b": store.pack(8)}).describe()
    again = copy.deepcopy(plain)
    again["sources"][1]["name"] = "a"
    refused(lambda: tl.from_config(again), tl.ConfigError, "$.sources[1].name", "'a'")
    again["sources"][1]["name"] = "c"
    refused(lambda: tl.from_config(again), tl.ConfigError, "$.mix.weights", "a, b", "a, c")


def test_states_do_not_share_what_they_describe(store):
    loader = tl.Loader(made(store), batch_size=2)
    first, second = loader.state_dict(), loader.state_dict()
    first["dataset"]["layout"]["seq_len"] = 99
    assert second["dataset"] == loader.state_dict()["dataset"] == made(store).describe()
