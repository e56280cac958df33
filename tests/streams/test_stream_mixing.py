"""Streams mixed as they come: the order is that of the obvious loop, and a state is exact."""

import importlib
import itertools
import logging
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
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
from tokenloom.streams import Offset, interleave

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


BAD_WEIGHTS = [  # what is named with each
    ([], ("weights", 0)),
    ([1, 2, 3], ("weights", 3)),
    ([0, 0], ("weights.a", 0)),
    ([1, -1], ("weights.b", -1)),
    ([float("nan"), 1], ("weights.a", "nan")),
    ([10**400, 1], ("weights.a",)),
    ("ab", ("weights", "'ab'")),
    (["1", 1], ("weights.a", "'1'")),
    ([True, 1], ("weights.a", True)),
    ({"aa": 1}, ("weights", "'aa'", "'a'")),
]


@pytest.mark.parametrize(("wrong", "named"), BAD_WEIGHTS, ids=str)
@pytest.mark.parametrize("rule", ["least_consumed", "probability"])
def test_weights_that_cannot_be_meant_are_refused(wrong, named, rule):
    sources = {"a": [[1]], "b": [[1]]}
    refused(lambda: interleave(sources, weights=wrong, rule=rule), tl.ConfigError, *named)


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
    assert next(interleave({"a": [sample]})).tokens == tokens


def test_loss_tokens_are_another_number():
    sample = {"input_ids": [1, 2, 3, 4], "labels": [-100, 2, 3, -100]}
    masked = Thing(input_ids=[1] * 4, loss_mask=np.array([[True, False], [True, True]]))
    stream = interleave({"a": [sample], "b": [masked]}, cost="loss_tokens")
    list(stream)
    assert [stream.positions[name].cost for name in "ab"] == [2, 3]
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
    refused(lambda: next(stream), tl.InputError, "sources.a", "row 1", "length=")
    refused(lambda: next(stream), tl.StateError, "pick 1")
    refused(stream.state_dict, tl.StateError)


def test_a_length_of_ones_own():
    stream = interleave({"a": ["one two", "three"]}, length=lambda text: len(text.split()))
    assert [sample.tokens for sample in stream] == [2, 1]
    for wrong in (-1, 2.0, "3", None, True):
        stream = interleave({"a": ["x"]}, length=lambda text, found=wrong: found)
        refused(lambda stream=stream: next(stream), tl.InputError, "sources.a", "row 0", "tokens")
    numpys = interleave({"a": ["x"]}, length=lambda text: np.int64(3))
    assert type(next(numpys).tokens) is int
    stream = interleave({"a": [[1]]}, cost=lambda sample: -1)
    refused(lambda: next(stream), tl.InputError, "sources.a", "cost", -1)


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
    found = list(interleave({"a": [sample, {"input_ids": torch.zeros(2, 3)}, torch.arange(7)]}))
    assert [one.tokens for one in found] == [3, 6, 7]
    assert found[0].value["input_ids"] is sample["input_ids"]


# -- what is refused ---------------------------------------------------------------------------

TWO = {"a": [[1]], "b": [[1]]}
REFUSED = [
    ({"rule": "round_robbin"}, ("rule", "'round_robbin'", "'round_robin'")),
    ({"stop": "first"}, ("stop", "'first'", "'first_exhausted'")),
    ({"cost": "token"}, ("cost", "'token'", "'tokens'")),
    ({"rule": "probability", "cost": "tokens"}, ("cost", "'tokens'", "'probability'")),
    ({"rule": "round_robin", "weights": [1, 2]}, ("weights", "'round_robin'")),
    ({"epochs": 0}, ("epochs", 0)),
    ({"epochs": None}, ("epochs", None, "'repeat'")),
    ({"seed": -1}, ("seed", -1)),
    ({"seed": "42"}, ("seed", "'42'")),
    ({"rank": 2, "world_size": 2}, ("rank", "2 of 2")),
    ({"world_size": 0}, ("rank", "0 of 0")),
    ({"rank": -1}, ("rank", -1)),
    ({"token_counts": {"aa": 3}}, ("token_counts", "'aa'", "'a'")),
    ({"token_counts": [3]}, ("token_counts", 1, 2)),
    ({"token_counts": [0, -3]}, ("token_counts.b", -3)),
    ({"token_counts": [0, 1.5]}, ("token_counts.b", 1.5)),
    ({"totals": {"c": 3}}, ("totals", "'c'")),
    ({"offsets": {"a": 3}}, ("offsets.a", 3)),
    ({"offsets": {"a": Offset(1, 1)}, "token_counts": [1, 1]}, ("token_counts", "offsets")),
    ({"log_every": -1}, ("log_every", -1)),
]


@pytest.mark.parametrize(("given", "named"), REFUSED, ids=str)
def test_options_that_cannot_be_meant_are_refused(given, named):
    refused(lambda: interleave(TWO, **given), tl.ConfigError, *named)


SOURCES = [
    ({}, ()),
    ([("a", [[1]]), ("a", [[2]])], ("'a'",)),
    ({"": [[1]]}, ("''",)),
    ({3: [[1]]}, (3,)),
    ([[1], [2]], ("list",)),
    (5, ("int",)),
    ({"a": "abc"}, ("sources.a", "str")),
    ({"a": {"input_ids": [1]}}, ("sources.a", "dict")),
    ({"a": None}, ("sources.a", "NoneType")),
    ({"a": lambda: iter(())}, ("sources.a",)),
]


@pytest.mark.parametrize(("sources", "named"), SOURCES)
def test_sources_that_cannot_be_meant_are_refused(sources, named):
    refused(lambda: interleave(sources), tl.ConfigError, "sources", *named)


def test_pairs_are_sources_too():
    assert names(interleave([("a", [[1]]), ("b", [[1]])], rule="round_robin")) == "ab"


@pytest.mark.parametrize("kind", sorted(ONCE))
@pytest.mark.parametrize("given", [{"stop": "repeat"}, {"epochs": 2}], ids=str)
def test_an_iterator_cannot_begin_again(kind, given):
    sources = {"a": [[1]], "b": KINDS[kind]([[1]])}
    refused(lambda: interleave(sources, **given), tl.ConfigError, "sources.b", "iterator")


def test_one_iterator_cannot_be_two_sources():
    rows = iter([[1]] * 4)
    refused(lambda: interleave({"a": rows, "b": rows}), tl.ConfigError, "sources.b", "'a'")
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
    refused(lambda: interleave({"a": source, "b": [[1]]}), tl.ConfigError, "sources.a")
    assert interleave({"a": source, "b": [[1]]}, stop="first_exhausted").is_finite


def test_an_empty_source_drops_out_with_a_word_and_cannot_be_repeated(caplog):
    with caplog.at_level(logging.WARNING, logger="tokenloom"):
        assert names(interleave({"a": [], "b": [[1]] * 2})) == "bb"
    assert "'a'" in caplog.text
    stream = interleave({"a": [], "b": [[1]] * 2}, stop="repeat")
    refused(lambda: list(stream), tl.InputError, "sources.a")


def test_a_source_that_fails_stops_the_stream_instead_of_dropping_out():
    def broken():
        yield [1]
        raise OSError("disk")

    stream = interleave({"a": broken(), "b": [[1]] * 9})
    with pytest.raises(OSError, match="disk"):
        list(stream)
    refused(lambda: next(stream), tl.StateError)


def test_a_callable_that_gives_no_rows_is_refused():
    refused(lambda: next(interleave({"a": lambda skip: 5})), tl.ConfigError, "sources.a", "int")
