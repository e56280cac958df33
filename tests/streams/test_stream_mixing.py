"""Streams mixed as they come: the order is that of the obvious loop, and a state is exact."""

import importlib
import itertools
import logging
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamtoys import (
    KINDS,
    ONCE,
    Again,
    Thing,
    corpora,
    names,
    only,
    some_counts,
    some_weights,
    stops,
    tags,
)

import tokenloom as tl
from tokenloom.random.keys import child, key
from tokenloom.streams.checkpoint import Offset
from tokenloom.streams.interleaved import interleave
from tokenloom.streams.picking import shares
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
def test_the_order_is_that_of_the_obvious_loop(sources, weights, counts, stop, epochs, seed):
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


# -- wrong weights -----------------------------------------------------------------------------


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
def test_weights_that_cannot_be_meant_are_refused(wrong, match, rule):
    with pytest.raises(ValueError, match=match) as caught:
        interleave({"a": [[1]], "b": [[1]]}, weights=wrong, rule=rule)
    assert isinstance(caught.value, tl.ConfigError)


@pytest.mark.parametrize("wrong", [[], [0, 0], [1, float("nan")], [1, -1]])
def test_shares_of_wrong_weights_are_refused(wrong):
    with pytest.raises(ValueError, match="weights"):
        shares(wrong)


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
def test_tokens_are_the_input_tokens_that_are_not_filler(sample, tokens):
    assert tokens_of(sample) == tokens
    assert next(interleave({"a": [sample]})).tokens == tokens


def test_loss_tokens_are_another_number():
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


def test_torch_tensors_are_counted_as_they_are():
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
def test_an_iterator_cannot_begin_again(kind, given):
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
    with pytest.raises(tl.ConfigError, match=r"sources\.a: .*never ends"):
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
