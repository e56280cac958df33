"""Streams mixed as they come: the order is that of the obvious loop, and a state is exact."""

import importlib
import itertools
import json
import logging
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from streamtoys import (
    KINDS,
    ONCE,
    Again,
    Thing,
    corpora,
    lengths,
    names,
    only,
    rows_of,
    some_counts,
    some_weights,
    stops,
    tags,
)

import tokenloom as tl
from tokenloom.random.keys import child, key
from tokenloom.streams.checkpoint import Offset
from tokenloom.streams.interleaved import interleave
from tokenloom.streams.picking import Position, choose, shares
from tokenloom.streams.samples import loss_tokens_of, tokens_of

# -- the slow, obvious loop --------------------------------------------------------------------


def slow_mix(sources, *, weights=None, counts=None, seed=0, stop="all_exhausted", epochs=1):
    """(source, pass, row) of every sample: always the smallest consumed / weight, by lists."""
    consumed = {name: (counts or {}).get(name, 0) for name in sources}
    at, passed, gone, out = dict.fromkeys(sources, 0), dict.fromkeys(sources, 0), set(), []
    while len(gone) < len(sources):
        best = []
        for name in sources:
            if name not in gone:
                time = consumed[name] / (weights or {}).get(name, 1.0)
                best.append((time, child(key(seed, "mix", "stream", "ties"), len(out), name), name))
        name = min(best)[2]
        if at[name] < len(sources[name]):
            consumed[name] += max(1, len(sources[name][at[name]]))
            out.append((name, passed[name], at[name]))
            at[name] += 1
        elif passed[name] + 1 < epochs:
            passed[name], at[name] = passed[name] + 1, 0
        elif stop == "all_exhausted":
            gone.add(name)
        elif stop == "first_exhausted" or all(passed[n] >= epochs for n in sources if n != name):
            return out
        else:
            passed[name], at[name] = passed[name] + 1, 0
    return out


@given(corpora, some_weights, some_counts, stops, st.integers(1, 3), st.integers(0, 5))
def test_im_01_im_19_the_order_is_that_of_the_obvious_loop(
    sources, weights, counts, stop, epochs, seed
):
    weights, counts = only(weights, sources), only(counts, sources)
    wanted = slow_mix(sources, weights=weights, counts=counts, seed=seed, stop=stop, epochs=epochs)
    stream = interleave(
        sources, weights=weights, token_counts=counts, seed=seed, stop=stop, epochs=epochs
    )
    found = list(stream)
    assert tags(found) == wanted
    assert [sample.value for sample in found] == [sources[n][row] for n, _, row in wanted]
    assert [sample.index for sample in found] == list(range(len(found)))
    assert next(stream, None) is None


# -- worked values -----------------------------------------------------------------------------


def test_im_01_im_06_the_smallest_count_is_chosen():
    stream = interleave(
        {"a": rows_of("a", [2, 2, 2]), "b": rows_of("b", [2, 2, 2])}, token_counts=[0, 100]
    )
    assert tags(itertools.islice(stream, 3)) == [("a", 0, 0), ("a", 0, 1), ("a", 0, 2)]
    assert stream.token_counts == {"a": 6, "b": 100}


def test_im_02_ties_are_random_with_a_fixed_seed():
    sources = {"a": [[1]] * 50, "b": [[2]] * 50}
    orders = [names(interleave(sources, seed=seed)) for seed in range(20)]
    assert orders == [names(interleave(sources, seed=seed)) for seed in range(20)]
    assert len(set(orders)) == 20
    assert {order[0] for order in orders} == {"a", "b"}
    for order in orders:  # in every two picks each has its turn
        assert all(set(order[i : i + 2]) == {"a", "b"} for i in range(0, 100, 2))
    firsts = Counter(order[i] for order in orders for i in range(0, 100, 2))
    assert 420 < firsts["a"] < 580, "1,000 fair coins"


def test_c_49_a_tie_is_a_hash_of_seed_pick_and_name_whatever_the_listing():
    listed = interleave({"a": [[1]] * 20, "b": [[2]] * 20, "c": [[3]] * 20}, seed=3)
    other = interleave({"c": [[3]] * 20, "a": [[1]] * 20, "b": [[2]] * 20}, seed=3)
    assert names(listed) == names(other)


@given(corpora, some_counts)
def test_im_03_im_05_counts_are_the_sums_of_real_lengths(sources, counts):
    stream = interleave(sources, token_counts=only(counts, sources))
    seen = Counter(only(counts, sources))
    for sample in stream:
        seen[sample.source] += len(sample.value)
        assert stream.token_counts == {name: seen[name] for name in sources}
    assert stream.token_counts == {
        name: counts[name] + sum(map(len, rows)) for name, rows in sources.items()
    }


@given(st.lists(st.lists(st.integers(1, 100), min_size=1, max_size=60), min_size=2, max_size=4))
def test_im_04_counts_are_never_further_apart_than_the_largest_sample(many):
    sources = {chr(97 + i): rows_of(chr(97 + i), some) for i, some in enumerate(many)}
    largest = max(map(max, many))
    stream = interleave(sources)
    for _ in stream:
        if any(at.rows == len(sources[name]) for name, at in stream.positions.items()):
            break  # a source has given its last sample
        counts = stream.token_counts.values()
        assert max(counts) - min(counts) <= largest


def test_im_07_the_policy_is_a_pure_function_of_counts():
    stream = interleave({"a": [[1]], "b": [[1]], "c": [[1]]}, seed=4)
    at = {"a": Position(cost=5), "b": Position(cost=3), "c": Position(cost=3)}
    assert len({choose(stream.options, at, 7) for _ in range(50)}) == 1
    ended = at | {"b": Position(cost=3, ended=True), "c": Position(cost=3, ended=True)}
    assert choose(stream.options, ended, 7) == "a"
    picked = {choose(stream.options, at, pick) for pick in range(50)}
    assert picked == {"b", "c"}, "the pick breaks ties, nothing that happened before does"


def test_im_09_sources_of_2_and_6_samples():
    def order(stop, **given):
        sources = {"a": rows_of("a", [3] * 2), "b": rows_of("b", [3] * 6)}
        return names(interleave(sources, stop=stop, **given))

    assert order("all_exhausted", rule="round_robin") == "ababbbbb"
    assert order("first_exhausted", rule="round_robin") == "abab"
    assert order("repeat", rule="round_robin") == "abababababab" + "a", "b is not known to end"
    assert order("all_exhausted", rule="round_robin", epochs=2) == "ababababbbbbbbbb"
    for seed in range(8):  # equal lengths: each two picks have both, and then b is alone
        least = order("all_exhausted", seed=seed)
        assert sorted(least[:2]) == sorted(least[2:4]) == ["a", "b"]
        assert least[4:] == "bbbb"
    assert "ababbbbb" in {order("all_exhausted", seed=seed) for seed in range(8)}


def test_im_09_repeat_ends_when_every_source_was_read_through():
    stream = interleave(
        {"a": rows_of("a", [2] * 2), "b": rows_of("b", [2] * 6)}, stop="repeat", epochs=2
    )
    found = tags(stream)
    assert [row for name, _, row in found if name == "b"] == [0, 1, 2, 3, 4, 5] * 2
    assert {name for name, _, _ in found} == {"a", "b"}
    assert abs(stream.token_counts["a"] - 24) <= 2
    assert stream.is_finite


def test_im_09_repeat_without_an_end_goes_on():
    stream = interleave({"a": [[1]] * 3, "b": [[1]] * 5}, stop="repeat", epochs=None)
    assert not stream.is_finite
    assert Counter(names(stream, 1000)) == {"a": 500, "b": 500}
    assert stream.positions["a"].epoch == 166


@given(lengths, lengths, st.integers(0, 9))
def test_im_10_weights_are_a_ratio_of_tokens_within_one_sample(some, others, seed):
    sources = {
        "a": lambda skip: itertools.islice(itertools.cycle(rows_of("a", some)), skip, None),
        "b": lambda skip: itertools.islice(itertools.cycle(rows_of("b", others)), skip, None),
    }
    assume(sum(some) and sum(others) and 0 not in some + others)
    stream = interleave(sources, weights={"a": 3}, seed=seed)
    for _ in range(300):
        next(stream)
        counts = stream.token_counts
        assert abs(counts["a"] - 3 * counts["b"]) <= max(max(some), 3 * max(others))


def test_im_11_40_samples_are_20_and_20():
    def make():
        return interleave({"a": [[1]] * 40, "b": [[2]] * 40, "c": [[3]] * 40}, seed=42)

    whole, first, second = make(), make(), make()
    wanted = names(whole, 40)
    start = names(first, 20)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert start + names(second, 20) == wanted
    restarted = interleave(
        {"a": [[1]] * 40, "b": [[2]] * 40, "c": [[3]] * 40}, seed=42, token_counts=[7, 7, 6]
    )
    assert start + names(restarted, 20) != wanted, "the control: ties start again"


def test_im_11_offsets_of_the_seeds_form_go_on_with_the_same_ties():
    sources = {"a": rows_of("a", [2] * 40), "b": rows_of("b", [2] * 40)}
    whole, first = interleave(sources, seed=42), interleave(sources, seed=42)
    wanted = tags(itertools.islice(whole, 40))
    start = tags(itertools.islice(first, 20))
    second = interleave(sources, seed=42, offsets=first.offsets)
    assert start + tags(itertools.islice(second, 20)) == wanted


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_im_12_c_51_ranks_share_one_order(world):
    """Counts are global on every rank, and what the ranks deliver sums up to them."""
    rng = np.random.default_rng(world)
    sources = {n: rows_of(n, rng.integers(1, 9, 40).tolist()) for n in "abc"}
    wanted = tags(interleave(sources, seed=1))
    ranks = [interleave(sources, seed=1, rank=r, world_size=world) for r in range(world)]
    found = [list(stream) for stream in ranks]
    assert [tags(some) for some in found] == [wanted[r::world] for r in range(world)]
    total = Counter()
    for sample in itertools.chain(*found):
        total[sample.source] += sample.tokens
    for stream in ranks:
        assert stream.token_counts == dict(total)
        assert stream.picks == 120


def test_im_12_states_are_the_same_on_every_rank():
    sources = {"a": [[1]] * 30, "b": [[1, 1]] * 30}
    ranks = [interleave(sources, rank=r, world_size=4) for r in range(4)]
    for _ in range(7):
        states = []
        for stream in ranks:
            next(stream)
            states.append(json.dumps(stream.state_dict()))
        assert len(set(states)) == 1


def test_im_13_four_ranks_do_not_over_correct():
    sources = {"a": [[1] * 8] * 80, "b": [[1] * 8] * 80}
    ranks = [interleave(sources, token_counts={"b": 80}, rank=r, world_size=4) for r in range(4)]
    totals = Counter(b=80)
    for stream in ranks:
        for sample in itertools.islice(stream, 20):
            totals[sample.source] += sample.tokens
    assert totals == {"a": 360, "b": 360}
    assert ranks[0].token_counts == dict(totals)


def local_counts(world, steps):
    """The control: every rank starts from the global counts and steers by its own."""
    totals = Counter(b=80)
    for _ in range(world):
        own = {"a": 0, "b": 80}
        for _ in range(steps):
            name = min(own, key=own.get)
            own[name] += 8
            totals[name] += 8
    return totals


def test_im_13_that_test_can_fail():
    assert local_counts(4, 20) == {"a": 480, "b": 240}


def test_im_14_tr_05_positions_are_real_rows_and_tokens(caplog):
    sources = {
        "wiki": rows_of("w", [2] * 4),
        "code": iter(rows_of("c", [2] * 6)),
        "book": lambda skip: rows_of("b", [2] * 3)[skip:],
    }
    stream = interleave(sources, totals={"book": 3}, token_counts={"wiki": 2000, "code": 2000})
    assert stream.position_lines() == [
        "wiki: 0 of 4 rows (0.0%), 2,000 tokens",
        "code: 0 rows, 2,000 tokens",
        "book: 0 of 3 rows (0.0%), 0 tokens",
    ]
    names(stream, 3)
    next(stream), next(stream)
    with caplog.at_level(logging.INFO, logger="tokenloom"):
        stream.log_position()
    assert stream.position_lines()[2] == "book: 3 of 3 rows (100.0%), 6 tokens"
    assert [record.getMessage() for record in caplog.records] == [
        "mix: 5 samples, 4,010 tokens",
        *(f"mix: {line}" for line in stream.position_lines()),
    ]
    again = interleave({"a": [[1]] * 4}, stop="repeat", epochs=2)
    names(again, 5)
    assert again.position_lines() == ["a: 1 of 4 rows (25.0%) of pass 2, 5 tokens"]


def test_im_15_every_sample_says_where_it_is_from():
    value = {"input_ids": [1, 2, 3, 0], "attention_mask": [1, 1, 1, 0]}
    sample = next(interleave({"wiki": [value]}))
    assert sample.value is value, "nothing is copied or converted"
    assert (sample.source, sample.tokens, sample.index) == ("wiki", 3, 0)
    assert (sample.epoch, sample.row) == (0, 0)


def test_im_16_probabilities_and_round_robin():
    assert shares([1, 1, 2]) == [0.25, 0.25, 0.5]
    assert shares({"a": 1, "b": 3}) == [0.25, 0.75]
    sources = {name: [[1]] * 4000 for name in "abc"}
    stream = interleave(sources, rule="probability", weights=[1, 1, 2], seed=5)
    assert stream.shares == {"a": 0.25, "b": 0.25, "c": 0.5}
    order = names(stream, 4000)
    found = Counter(order)
    assert all(abs(found[n] - 4000 * p) < 120 for n, p in stream.shares.items()), found
    assert order == names(interleave(sources, rule="probability", weights=[1, 1, 2], seed=5), 4000)
    listed = {name: sources[name] for name in "cba"}
    same = {"a": 1, "b": 1, "c": 2}
    assert order == names(interleave(listed, rule="probability", weights=same, seed=5), 4000)
    assert order != names(interleave(sources, rule="probability", weights=[1, 1, 2]), 4000)
    assert names(interleave(sources, rule="round_robin"), 6) == "abcabc"
    assert names(interleave(listed, rule="round_robin"), 6) == "cbacba"


def test_im_16_a_share_that_has_dropped_out_goes_to_the_others():
    sources = {"a": [[1]] * 3, "b": [[1]] * 300, "c": [[1]] * 300}
    order = names(interleave(sources, rule="probability", weights=[2, 1, 1]))
    assert Counter(order) == {"a": 3, "b": 300, "c": 300}
    assert 75 < Counter(order[20:220])["b"] < 125


BAD_WEIGHTS = {
    "none": ([], "weights: found 0 for 2 sources"),
    "too many": ([1, 2, 3], "weights: found 3 for 2 sources"),
    "zeros": ([0, 0], r"weights\.a: found 0, allowed: a number above 0"),
    "a zero": ({"b": 0.0}, r"weights\.b: found 0\.0"),
    "negative": ([1, -1], r"weights\.b: found -1"),
    "NaN": ([float("nan"), 1], r"weights\.a: found nan"),
    "infinite": ([float("inf"), 1], r"weights\.a: found inf"),
    "huge": ([10**400, 1], r"weights\.a: found 1000"),
    "text": ("ab", "weights: found 'ab', allowed: a mapping"),
    "a text": (["1", 1], r"weights\.a: found '1'"),
    "a bool": ([True, 1], r"weights\.a: found True"),
    "a number": (3, "weights: found 3, allowed: a mapping"),
    "an unknown name": ({"aa": 1}, r"weights: found 'aa', allowed: the sources: a, b.*mean 'a'"),
}


@pytest.mark.parametrize(("wrong", "match"), BAD_WEIGHTS.values(), ids=BAD_WEIGHTS)
@pytest.mark.parametrize("rule", ["least_consumed", "probability"])
def test_im_16_weights_that_cannot_be_meant_are_refused(wrong, match, rule):
    with pytest.raises(ValueError, match=match) as caught:
        interleave({"a": [[1]], "b": [[1]]}, weights=wrong, rule=rule)
    assert isinstance(caught.value, tl.ConfigError)


@pytest.mark.parametrize("wrong", [[], [0, 0], [1, float("nan")], [1, -1]])
def test_im_16_shares_of_wrong_weights_are_refused(wrong):
    with pytest.raises(ValueError, match="weights"):
        shares(wrong)


def test_im_20_picks_are_logged_every_so_often(caplog):
    sources = {"a": [[1]] * 20, "b": [[1]] * 20}
    stream = interleave(sources, log_every=4, seed=1)
    with caplog.at_level(logging.DEBUG, logger="tokenloom"):
        order = names(stream, 12)
    assert [record.getMessage() for record in caplog.records] == [
        f"mix: pick {pick} took {order[pick]!r}, tokens {{'a': {half}, 'b': {half}}}"
        for pick, half in ((3, 2), (7, 4), (11, 6))
    ]
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="tokenloom"):
        list(interleave(sources, log_every=0))
    assert not caplog.records


# -- tokens of a sample ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sample", "tokens"),
    [
        ([1, 2, 3], 3),
        ((1, 2), 2),
        (np.arange(5), 5),
        (np.zeros((2, 3), int), 6),
        ([[1, 2], [3]], 3),
        ({"input_ids": [1, 2, 3, 0]}, 4),
        ({"input_ids": [1, 2, 3, 0], "attention_mask": [1, 1, 1, 0]}, 3),
        ({"input_ids": [1, 2], "attention_mask": [True, False]}, 1),
        ({"input_ids": [[1, 2], [3, 0]], "attention_mask": [[1, 1], [1, 0]]}, 3),
        ({"input_ids": np.arange(4), "attention_mask": np.array([1, 1, 0, 0])}, 2),
        ({"tokens": [1, 2, 3], "segment_ids": np.array([1, 2, 0])}, 2),
        (Thing(segment_ids=np.array([[1, 1, 0], [1, 2, 3]])), 5),
        (Thing(attention_mask=np.array([True, False])), 1),
        (Thing(input_ids=[4, 5, 6]), 3),
        ([], 0),
    ],
)
def test_c_50_tokens_are_the_input_tokens_that_are_not_filler(sample, tokens):
    assert tokens_of(sample) == tokens
    assert next(interleave({"a": [sample]})).tokens == tokens


def test_c_50_loss_tokens_are_another_number():
    sample = {"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, -100]}
    assert (tokens_of(sample), loss_tokens_of(sample)) == (4, 2)
    assert loss_tokens_of(Thing(loss_mask=np.array([[True, False], [True, True]]))) == 3
    long = {"input_ids": [1] * 9, "labels": [-100] * 8 + [1]}
    stream = interleave({"a": [sample] * 9, "b": [long] * 9}, cost="loss_tokens")
    taken = Counter(names(stream, 9))
    assert taken == {"a": 3, "b": 6}
    assert stream.token_counts == {"a": 12, "b": 54}, "tokens are counted all the same"
    assert stream.positions["a"].cost == stream.positions["b"].cost == 6


@pytest.mark.parametrize("sample", ["text", b"x", 5, {"text": "abc"}, {}, {"input_ids": 5}])
def test_a_sample_that_cannot_be_counted_is_refused_with_its_place(sample):
    stream = interleave({"a": [[1], sample]})
    next(stream)
    with pytest.raises(
        tl.InputError, match=r"sources\.a, row 1: its tokens cannot be counted: found .*length="
    ):
        next(stream)
    with pytest.raises(tl.StateError, match="a source failed at pick 1"):
        next(stream)
    with pytest.raises(tl.StateError, match="load the last state"):
        stream.state_dict()


def test_a_length_of_ones_own():
    stream = interleave({"a": ["one two", "three"]}, length=lambda text: len(text.split()))
    assert [sample.tokens for sample in stream] == [2, 1]
    for wrong in (-1, 2.0, "3", None, True):
        with pytest.raises(tl.InputError, match=r"sources\.a, row 0: tokens is .*, allowed:"):
            next(interleave({"a": ["x"]}, length=lambda text, found=wrong: found))
    numpys = interleave({"a": ["x"]}, length=lambda text: np.int64(3))
    assert type(next(numpys).tokens) is int
    with pytest.raises(tl.InputError, match="cost is -1"):
        next(interleave({"a": [[1]]}, cost=lambda sample: -1))


def test_samples_without_tokens_do_not_hold_the_stream():
    """A sample costs at least 1, else an empty source would be drawn from endlessly."""
    stream = interleave({"a": itertools.cycle([[]]), "b": [[1]] * 5}, stop="first_exhausted")
    assert Counter(names(stream))["b"] == 5
    assert stream.token_counts == {"a": 0, "b": 5}


def test_rows_may_be_what_is_counted():
    stream = interleave({"a": [[1] * 9] * 9, "b": [[1]] * 9}, cost="rows")
    names(stream, 10)
    assert stream.token_counts == {"a": 45, "b": 5}
    given = interleave({"a": [[1] * 9] * 9, "b": [[1]] * 9}, cost=lambda sample: len(sample) * 2)
    names(given, 10)
    assert given.positions["a"].cost == 2 * given.token_counts["a"]


def test_im_08_no_tensors_and_no_warnings():
    """In a process of its own, where every warning is an error and torch cannot be imported."""
    code = """
import sys, logging
sys.modules["torch"] = None
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(message)s")
import numpy as np
from tokenloom.streams.interleaved import interleave
rows = [{"input_ids": np.arange(6), "attention_mask": np.array([1, 1, 1, 1, 0, 0])}] * 5
stream = interleave({"a": rows, "b": iter(rows), "c": lambda skip: rows[skip:]}, log_every=5)
for sample in stream:
    assert sample.value["input_ids"] is rows[0]["input_ids"]
    stream.state_dict()
stream.log_position()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[-4:] == [
        "mix: 15 samples, 60 tokens",
        "mix: a: 5 of 5 rows (100.0%), 20 tokens",
        "mix: b: 5 rows, 20 tokens",
        "mix: c: 5 rows, 20 tokens",
    ]
    assert lines[2].startswith("mix: pick 14 took ")


def test_im_08_torch_tensors_are_counted_as_they_are():
    torch = importlib.import_module("torch")
    sample = {"input_ids": torch.arange(4), "attention_mask": torch.tensor([1, 1, 1, 0])}
    assert tokens_of(sample) == 3
    assert tokens_of({"input_ids": torch.zeros(2, 3)}) == 6
    assert tokens_of(torch.arange(7)) == 7
    assert next(interleave({"a": [sample]})).value["input_ids"] is sample["input_ids"]


# -- what is refused ---------------------------------------------------------------------------

TWO = {"a": [[1]], "b": [[1]]}
REFUSED = {
    "rule": ({"rule": "least"}, "rule: found 'least', allowed: least_consumed, round_robin"),
    "a near rule": ({"rule": "round_robbin"}, "Did you mean 'round_robin'"),
    "stop": ({"stop": "first"}, "stop: found 'first'.*Did you mean 'first_exhausted'"),
    "cost": ({"cost": "token"}, "cost: found 'token'.*Did you mean 'tokens'"),
    "cost of another rule": (
        {"rule": "probability", "cost": "tokens"},
        "cost: found 'tokens' with rule='probability'",
    ),
    "weights of round robin": (
        {"rule": "round_robin", "weights": [1, 2]},
        "weights: found .* with rule='round_robin'",
    ),
    "epochs": ({"epochs": 0}, "epochs: found 0"),
    "endless epochs": ({"epochs": None}, r"epochs: found None .*stop='repeat'"),
    "seed": ({"seed": -1}, "seed: found -1"),
    "a seed that is text": ({"seed": "42"}, "seed: found '42'"),
    "rank": ({"rank": 2, "world_size": 2}, "rank: found 2 of 2, allowed: 0 to world_size - 1"),
    "no ranks": ({"world_size": 0}, "rank: found 0 of 0"),
    "a negative rank": ({"rank": -1}, "rank: found -1"),
    "unknown counts": ({"token_counts": {"aa": 3}}, "token_counts: found 'aa'.*mean 'a'"),
    "few counts": ({"token_counts": [3]}, "token_counts: found 1 for 2 sources"),
    "negative counts": ({"token_counts": [0, -3]}, r"token_counts\.b: found -3"),
    "counts that are no integers": ({"token_counts": [0, 1.5]}, r"token_counts\.b: found 1\.5"),
    "unknown totals": ({"totals": {"c": 3}}, "totals: found 'c', allowed: the sources: a, b"),
    "offsets": ({"offsets": {"a": 3}}, r"offsets\.a: found 3, allowed: an Offset"),
    "offsets and counts": (
        {"offsets": {"a": Offset(1, 1)}, "token_counts": [1, 1]},
        "token_counts: found together with offsets",
    ),
    "log_every": ({"log_every": -1}, "log_every: found -1"),
}


@pytest.mark.parametrize(("given", "match"), REFUSED.values(), ids=REFUSED)
def test_options_that_cannot_be_meant_are_refused(given, match):
    with pytest.raises(tl.ConfigError, match=match):
        interleave(TWO, **given)


SOURCES = {
    "none": ({}, "sources: found none"),
    "a name twice": ([("a", [[1]]), ("a", [[2]])], "sources: found 'a' twice"),
    "an empty name": ({"": [[1]]}, "sources: found the name ''"),
    "a name that is no text": ({3: [[1]]}, "sources: found the name 3"),
    "a list without names": ([[1], [2]], r"sources: found list, allowed: \{name: source\}"),
    "a number": (5, "sources: found int"),
    "text": ({"a": "abc"}, r"sources\.a: found str, allowed: an iterable of samples"),
    "a mapping": ({"a": {"input_ids": [1]}}, r"sources\.a: found dict"),
    "nothing": ({"a": None}, r"sources\.a: found NoneType"),
    "a callable without arguments": ({"a": lambda: iter(())}, "cannot be called with one number"),
}


@pytest.mark.parametrize(("sources", "match"), SOURCES.values(), ids=SOURCES)
def test_sources_that_cannot_be_meant_are_refused(sources, match):
    with pytest.raises(tl.ConfigError, match=match):
        interleave(sources)


def test_pairs_are_sources_too():
    assert names(interleave([("a", [[1]]), ("b", [[1]])], rule="round_robin")) == "ab"


@pytest.mark.parametrize("kind", sorted(ONCE))
@pytest.mark.parametrize("given", [{"stop": "repeat"}, {"epochs": 2}], ids=str)
def test_im_09_an_iterator_cannot_begin_again(kind, given):
    with pytest.raises(
        tl.ConfigError, match=r"sources\.b: found \w+, an iterator, which can be read only once"
    ):
        interleave({"a": [[1]], "b": KINDS[kind]([[1]])}, **given)


def test_one_iterator_cannot_be_two_sources():
    rows = iter([[1]] * 4)
    with pytest.raises(tl.ConfigError, match=r"sources\.b: it is the same object as 'a'"):
        interleave({"a": rows, "b": rows})
    rows = [[1]] * 2
    assert sorted(names(interleave({"a": rows, "b": rows}))) == ["a", "a", "b", "b"]


class Endless(Again):
    is_finite = False


@pytest.mark.parametrize(
    "source",
    [
        Endless([[1]]),
        Thing(is_infinite=True, __len__=None),
        itertools.cycle([[1]]),
        interleave({"x": [[1]]}, stop="repeat", epochs=None),
    ],
)
def test_a_source_that_says_it_never_ends_is_refused_where_all_must_end(source):
    if isinstance(source, Thing):
        source = type("Says", (Again,), {"is_infinite": True})([[1]])
    with pytest.raises(tl.ConfigError, match=r"sources\.a: it says that it never ends"):
        interleave({"a": source, "b": [[1]]})
    assert interleave({"a": source, "b": [[1]]}, stop="first_exhausted").is_finite


def test_an_empty_source_drops_out_with_a_word_and_cannot_be_repeated(caplog):
    with caplog.at_level(logging.WARNING, logger="tokenloom"):
        assert names(interleave({"a": [], "b": [[1]] * 2})) == "bb"
    assert "source 'a' has no sample" in caplog.text
    stream = interleave({"a": [], "b": [[1]] * 2}, stop="repeat")
    with pytest.raises(tl.InputError, match=r"sources\.a: pass 1 has no sample"):
        list(stream)


def test_a_source_that_fails_stops_the_stream_instead_of_dropping_out():
    def broken():
        yield [1]
        raise OSError("disk")

    stream = interleave({"a": broken(), "b": [[1]] * 9})
    with pytest.raises(OSError, match="disk"):
        list(stream)
    with pytest.raises(tl.StateError, match="Make the stream again and load the last state"):
        next(stream)


def test_a_callable_that_gives_no_rows_is_refused():
    with pytest.raises(tl.ConfigError, match=r"sources\.a: called with 0, it gave int"):
        next(interleave({"a": lambda skip: 5}))


# -- seeds -------------------------------------------------------------------------------------


def test_c_69_the_order_of_a_mix_has_a_seed_of_its_own():
    """One run seed: ties and draws are purposes of it, and other keys leave them alone."""
    ties = key(42, "mix", "stream", "ties")
    draws = key(42, "mix", "stream", "draws")
    assert len({ties, draws, key(42, "mix", "ties"), key(42, "main", "stream", "buffer", 0)}) == 4
    sources = {"a": [[1]] * 40, "b": [[1]] * 40}
    assert names(interleave(sources, seed=42)) == names(interleave(sources, seed=np.int64(42)))
    golden = names(interleave(sources, seed=42), 24)
    assert golden == GOLDEN_TIES, "a change of this order is a new format of the state"
    assert names(interleave(sources, seed=42, rule="probability"), 24) == GOLDEN_DRAWS


GOLDEN_TIES = "bababaabababbabababaabba"
GOLDEN_DRAWS = "aabaaabbbaaaabaabaabaaaa"
