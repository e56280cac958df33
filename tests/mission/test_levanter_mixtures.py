"""Ruling 51: rule="levanter" gives the mixtures that Levanter's own code made, stored as golden."""

import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import tokenloom as tl
from tokenloom.runfiles import run_mapping
from tokenloom.testing import write_store

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden/levanter_mixtures.json").read_text(encoding="utf-8")
)["mixtures"]
SHORT = [case for case in GOLDEN if case["n"] <= 9000]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """n → a store of n rows of two tokens; each holds the number of its row."""
    root, known = tmp_path_factory.mktemp("numbered"), {}

    def make(n):
        if n not in known:
            write_store(root / str(n), [[np.repeat(np.arange(n), 2).tolist()]])
            known[n] = tl.open(root / str(n))
        return known[n]

    return make


def run_of(case, numbered, **fields):
    """The mixture of a case; its components are in stored order, as in the golden file."""
    sources = {name: numbered(n).windows(2).epochs(None) for name, n in case["lengths"].items()}
    (_, first), *later = case["stages"]
    first = {name: first.get(name, 0) for name in sources} | first
    weights = {name: first[name] for name in [*case["stages"][0][1], *first]}  # as Levanter adds up
    given = {
        "rule": "levanter",
        "weights": weights,
        "block": case["block_size"],
        "stages": dict(later),
    }
    high, low = case["key"]
    return tl.mix(sources, **(given | fields)).seed(high << 32 | low)


def pairs(run, case, indices):
    """(component, index modulo its length) of each index."""
    names, _ = run.picked(indices)
    return [list(one) for one in zip(names, run.locate(indices)[1].tolist(), strict=True)]


@pytest.mark.filterwarnings("ignore:.*less than one of the")
@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{len(case['lengths'])}-{case['n']}")
def test_it_is_the_mixture_that_levanter_made(case, numbered):
    run, n = run_of(case, numbered), case["n"]
    found = pairs(run, case, range(n))
    assert found[:32] == case["first32"]
    assert found[-16:] == case["last16"]
    names = list(case["lengths"])
    flat = np.array([[names.index(name), row] for name, row in found], "<i8")
    assert hashlib.sha256(flat.tobytes()).hexdigest() == case["sha256_int64_le"]
    for index, pair in case.get("far", {}).items():  # without anything before it
        assert pairs(run, case, [int(index)]) == [pair]
    counts = [run.rule.weights, *(edit.weights for edit in run.edits)]
    for found_counts, wanted in zip(counts, case["counts_per_block"], strict=True):
        above = {name: count for name, count in found_counts.items() if count}
        assert above == {name: count for name, count in wanted.items() if count}


def test_another_key_is_another_mixture(numbered):
    """A control of the comparison above."""
    case = SHORT[0]
    high, low = case["key"]
    other = run_of({**case, "key": [high, low + 1]}, numbered)
    assert pairs(other, case, range(32)) != case["first32"]


def slow_mixture(lengths, stages, block, key, n):
    """Levanter's mixture, example by example."""
    shown, out = dict.fromkeys(lengths, 0), []
    starts = [at for at, _ in stages[1:]] + [n]
    for (at, weights), end in zip(stages, starts, strict=True):
        total = sum(weights.values())
        counts = {name: int(weights.get(name, 0) / total * block) for name in lengths}
        largest = next(name for name in lengths if counts[name] == max(counts.values()))
        counts[largest] += block - sum(counts.values())
        for number in itertools.count(at // block):
            if number * block >= end:
                break
            ids = [(name, shown[name] + k) for name in lengths for k in range(counts[name])]
            out += slow_permutation(fold_in(key, number), ids)
            shown = {name: shown[name] + counts[name] for name in lengths}
    return out[:n]


def fold_in(key, number):
    """jax.random.fold_in: threefry2x32 of a number, two words in one."""
    low = (1 << 32) - 1
    a, b = key >> 32, key & low
    words = [a, b, a ^ b ^ 0x1BD11BDA]
    x, y = ((number >> 32) + a) & low, ((number & low) + b) & low
    for group in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            x = (x + y) & low
            y = x ^ ((y << turn | y >> (32 - turn)) & low)
        x = (x + words[(group + 1) % 3]) & low
        y = (y + words[(group + 2) % 3] + group + 1) & low
    return x << 32 | y


def slow_permutation(key, ids):
    """jax.random.permutation, word by word."""
    for _ in range(int(np.ceil(3 * np.log(max(1, len(ids))) / np.log(2**32 - 1)))):
        key, sorting = fold_in(key, 0), fold_in(key, 1)
        words = [fold_in(sorting, place) for place in range(len(ids))]
        bits = [(word >> 32) ^ (word & 0xFFFFFFFF) for word in words]
        ids = [one for _, _, one in sorted(zip(bits, range(len(ids)), ids, strict=True))]
    return ids


@pytest.mark.filterwarnings("ignore:.*less than one of the")
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_any_mixture_with_stages_follows_the_loop(data, numbered):
    """And at, where and index are inverse to each other."""
    sizes = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=4))
    lengths = {f"s{i}": n for i, n in enumerate(sizes)}
    block = data.draw(st.integers(4, 40))
    weight = st.floats(0.5, 4)
    blocks = data.draw(st.lists(st.integers(1, 4), max_size=2, unique=True))
    weights = st.fixed_dictionaries(dict.fromkeys(lengths, weight))
    stages = [(at * block, data.draw(weights)) for at in [0, *sorted(blocks)]]
    key = data.draw(st.integers(0, 2**64 - 1))
    n = 6 * block - 3
    case = {"lengths": lengths, "stages": stages, "block_size": block, "n": n}
    run = run_of({**case, "key": [key >> 32, key & 0xFFFFFFFF]}, numbered)
    wanted = slow_mixture(lengths, stages, block, key, n)
    found_names, items = run.picked(range(n))
    assert list(zip(found_names, items.tolist(), strict=True)) == wanted
    for index in data.draw(st.lists(st.integers(0, n - 1), max_size=4)):
        name, item = wanted[index]
        assert run.index(name, [item]).tolist() == [index]
        row = item % lengths[name]
        cells = (2 * row, 2 * row + 2)
        places = [place.index for place in run.where(name, 0, tokens=cells, before=n)]
        shown = [i for i, (other, k) in enumerate(wanted) if other == name]
        assert places == [i for i in shown if wanted[i][1] % lengths[name] == row]
        later = run.next(name, 0, tokens=cells, after=index)
        assert not [place for place in places if place > index] or later.index == min(
            place for place in places if place > index
        )
        assert run.at(index).spans[0].cells[0].start == 2 * row
    cut = data.draw(st.integers(0, n))
    consumed = {one["name"]: one["rows"] for one in run.consumed(cut)}
    assert consumed == {name: sum(one == name for one, _ in wanted[:cut]) for name in lengths}
    again = tl.from_config(json.loads(json.dumps(run.describe())))
    assert again == run
    assert again.picked(range(n))[1].tolist() == items.tolist()


@pytest.mark.parametrize("perm_type", ["levanter", "levanter_linear"])
def test_every_pass_of_a_source_has_the_order_of_its_first(numbered, perm_type):
    """Index modulo length; alone, the same source has another order in its second epoch."""
    alone = numbered(30).windows(2).shuffle(perm_type=perm_type).seed(9).epochs(None)
    run = tl.mix({"a": alone, "b": numbered(7).windows(2).epochs(None)}, rule="levanter", block=10)
    first = alone.locate(np.arange(30))[1]
    items = run.index("a", range(90))
    assert run.locate(items)[1].tolist() == [*first.tolist()] * 3
    assert run.locate(items)[0].tolist() == [0] * 30 + [1] * 30 + [2] * 30
    assert alone.locate(np.arange(30, 60))[1].tolist() != first.tolist()


def test_a_run_with_epochs_ends_with_a_block_and_is_a_prefix_of_the_endless_one(numbered):
    sources = {"a": numbered(30).windows(2).epochs(2), "b": numbered(7).windows(2).epochs(1)}
    run = tl.mix(sources, rule="levanter", block=16).seed(3)
    assert len(run) == 128  # 60 items of a, 8 in each block, and so 4 of them in the last
    endless = run.endless()
    assert not endless.is_finite
    assert endless.plan_digest(0, 128) == run.plan_digest(0, 128)
    assert run.take(70).plan_digest(0, 70) == run.plan_digest(0, 70)
    assert run.index("a", [59, 63, 64]).tolist()[2] == -1


def test_resume_and_ranks_do_not_change_the_order(numbered):
    case = next(one for one in SHORT if len(one["stages"]) == 4)
    run = run_of(case, numbered)
    whole = np.concatenate([b.index for b in itertools.islice(tl.Loader(run, batch_size=12), 30)])
    assert whole.tolist() == list(range(360))
    loader = tl.Loader(run, batch_size=12)
    for _ in range(7):
        next(loader)
    tokens = [next(loader).tokens for _ in range(5)]
    state = loader.state_dict()
    again = [tl.Loader(run, batch_size=6, rank=rank, world_size=3) for rank in range(3)]
    for one in again:
        one.load_state_dict(state)
    after = np.concatenate([next(one).tokens for one in again])
    assert after.tolist() == run.batch(range(144, 150)).tokens.tolist()
    assert np.concatenate(tokens).tolist() == run.batch(range(84, 144)).tokens.tolist()


@pytest.mark.parametrize("rule", ["levanter", "random"])
def test_an_audit_of_a_run_that_is_cut_inside_a_block_finds_nothing_wrong(numbered, rule):
    case = next(one for one in SHORT if len(one["stages"]) == 4)
    first = {"weights": {"a": 1.0, "b": 1.0}} if rule == "random" else {}
    assert run_of(case, numbered, rule=rule, **first).take(600).audit().ok


def test_a_simulation_of_it_tells_the_examples_of_every_source(numbered):
    found = run_of(SHORT[0], numbered).simulate(8, batch_size=12, ranks=2)
    assert {one.name: one.rows for one in found.sources} == {"a": 54, "b": 24, "c": 18}


def test_a_run_file_of_it_is_the_same_run(numbered, tmp_path):
    case = next(one for one in SHORT if len(one["stages"]) == 4)
    run = run_of(case, numbered)
    assert tl.from_config(run_mapping(run)) == run


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"cost": "tokens"}, "cost"),
        ({"stop": "first_exhausted"}, "stop"),
        ({"max_epochs": 2}, "max_epochs"),
        ({"initial": {"a": 5}}, "initial"),
        ({"block": 1 << 16}, "block"),
        ({"weights": {"a": -1.0}}, "weights.a"),
        ({"weights": {"a": 0, "b": 0}}, "weights"),
        ({"stages": {5: {"a": 1}}}, "stages.5"),
        ({"stages": {2048: {"x": 1}}}, "stages.2048"),
    ],
)
def test_what_levanter_does_not_have_is_refused(numbered, fields, named):
    sources = {"a": numbered(30).windows(2), "b": numbered(7).windows(2)}
    refused(lambda: tl.mix(sources, rule="levanter", **fields), tl.ConfigError, named)


def test_orders_edits_and_whole_shuffles_are_refused(numbered):
    rows = numbered(30).windows(2)
    shuffled = tl.mix({"a": rows.shuffle()}, rule="levanter")
    refused(lambda: len(shuffled), tl.ConfigError, "mix.a", "feistel")
    run = tl.mix({"a": rows}, rule="levanter", block=8)
    for change in ({"weights": {"a": 1}}, {"quarantine": [("a", 0)]}):
        refused(lambda change=change: run.edit(at=8, **change), tl.ConfigError, "edit", "levanter")
    refused(lambda: run.shuffle(perm_type="levanter"), tl.ConfigError, "shuffle", "levanter")
    described = tl.mix({"a": rows, "b": rows}, rule="levanter", block=8).describe()
    for change in ({"quarantine": [["a", 0]]}, {"weights": {"a": 1.0}}):
        mix = {**described["mix"], "edits": [{"at": 8, **change}]}
        refused(lambda mix=mix: tl.from_config({**described, "mix": mix}), tl.ConfigError)


def test_a_weight_that_is_truncated_to_nothing_warns(numbered):
    """Levanter lost 8 of 200 sources that way."""
    sources = {"a": numbered(30).windows(2), "tiny": numbered(7).windows(2)}
    with pytest.warns(UserWarning, match="tiny"):
        made = tl.mix(sources, rule="levanter", weights={"a": 1, "tiny": 0.0002})
    assert made.rule.weights == {"a": 2048, "tiny": 0}


def test_counts_of_a_block_stay_as_they_are(numbered):
    """29 of 100 by Levanter's floats is 28.999…; whole numbers that add up are not rounded."""
    sources = {"a": numbered(30).windows(2), "b": numbered(7).windows(2)}
    made = tl.mix(sources, rule="levanter", weights={"a": 29, "b": 71}, block=100)
    assert made.rule.weights == {"a": 29, "b": 71}
    truncated = tl.mix(sources, rule="levanter", weights={"a": 0.29, "b": 0.71}, block=100)
    assert truncated.rule.weights == {"a": 28, "b": 72}
