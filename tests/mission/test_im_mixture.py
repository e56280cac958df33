"""Mixing sources, as runs and as streams: which is next, until when, and what is counted.

Counts of a run are those of `run.state(n)`: what the first n examples have consumed.
"""

import itertools
import json
import logging
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.streams import buffer_shuffle, interleave, window_shuffle
from tokenloom.testing import assert_elastic, assert_resumable

RULES = ["least_consumed", "weights", "rounds", "random", "round_robin"]
STOPS = ["all_exhausted", "first_exhausted", "restart"]
BAD_NUMBERS = [0, 0.0, -1, float("nan"), float("inf")]


@pytest.fixture
def rows_of(shared_store_of):
    """A dataset of `count` rows of `length` tokens, in stored order."""

    def make(count, length=8, first=0):
        tokens = iter(range(first, first + count * length))
        documents = [[next(tokens) % 1000 for _ in range(length)] for _ in range(count)]
        return shared_store_of(*documents).windows(length)

    return make


@pytest.fixture
def varied(shared_store_of):
    """Sources of full rows, of rows with filler and of rows with many short documents."""
    rng = np.random.default_rng(3)

    def documents(sizes, first):
        return [range(first, first + size) for size in sizes]

    return {
        "full": shared_store_of(*documents([16] * 6, 1)).windows(8).shuffle(),
        "short": shared_store_of(*documents(rng.integers(2, 7, 20).tolist(), 100))
        .pack(8, strategy="one_doc")
        .shuffle(),
        "packed": shared_store_of(*documents(rng.integers(1, 7, 40).tolist(), 300))
        .pack(8, strategy="greedy")
        .shuffle(),
    }


def endless(sources):
    return {name: source.epochs(None) for name, source in sources.items()}


def names_of(run, count=None):
    """The sources of the first examples as one word."""
    return "".join(run.batch(range(len(run) if count is None else count)).source)


def counts_of(run, examples, what="tokens"):
    return {one["name"]: one[what] for one in run.state(examples)["sources"]}


def delivered_by(batch):
    """(source, tokens that are not filler) of every row."""
    return list(zip(batch.source, batch.attention_mask.sum(1).tolist(), strict=True))


def delivered(run, count):
    """(source, tokens that are not filler) of the first examples."""
    return delivered_by(run.batch(range(count)))


def samples(name, lengths):
    """Samples of a stream with these numbers of tokens, all different."""
    return [[1000 * ord(name) + row] * length for row, length in enumerate(lengths)]


def picked(stream, count=None):
    return "".join(sample.source for sample in itertools.islice(stream, count))


def places(stream, count=None):
    return [(sample.source, sample.row) for sample in itertools.islice(stream, count)]


# -- which source is next ----------------------------------------------------------------------


def test_im_01_im_06_with_counts_of_0_and_100_the_next_samples_are_a0_a1_a2(rows_of):
    run = tl.mix({name: rows_of(60, length=2) for name in "ab"}, initial={"a": 0, "b": 100})
    batch = run.batch(range(50))
    assert batch.source == ["a"] * 50
    assert batch.tokens[:3].tolist() == [[0, 1], [2, 3], [4, 5]], "rows 0, 1, 2"
    assert sorted(run.batch([50, 51]).source) == ["a", "b"], "now both have consumed 100"
    other = tl.mix({name: rows_of(60, length=2) for name in "ab"}, initial={"a": 100})
    assert names_of(other, 50) == "b" * 50


def test_im_01_im_06_a_stream_with_counts_of_0_and_100_gives_a0_a1_a2():
    sources = {"a": samples("a", [2] * 3), "b": samples("b", [2] * 3)}
    stream = interleave(sources, token_counts=[0, 100])
    assert places(stream, 3) == [("a", 0), ("a", 1), ("a", 2)]
    assert stream.token_counts == {"a": 6, "b": 100}


def test_im_02_c_49_ties_are_random_with_a_fixed_seed(rows_of):
    sources = {name: rows_of(80) for name in "ab"}
    orders = [names_of(tl.mix(sources).seed(seed), 100) for seed in range(20)]
    assert orders == [names_of(tl.mix(sources).seed(seed), 100) for seed in range(20)]
    assert len(set(orders)) == 20
    for order in orders:
        assert all(set(order[i : i + 2]) == {"a", "b"} for i in range(0, 100, 2))
    firsts = Counter(order[i] for order in orders for i in range(0, 100, 2))
    assert 420 < firsts["a"] < 580, "1,000 fair coins"
    in_turn = {names_of(tl.mix(sources, rule="round_robin").seed(s), 100) for s in range(3)}
    assert in_turn == {"ab" * 50}


def test_im_02_c_49_ties_of_a_stream_are_random_with_a_fixed_seed():
    sources = {"a": [[1]] * 50, "b": [[2]] * 50}
    orders = [picked(interleave(sources, seed=seed)) for seed in range(20)]
    assert orders == [picked(interleave(sources, seed=seed)) for seed in range(20)]
    assert len(set(orders)) == 20
    for order in orders:
        assert all(set(order[i : i + 2]) == {"a", "b"} for i in range(0, 100, 2))
    firsts = Counter(order[i] for order in orders for i in range(0, 100, 2))
    assert 420 < firsts["a"] < 580, "1,000 fair coins"


def test_c_49_a_tie_is_a_hash_so_listing_does_not_matter_and_no_generator_is_saved(rows_of):
    sources = {name: rows_of(80) for name in "abc"}
    backwards = dict(reversed(sources.items()))
    assert names_of(tl.mix(sources).seed(3), 90) == names_of(tl.mix(backwards).seed(3), 90)
    streams = [interleave({n: [[1]] * 20 for n in names}, seed=3) for names in ("abc", "cab")]
    assert picked(streams[0]) == picked(streams[1])
    run = tl.mix(sources).seed(3)
    with tl.Loader(run, 8, prefetch=0) as walked, tl.Loader(run, 8, prefetch=0) as jumped:
        for _ in range(5):
            next(walked)
        state = walked.state_dict()
        assert jumped.seek(5).state_dict() == state
    del state["dataset"]
    assert len(json.dumps(state)) < 1024
    assert {type(value) for one in state["sources"] for value in one.values()} == {str, int}


def test_im_03_im_05_c_50_counts_are_the_tokens_of_the_rows_delivered_so_far(varied):
    """T tokens a full row, not T - 1 targets, and no filler."""
    run = tl.mix(endless(varied), weights={"short": 2}).seed(4)
    batch = run.batch(range(60))
    assert not batch.attention_mask.all(), "some rows have filler"
    tokens, rows = Counter(), Counter()
    for number, (name, real) in enumerate(delivered(run, 60)):
        assert counts_of(run, number) == {each: tokens[each] for each in varied}
        assert counts_of(run, number, "rows") == {each: rows[each] for each in varied}
        tokens[name] += real
        rows[name] += 1
    assert tokens.total() == batch.attention_mask.sum() > batch.loss_mask.sum()


@st.composite
def sources_of_streams(draw):
    lengths = st.lists(st.integers(1, 100), min_size=1, max_size=40)
    return {name: samples(name, draw(lengths)) for name in "abcd"[: draw(st.integers(2, 4))]}


@given(sources_of_streams())
def test_im_03_im_05_counts_of_a_stream_are_the_sums_of_the_lengths_given(sources):
    stream, seen = interleave(sources), Counter()
    for sample in stream:
        seen[sample.source] += len(sample.value)
        assert stream.token_counts == {name: seen[name] for name in sources}
    assert stream.token_counts == {n: sum(map(len, rows)) for n, rows in sources.items()}


@pytest.mark.parametrize(
    ("sample", "tokens"),
    [
        ([1, 2, 3], 3),
        (np.arange(5), 5),
        ({"input_ids": [1, 2, 3, 0]}, 4),
        ({"input_ids": [1, 2, 3, 0], "attention_mask": [1, 1, 1, 0]}, 3),
        ({"input_ids": np.arange(4), "attention_mask": np.array([1, 1, 0, 0])}, 2),
        ({"tokens": [1, 2, 3], "segment_ids": np.array([1, 2, 0])}, 2),
        ([], 0),
    ],
)
def test_im_05_c_50_the_tokens_of_a_sample_are_its_input_tokens_that_are_not_filler(sample, tokens):
    assert next(interleave({"a": [sample]})).tokens == tokens


def test_c_50_loss_tokens_are_a_cost_of_their_own(shared_store_of):
    """A document of 8 has 7 targets, four of 2 in a row have 4."""
    sources = {
        "whole": shared_store_of(*[[n] * 8 for n in range(40)]).pack(8).epochs(3),
        "parts": shared_store_of(*[[n] * 2 for n in range(160)]).pack(8).epochs(3),
    }
    by_tokens, by_loss = (tl.mix(sources, cost=cost) for cost in ("tokens", "loss_tokens"))
    assert Counter(by_tokens.batch(range(44)).source) == {"whole": 22, "parts": 22}
    batch = by_loss.batch(range(44))
    assert Counter(batch.source) == {"whole": 16, "parts": 28}, "112 and 112 targets"
    assert batch.loss_mask.sum() == 224
    assert counts_of(by_loss, 44) == {"whole": 128, "parts": 224}, "tokens are counted all the same"
    short = {"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, -100]}
    long = {"input_ids": [1] * 9, "labels": [-100] * 8 + [1]}
    stream = interleave({"a": [short] * 9, "b": [long] * 9}, cost="loss_tokens")
    assert Counter(picked(stream, 9)) == {"a": 3, "b": 6}
    assert stream.token_counts == {"a": 12, "b": 54}


@given(sources_of_streams())
def test_im_04_counts_of_a_stream_are_never_further_apart_than_100(sources):
    """Samples of at most 100 tokens, after every single one, while all sources have more."""
    stream, given_rows = interleave(sources), Counter()
    for sample in stream:
        given_rows[sample.source] += 1
        if given_rows[sample.source] == len(sources[sample.source]):
            break
        counts = stream.token_counts.values()
        assert max(counts) - min(counts) <= 100


def test_im_04_counts_are_never_further_apart_than_100(shared_store_of):
    """Rows of at most 100 tokens, after every single one, while both have rows."""
    rng = np.random.default_rng(5)
    sources = {}
    for name in "ab":  # no two of these fit into one row, so a row is a document
        lengths = [*rng.integers(51, 101, 90).tolist(), 100]
        sources[name] = shared_store_of(*[[ord(name)] * n for n in lengths]).pack(100).shuffle()

    def furthest(run):
        counts, apart = Counter(a=0, b=0), 0
        for name, tokens in delivered(run, len(run)):
            counts[name] += tokens
            apart = max(apart, abs(counts["a"] - counts["b"]))
        assert counts_of(run, len(run)) == counts
        return apart

    run = tl.mix(sources, stop="first_exhausted").seed(3)
    assert len(run) > 150
    assert 51 <= furthest(run) <= 100
    by_rows = tl.mix(sources, cost="rows", stop="first_exhausted").seed(3)
    assert furthest(by_rows) > 100, "turns by rows drift apart in tokens"


def smallest(run, weights, count):
    """For each example, whether its source had consumed least for its weight."""
    found = []
    for number, name in enumerate(run.batch(range(count)).source):
        consumed = {n: tokens / weights[n] for n, tokens in counts_of(run, number).items()}
        found.append(consumed[name] == min(consumed.values()))
    return found


def test_im_07_im_19_the_next_source_has_the_smallest_count_and_nothing_else_decides(varied):
    weights = {"full": 1.0, "short": 2.0, "packed": 0.5}
    run = tl.mix(endless(varied), weights=weights).seed(6)
    assert all(smallest(run, weights, 60))
    blocks = tl.mix(endless(varied), weights=weights, rule="rounds", cost="tokens", block=20)
    assert not all(smallest(blocks, weights, 60)), "a block has rows of one source together"
    known = run.batch(range(60)).source
    fresh = tl.mix(endless(varied), weights=weights).seed(6)
    for index in np.random.default_rng(0).permutation(60).tolist():
        assert fresh.batch([index]).source == [known[index]], "whatever was asked for before"
    assert run.describe()["mix"]["weights"] == weights, "no weight is adapted"


@settings(max_examples=30)
@given(
    sources_of_streams(),
    st.dictionaries(st.sampled_from("abcd"), st.sampled_from([0.5, 2.0, 3.0])),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 120)),
    st.integers(0, 5),
)
def test_im_01_im_07_im_19_a_stream_takes_the_smallest_count_for_its_weight(
    sources, weights, counts, seed
):
    weights = {name: value for name, value in weights.items() if name in sources}
    consumed = {name: counts.get(name, 0) for name in sources}
    stream = interleave(sources, weights=weights, token_counts=consumed, seed=seed)
    rows = dict.fromkeys(sources, 0)
    for number, sample in enumerate(stream):
        time = {
            name: consumed[name] / weights.get(name, 1)
            for name in sources
            if rows[name] < len(sources[name])
        }
        assert time[sample.source] == min(time.values())
        assert (sample.index, sample.row) == (number, rows[sample.source])
        assert sample.value is sources[sample.source][sample.row]
        rows[sample.source] += 1
        consumed[sample.source] += len(sample.value)
    assert rows == {name: len(samples) for name, samples in sources.items()}


def test_im_08_tr_05_a_mix_and_its_log_without_a_warning_and_without_tensors(tmp_path):
    """In a process where every warning is an error and torch cannot be imported."""
    for name in "ab":
        documents = [{"input_ids": [ord(name)] * 8} for _ in range(6)]
        tl.build(documents, tmp_path / name, tokenizer=None, vocab_size=1000, progress=False)
    code = """
import logging, sys
sys.modules["torch"] = None
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(message)s")
import numpy as np
import tokenloom as tl
from tokenloom.streams import interleave
rows = [{"input_ids": np.arange(6), "attention_mask": np.array([1, 1, 1, 1, 0, 0])}] * 5
stream = interleave({"a": rows, "b": iter(rows), "c": lambda skip: rows[skip:]}, log_every=5)
for sample in stream:
    assert sample.value["input_ids"] is rows[0]["input_ids"]
    stream.state_dict()
stream.log_position()
run = tl.mix({name: tl.open(f"{sys.argv[1]}/{name}").windows(8).shuffle() for name in "ab"})
with tl.Loader(run, 4, fields=("tokens", "labels", "loss_mask")) as loader:
    for batch in loader:
        assert type(batch.tokens) is type(batch.labels) is type(batch.loss_mask) is np.ndarray
        loader.state_dict()
    loader.log_position()
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-3:] == [
        "Dataset Position: step=3 examples=12",
        "  a: rows=6/6 tokens=48 (100.0%) epochs=1",
        "  b: rows=6/6 tokens=48 (100.0%) epochs=1",
    ]


def test_im_08_tensors_of_a_stream_are_counted_and_not_converted():
    sample = {"input_ids": torch.arange(4), "attention_mask": torch.tensor([1, 1, 1, 0])}
    found = next(interleave({"a": [sample]}))
    assert found.tokens == 3
    assert found.value["input_ids"] is sample["input_ids"]


# -- until when --------------------------------------------------------------------------------


def test_im_09_sources_of_2_and_6_rows_end_drop_out_or_are_repeated(rows_of):
    sources = {"a": rows_of(2), "b": rows_of(6)}
    in_turn = {"rule": "round_robin"}
    assert names_of(tl.mix(sources, stop="all_exhausted", **in_turn)) == "ababbbbb"
    assert names_of(tl.mix(sources, stop="first_exhausted", **in_turn)) == "abab"
    assert names_of(tl.mix(sources, stop="restart", **in_turn)) == "ab" * 6
    least = {stop: names_of(tl.mix(sources, stop=stop).seed(1)) for stop in STOPS}
    assert sorted(least["all_exhausted"][:4]) == ["a", "a", "b", "b"]
    assert least["all_exhausted"][4:] == "bbbb", "nothing is repeated"
    assert least["first_exhausted"] == least["all_exhausted"][:4]
    assert Counter(least["restart"]) == {"a": 6, "b": 6}


def test_im_09_what_is_repeated_is_a_fresh_epoch(rows_of):
    sources = {"a": rows_of(3).shuffle(), "b": rows_of(9).shuffle()}
    run = tl.mix(sources, rule="round_robin").seed(2)
    assert len(run) == 18
    of_a = [run.at(index).route for index in range(0, 18, 2)]
    epochs = [[place.row for place in of_a if place.epoch == number] for number in range(3)]
    assert all(sorted(rows) == [0, 1, 2] for rows in epochs)
    assert len({tuple(rows) for rows in epochs}) > 1, "each epoch has an order of its own"


def test_im_09_streams_of_2_and_6_samples_end_drop_out_or_are_repeated():
    def order(stop, **options):
        sources = {"a": samples("a", [3] * 2), "b": samples("b", [3] * 6)}
        return picked(interleave(sources, stop=stop, **options))

    in_turn = {"rule": "round_robin"}
    assert order("all_exhausted", **in_turn) == "ababbbbb"
    assert order("first_exhausted", **in_turn) == "abab"
    assert order("repeat", **in_turn) == "ab" * 6 + "a", "until b is found to have ended"
    assert order("all_exhausted", epochs=2, **in_turn) == "ababababbbbbbbbb"
    assert "ababbbbb" in {order("all_exhausted", seed=seed) for seed in range(8)}


def test_im_09_a_repeated_stream_ends_when_every_source_was_read_as_often_as_asked():
    sources = {"a": samples("a", [2] * 2), "b": samples("b", [2] * 6)}
    stream = interleave(sources, stop="repeat", epochs=2)
    assert stream.is_finite
    rows = [row for name, row in places(stream) if name == "b"]
    assert rows == [0, 1, 2, 3, 4, 5] * 2
    assert abs(stream.token_counts["a"] - 24) <= 2
    forever = interleave({"a": [[1]] * 3, "b": [[1]] * 5}, stop="repeat", epochs=None)
    assert not forever.is_finite
    assert Counter(picked(forever, 1000)) == {"a": 500, "b": 500}
    for options in ({"stop": "repeat"}, {"epochs": 2}):
        with pytest.raises(tl.ConfigError, match=r"sources\.b"):
            interleave({"a": [[1]], "b": iter([[1]])}, **options)  # it can be read only once


def test_c_67_every_mix_says_whether_it_ends(varied):
    one, other = varied["full"], varied["packed"]
    assert (one.is_finite, one.epochs(None).is_finite, one.epochs(None).take(3).is_finite) == (
        True,
        False,
        True,
    )
    both, some = {"a": one, "b": other}, {"a": one, "b": other.epochs(None)}
    for sources, stop, finite in (
        (both, "first_exhausted", True),
        (some, "first_exhausted", True),
        (both, "all_exhausted", True),
        (both, "restart", True),
        (some, "restart", False),
    ):
        run = tl.mix(sources, stop=stop)
        assert run.is_finite is finite
        assert tl.from_config(run.describe()).is_finite is finite
        if finite:
            assert len(run) == len(run.batch(range(len(run))).source)
        else:
            with pytest.raises(TypeError):
                len(run)
        assert run.take(5).is_finite
    assert tl.mix(some, max_epochs={"b": 2}).is_finite
    with pytest.raises(tl.ConfigError, match=r"stop.*all_exhausted.*'b'"):
        len(tl.mix(some, stop="all_exhausted"))


# -- weights -----------------------------------------------------------------------------------


def test_im_10_least_consumed_with_weights_keeps_3_to_1_within_one_sample(varied):
    weights = {"full": 1, "short": 1, "packed": 3}
    run = tl.mix(endless(varied), weights={"packed": 3}).seed(2)
    for examples in range(1, 160):
        consumed = {n: tokens / weights[n] for n, tokens in counts_of(run, examples).items()}
        assert max(consumed.values()) - min(consumed.values()) <= 8, "tokens of a row"


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.lists(st.integers(1, 9), min_size=1, max_size=8),
    st.integers(0, 9),
)
def test_im_10_a_stream_with_weights_keeps_3_to_1_within_one_sample(some, others, seed):
    sources = {
        "a": lambda skip: itertools.islice(itertools.cycle(samples("a", some)), skip, None),
        "b": lambda skip: itertools.islice(itertools.cycle(samples("b", others)), skip, None),
    }
    stream = interleave(sources, weights={"a": 3}, seed=seed)
    for _ in range(200):
        next(stream)
        counts = stream.token_counts
        assert abs(counts["a"] - 3 * counts["b"]) <= max(max(some), 3 * max(others))


def test_c_52_weights_are_optional_and_1_by_default(varied):
    plain = tl.mix(varied).seed(2)
    assert plain.describe()["mix"]["weights"] == {"full": 1.0, "short": 1.0, "packed": 1.0}
    for weights in ({"full": 1}, {"full": 1, "short": 1.0, "packed": np.float32(1)}):
        assert tl.mix(varied, weights=weights).seed(2) == plain
    other = tl.mix(varied, weights={"full": 3}).seed(2)
    assert other.fingerprint != plain.fingerprint
    assert names_of(other) != names_of(plain)
    rows = {name: [[1] * 3] * 30 for name in "ab"}
    assert picked(interleave(rows)) == picked(interleave(rows, weights=[1, 1]))


def test_im_16_weights_of_1_1_2_are_shares_of_a_quarter_a_quarter_and_a_half(rows_of):
    sources = endless({name: rows_of(80) for name in "abc"})
    weights = {"a": 1, "b": 1, "c": 2}
    for rule in ("weights", "rounds", "random"):
        run = tl.mix(sources, rule=rule, weights=weights, block=8)
        assert counts_of(run, 4000, "rows") == {"a": 1000, "b": 1000, "c": 2000}
    assert names_of(tl.mix(sources, rule="round_robin"), 6) == "abcabc"
    run = tl.mix(sources, rule="random", weights=weights, block=400).seed(3)
    order = names_of(run, 4000)
    blocks = [order[first : first + 400] for first in range(0, 4000, 400)]
    assert [Counter(block) for block in blocks] == [{"a": 100, "b": 100, "c": 200}] * 10
    assert len(set(blocks)) == 10
    doubles = Counter(itertools.pairwise(order))["a", "a"]
    assert 180 < doubles < 320, "one pair in 16, as of independent draws"


def test_im_16_streams_have_probabilities_and_turns():
    sources = {name: [[1]] * 4000 for name in "abc"}
    stream = interleave(sources, rule="probability", weights=[1, 1, 2], seed=5)
    assert stream.shares == {"a": 0.25, "b": 0.25, "c": 0.5}
    order = picked(stream, 4000)
    found = Counter(order)
    assert all(abs(found[n] - 4000 * share) < 120 for n, share in stream.shares.items()), found
    again = interleave(sources, rule="probability", weights=[1, 1, 2], seed=5)
    assert picked(again, 4000) == order
    other = interleave(sources, rule="probability", weights=[1, 1, 2], seed=6)
    assert picked(other, 4000) != order
    assert picked(interleave(sources, rule="round_robin"), 6) == "abcabc"


def test_im_16_the_share_of_a_stream_that_has_ended_goes_to_the_others():
    sources = {"a": [[1]] * 3, "b": [[1]] * 300, "c": [[1]] * 300}
    order = picked(interleave(sources, rule="probability", weights=[2, 1, 1]))
    assert Counter(order) == {"a": 3, "b": 300, "c": 300}
    assert 75 < Counter(order[20:220])["b"] < 125


@pytest.mark.parametrize("rule", RULES)
def test_im_16_no_weights_zeros_and_other_wrong_weights_are_refused(rows_of, rule):
    sources = {name: rows_of(4) for name in "ab"}
    wrong = [{}, [], {"a": 0, "b": 0}, *({"b": number} for number in BAD_NUMBERS)]
    for weights in wrong:
        with pytest.raises(ValueError, match=r"weights|rule") as refused:
            tl.mix(sources, rule=rule, weights=weights)
        assert isinstance(refused.value, tl.ConfigError)
    if rule != "round_robin":
        with pytest.raises(tl.ConfigError, match=r"weights.*'aa'"):
            tl.mix(sources, rule=rule, weights={"aa": 1})


@pytest.mark.parametrize("rule", ["least_consumed", "probability"])
def test_im_16_wrong_weights_of_streams_are_refused(rule):
    wrong = [[], [0, 0], [1, 2, 3], "ab", 3, {"aa": 1}, *([1, number] for number in BAD_NUMBERS)]
    for weights in wrong:
        with pytest.raises(ValueError, match="weights") as refused:
            interleave({"a": [[1]], "b": [[1]]}, rule=rule, weights=weights)
        assert isinstance(refused.value, tl.ConfigError)


def test_im_18_a_block_far_away_is_found_without_those_before_it(rows_of):
    """Blocks of 2,048 with quotas 512, 512 and 1,024, in turn or permuted."""
    sources = endless({name: rows_of(80) for name in "abc"})
    quotas = {"a": 512, "b": 512, "c": 1024}
    inside = [0, 511, 512, 1023, 1024, 2047]
    items = [0, 511, 0, 511, 0, 1023]
    for rule in ("rounds", "random"):
        run = tl.mix(sources, rule=rule, weights={"c": 2}).seed(5)
        for block in (0, 31, 10**6 + 1, 10**9 + 7):
            for place, item in zip(inside, items, strict=True):
                example = run.at(2048 * block + place)
                if rule == "rounds":
                    assert example.source == "aabbcc"[inside.index(place)]
                    assert example.route.item == block * quotas[example.source] + item
                assert example.route.item // quotas[example.source] == block
                row = example.route.item % 80
                assert (example.route.epoch, example.route.row) == (example.route.item // 80, row)
                (span,) = example.spans
                assert span.document == row, "sources are not shuffled here"
        first = 2048 * 31
        assert Counter(run.batch(range(first, first + 2048)).source) == quotas


# -- resume and ranks --------------------------------------------------------------------------


def test_im_11_40_examples_are_20_and_20(rows_of):
    def make(seed=42):
        return tl.mix(endless({name: rows_of(12).shuffle() for name in "abc"})).seed(seed)

    whole = make().batch(range(40))
    with tl.Loader(make(), 20, prefetch=0) as loader:
        first = next(loader)
        state = json.loads(json.dumps(loader.state_dict()))
    with tl.Loader(make(), 5, prefetch=0) as rest:
        rest.load_state_dict(state)
        batches = [first, *(next(rest) for _ in range(4))]
    assert [name for batch in batches for name in batch.source] == whole.source
    assert np.array_equal(np.concatenate([batch.tokens for batch in batches]), whole.tokens)
    assert make(seed=43).batch(range(20, 40)).source != whole.source[20:], "other ties"


@pytest.mark.parametrize("rule", RULES)
def test_im_11_every_rule_resumes_anywhere_with_any_ranks(varied, rule):
    weights = None if rule == "round_robin" else {"packed": 2.0, "short": 0.5}
    run = tl.mix(varied, rule=rule, weights=weights, block=9).seed(8)
    assert_resumable(run, batch_size=9, steps=3)
    assert_elastic(run, (1, 2, 9), batch_size=9, steps=3)


def test_im_11_40_samples_of_a_stream_are_20_and_20():
    sources = {"a": [[1]] * 40, "b": [[2]] * 40, "c": [[3]] * 40}
    whole = places(interleave(sources, seed=42), 40)
    first, second = interleave(sources, seed=42), interleave(sources, seed=42)
    start = places(first, 20)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert start + places(second, 20) == whole
    by_offsets = interleave(sources, seed=42, offsets=first.offsets)
    assert start + places(by_offsets, 20) == whole, "also from the seed's row and token offsets"
    by_counts = interleave(sources, seed=42, token_counts=first.token_counts)
    assert start + places(by_counts, 20) != whole, "counts alone do not say which tie is next"


def test_im_11_a_stream_resumes_after_every_sample():
    sources = {"a": samples("a", [1, 5, 2]), "b": samples("b", [3, 3]), "c": samples("c", [2] * 4)}
    for rule in ("least_consumed", "probability", "round_robin"):
        whole = places(interleave(sources, rule=rule, seed=3))
        stream, found = interleave(sources, rule=rule, seed=3), []
        for _ in whole:
            found += places(stream, 1)
            state, stream = stream.state_dict(), interleave(sources, rule=rule, seed=3)
            stream.load_state_dict(json.loads(json.dumps(state)))
        assert found == whole
        assert next(stream, None) is None


@pytest.mark.parametrize("world", [1, 4, 6])
def test_im_12_c_51_counts_of_all_ranks_are_one_and_sum_up_what_they_delivered(varied, world):
    run = tl.mix(endless(varied), weights={"packed": 0.3}).seed(2)
    ranks = [tl.Loader(run, 12, rank, world, prefetch=0) for rank in range(world)]
    rows, tokens = Counter(), Counter()
    for _ in range(5):
        for rank in ranks:
            for name, real in delivered_by(next(rank)):
                rows[name] += 1
                tokens[name] += real
        for rank in ranks:
            state = rank.state_dict()["sources"]
            assert {one["name"]: one["rows"] for one in state} == rows
            assert {one["name"]: one["tokens"] for one in state} == tokens
    for rank in ranks:
        rank.close()


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_im_12_c_51_ranks_of_a_stream_share_one_order_and_one_state(world):
    rng = np.random.default_rng(world)
    sources = {name: samples(name, rng.integers(1, 9, 40).tolist()) for name in "abc"}
    whole = places(interleave(sources, seed=1))
    ranks = [interleave(sources, seed=1, rank=rank, world_size=world) for rank in range(world)]
    found, total = [], Counter()
    for step in itertools.count():
        taken = [sample for stream in ranks if (sample := next(stream, None)) is not None]
        if not taken:
            break
        found += [(sample.source, sample.row) for sample in taken]
        for sample in taken:
            total[sample.source] += sample.tokens
        if step % 5 == 0:
            assert len({json.dumps(stream.state_dict()) for stream in ranks}) == 1
    assert found == whole
    assert all(stream.token_counts == total for stream in ranks)


def test_im_12_a_state_of_some_ranks_is_resumed_by_any_other_number():
    sources = {"a": samples("a", [1, 5, 2, 4] * 4), "b": samples("b", [3, 3] * 5)}
    whole, found, state = places(interleave(sources, seed=2)), [], None
    for world in itertools.cycle([3, 1, 4, 2]):
        ranks = [interleave(sources, seed=2, rank=r, world_size=world) for r in range(world)]
        for stream in ranks:
            if state is not None:
                stream.load_state_dict(json.loads(state))
        step = [next(stream, None) for stream in ranks]
        found += [(sample.source, sample.row) for sample in step if sample is not None]
        if None in step:
            break
        (state,) = {json.dumps(stream.state_dict()) for stream in ranks}
    assert found == whole


def test_c_64_ranks_share_global_batches_in_slices_and_never_the_rows_of_a_source(rows_of):
    """10 rows on 4 ranks are 2, 3, 2 and 3 neighbours; a stream is shared by modulo."""
    run = tl.mix({name: rows_of(80) for name in "ab"}).seed(1)
    ranks = [tl.Loader(run, 10, rank, 4, prefetch=0) for rank in range(4)]
    sources = [set() for _ in ranks]
    for first in (0, 10):
        batches = [next(rank) for rank in ranks]
        assert [batch.index.tolist() for batch in batches] == [
            [first, first + 1],
            [first + 2, first + 3, first + 4],
            [first + 5, first + 6],
            [first + 7, first + 8, first + 9],
        ]
        for found, batch in zip(sources, batches, strict=True):
            found.update(batch.source)
    assert sources == [{"a", "b"}] * 4, "every rank has rows of both sources"
    rows = {name: [[1]] * 20 for name in "ab"}
    for rank in range(4):
        shared = interleave(rows, rank=rank, world_size=4)
        assert [sample.index for sample in shared] == list(range(rank, 40, 4))


def local_correction(world, steps):
    """What ranks deliver that start from the global counts and steer by their own."""
    totals = Counter(b=80)
    for _ in range(world):
        own = {"a": 0, "b": 80}
        for _ in range(steps):
            name = min(own, key=own.get)
            own[name] += 8
            totals[name] += 8
    return totals


def test_im_13_four_ranks_from_0_and_80_are_equal_after_80_samples(rows_of):
    assert local_correction(4, 20) == {"a": 480, "b": 240}, "what must not happen"
    run = tl.mix({name: rows_of(80) for name in "ab"}, initial={"a": 0, "b": 80})
    ranks = [tl.Loader(run, 16, rank, 4, prefetch=0) for rank in range(4)]
    totals = Counter(b=80)
    for _ in range(5):
        for rank in ranks:
            for name, tokens in delivered_by(next(rank)):
                totals[name] += tokens
    assert totals == {"a": 360, "b": 360}
    sources = {name: [[1] * 8] * 80 for name in "ab"}
    streams = [interleave(sources, token_counts={"b": 80}, rank=r, world_size=4) for r in range(4)]
    totals = Counter(b=80)
    for stream in streams:
        for sample in itertools.islice(stream, 20):
            totals[sample.source] += sample.tokens
    assert totals == {"a": 360, "b": 360}
    assert all(stream.token_counts == totals for stream in streams)


# -- what is reported --------------------------------------------------------------------------


def test_im_14_tr_05_the_position_is_a_line_a_source_with_real_rows_and_tokens(rows_of, caplog):
    sources = {
        "wiki": rows_of(4),
        "code": rows_of(12).epochs(2),
        "for ever": rows_of(80).epochs(None),
    }
    loader = tl.Loader(tl.mix(sources, rule="round_robin"), 6, prefetch=0)
    assert loader.position() == [
        "wiki: rows=0/4 tokens=0 (0.0%) epochs=0",
        "code: rows=0/24 tokens=0 (0.0%) epochs=0",
        "for ever: rows=0 tokens=0 epochs=0",
    ]
    next(loader), next(loader)
    lines = [
        "wiki: rows=4/4 tokens=32 (100.0%) epochs=1",
        "code: rows=4/24 tokens=32 (16.7%) epochs=0",
        "for ever: rows=4 tokens=32 epochs=0",
    ]
    assert loader.position() == lines
    with caplog.at_level(logging.INFO, logger="tokenloom"):
        loader.log_position()
    assert [record.getMessage() for record in caplog.records] == [
        "Dataset Position: step=2 examples=12",
        *(f"  {line}" for line in lines),
    ]


def test_im_14_filler_is_not_counted(varied):
    run = tl.mix(varied)
    with tl.Loader(run, 10, prefetch=0) as loader:
        next(loader)
        lines = dict(line.split(": ") for line in loader.position())
    counts = Counter()
    for name, tokens in delivered(run, 10):
        counts[name] += tokens
    assert counts.total() < 10 * 8
    for name in varied:
        assert f" tokens={counts[name]} " in lines[name]


def test_im_14_tr_05_the_position_of_a_stream_has_real_rows_and_tokens(caplog):
    sources = {
        "wiki": samples("w", [2] * 4),
        "code": iter(samples("c", [2] * 6)),
        "book": lambda skip: samples("b", [2] * 3)[skip:],
    }
    stream = interleave(sources, totals={"book": 3}, token_counts={"wiki": 2000, "code": 2000})
    assert stream.position_lines() == [
        "wiki: 0 of 4 rows (0.0%), 2,000 tokens",
        "code: 0 rows, 2,000 tokens",
        "book: 0 of 3 rows (0.0%), 0 tokens",
    ]
    for _ in range(5):
        next(stream)
    assert stream.position_lines()[2] == "book: 3 of 3 rows (100.0%), 6 tokens"
    with caplog.at_level(logging.INFO, logger="tokenloom"):
        stream.log_position()
    assert [record.getMessage() for record in caplog.records] == [
        "mix: 5 samples, 4,010 tokens",
        *(f"mix: {line}" for line in stream.position_lines()),
    ]


def test_im_15_the_name_on_a_row_is_that_of_the_store_of_its_tokens(varied):
    first = {"full": range(1, 97), "short": range(100, 107), "packed": range(300, 307)}
    run = tl.mix(varied).seed(1)
    for dataset in (run, run.shuffle(), run.edit(at=7, weights={"short": 3})):
        with tl.Loader(dataset, 7, 1, 3) as loader:
            for batch in loader:
                for name, tokens, real in zip(
                    batch.source, batch.tokens, batch.attention_mask, strict=True
                ):
                    assert set(tokens[real].tolist()) <= set(first[name])
    assert [run.at(index).source for index in range(20)] == run.batch(range(20)).source


def test_im_15_a_sample_of_a_stream_says_its_source_and_is_not_copied():
    value = {"input_ids": [1, 2, 3, 0], "attention_mask": [1, 1, 1, 0]}
    sample = next(interleave({"wiki": [value]}))
    assert sample.value is value
    assert (sample.source, sample.tokens, sample.index) == ("wiki", 3, 0)
    assert (sample.epoch, sample.row) == (0, 0)


def test_im_17_sources_are_shuffled_each_by_itself_before_they_are_mixed(rows_of):
    """An epoch of a source is its own permutation, and epochs of sources do not mix."""
    sources = {"a": rows_of(12).shuffle(), "b": rows_of(4).shuffle()}
    run = tl.mix(sources, rule="round_robin").seed(3)
    routes = [(run.at(index).source, run.at(index).route) for index in range(len(run))]
    for name, count, epochs in (("a", 12, 1), ("b", 4, 3)):
        of_source = [(route.epoch, route.row) for source, route in routes if source == name]
        assert [epoch for epoch, _ in of_source] == sorted(list(range(epochs)) * count)
        rows = [row for _, row in of_source]
        assert all(
            sorted(rows[first : first + count]) == list(range(count))
            for first in range(0, count * epochs, count)
        )
        assert rows != list(range(count)) * epochs


@pytest.mark.parametrize("shuffle", [buffer_shuffle, window_shuffle])
def test_im_17_streams_are_shuffled_each_by_itself_before_they_are_mixed(shuffle):
    rows = {name: samples(name, [2] * 12) for name in "ab"}
    shuffled = {name: shuffle(rows[name], 4, seed=1, name=name) for name in rows}
    orders = {name: list(shuffle(rows[name], 4, seed=1, name=name)) for name in rows}
    mixed = list(interleave(shuffled, seed=5))
    plain = picked(interleave(rows, seed=5))
    assert "".join(sample.source for sample in mixed) == plain, "turns are those of plain sources"
    for name in rows:
        assert [sample.value for sample in mixed if sample.source == name] == orders[name]
        assert orders[name] != rows[name]


def test_im_20_every_fourth_pick_of_a_stream_is_logged_with_step_choice_and_counts(caplog):
    sources = {"a": [[1]] * 20, "b": [[1]] * 20}
    stream = interleave(sources, log_every=4, seed=1)
    with caplog.at_level(logging.DEBUG, logger="tokenloom"):
        order = picked(stream, 12)
    logged = [record.getMessage() for record in caplog.records]
    assert len(logged) == 3
    for message, step, half in zip(logged, (3, 7, 11), (2, 4, 6), strict=True):
        for part in (f" {step} ", repr(order[step]), f"'a': {half}", f"'b': {half}"):
            assert part in message
    caplog.clear()
    with caplog.at_level(logging.DEBUG, logger="tokenloom"):
        list(interleave(sources, log_every=0))
    assert not caplog.records


def test_im_20_choice_and_counts_of_any_step_of_a_run_are_known_afterwards(varied, rows_of):
    run = tl.mix(endless(varied), weights={"full": 2}).seed(3)
    seen, expected = Counter(), []
    for number, (name, tokens) in enumerate(delivered(run, 80)):
        seen[name] += tokens
        if number % 4 == 3:
            expected.append((number, name, {each: seen[each] for each in varied}))
    fresh = tl.mix(endless(varied), weights={"full": 2}).seed(3)
    for number, name, counts in reversed(expected):
        assert fresh.at(number).source == name
        assert counts_of(fresh, number + 1) == counts
    equal = tl.mix(endless({name: rows_of(80) for name in "ab"}), cost="rows")
    assert counts_of(equal, 10**12, "rows") == {"a": 5 * 10**11, "b": 5 * 10**11}
    assert {equal.at(10**12).source, equal.at(10**12 + 1).source} == {"a", "b"}


# -- seeds -------------------------------------------------------------------------------------


def test_c_69_one_seed_and_a_name_for_every_purpose(rows_of):
    sources = endless({name: rows_of(12).shuffle() for name in "ab"})

    def parts(inner, outer):
        """(ties, order of a, order of b)."""
        made = {n: ds if inner is None or n == "b" else ds.seed(inner) for n, ds in sources.items()}
        run = tl.mix(made, cost="rows").seed(outer)
        routes = [run.at(index) for index in range(48)]
        orders = [[one.route.row for one in routes if one.source == name] for name in "ab"]
        return "".join(one.source for one in routes), *orders

    ties, of_a, of_b = parts(None, 42)
    assert of_a != of_b, "one store under two names has two orders"
    assert parts(None, 42) == (ties, of_a, of_b)
    other = parts(None, 43)
    assert all(x != y for x, y in zip(other, (ties, of_a, of_b), strict=True))
    assert parts(7, 42) == (ties, parts(7, 43)[1], of_b), "its own seed is of its own order only"
    assert parts(42, 43) == (other[0], of_a, other[2])


def test_c_69_ties_draws_and_shuffles_of_streams_have_keys_of_their_own():
    """The letters are golden: another order is another format of the state."""
    sources = {"a": [[1]] * 40, "b": [[1]] * 40}
    assert picked(interleave(sources, seed=42), 24) == "bababaabababbabababaabba"
    by_chance = interleave(sources, rule="probability", seed=42)
    assert picked(by_chance, 24) == "aabaaabbbaaaabaabaabaaaa"
    assert list(buffer_shuffle(range(10), 4, seed=42)) == [0, 1, 5, 3, 2, 8, 4, 6, 7, 9]
    assert list(window_shuffle(range(10), 4, seed=42)) == [1, 0, 3, 2, 7, 6, 5, 4, 8, 9]
    rows = list(range(12))
    orders = [
        list(shuffle(rows, 12, seed=seed, name=name))
        for shuffle in (buffer_shuffle, window_shuffle)
        for seed in (42, 43)
        for name in ("a", "b")
    ]
    orders.append(list(buffer_shuffle(rows, 12, seed=42, name="a", epochs=2))[12:])
    assert len({tuple(order) for order in orders}) == len(orders)
    for seed in (42, 43):  # the seed of a shuffle does not change the order of the mix
        shuffled = {n: buffer_shuffle(r, 5, seed=seed, name=n) for n, r in sources.items()}
        assert picked(interleave(shuffled, seed=42), 24) == "bababaabababbabababaabba"
