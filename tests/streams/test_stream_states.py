"""States of mixed streams: they resume exactly, anywhere and on any ranks; damage is refused."""

import importlib
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from refusals import refused
from spoiling import drop, put, spoilt
from streamtoys import (
    KINDS,
    ONCE,
    Again,
    Skips,
    Stateful,
    StatefulIterable,
    corpora,
    names,
    only,
    restored_before_every_item,
    rows_of,
    some_weights,
    stops,
    tags,
)

import tokenloom as tl
from tokenloom.streams import Offset, interleave

RULES = ("least_consumed", "probability", "round_robin")

# -- exact resume ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(corpora, some_weights, stops, st.integers(1, 2), st.sampled_from(RULES))
def test_ck_12_a_state_of_any_moment_goes_on_exactly(kind, sources, weights, stop, epochs, rule):
    """Every step is done by a stream that was made anew and restored just before."""
    assume(kind not in ONCE or (stop != "repeat" and epochs == 1))
    given = {"rule": rule, "stop": stop, "epochs": epochs, "seed": 3}
    given |= {} if rule == "round_robin" else {"weights": only(weights, sources)}

    def make():
        return interleave({name: KINDS[kind](rows) for name, rows in sources.items()}, **given)

    wanted = [(s.source, s.index, s.tokens, s.epoch, s.row, s.value) for s in make()]
    found, stream = restored_before_every_item(make)
    assert [(s.source, s.index, s.tokens, s.epoch, s.row, s.value) for s in found] == wanted
    last = make()
    last.load_state_dict(stream.state_dict())
    assert list(last) == []


def test_the_last_samples_may_be_dropped_so_that_ranks_end_together():
    sources = {"a": [[1]] * 5, "b": [[1]] * 5}
    counts = [
        len(list(interleave(sources, rank=r, world_size=4, drop_last=drop)))
        for drop in (False, True)
        for r in range(4)
    ]
    assert counts == [3, 3, 2, 2, 2, 2, 2, 2]


def test_a_state_may_be_loaded_again_and_again():
    sources = {"a": rows_of("a", [1, 2, 3, 4]), "b": rows_of("b", [2] * 5)}
    stream = interleave(sources)
    wanted = tags(interleave(sources))
    states = [stream.state_dict()]
    for _ in wanted:
        next(stream)
        states.append(stream.state_dict())
    for place in (3, 0, 7, 2, len(wanted)):
        stream.load_state_dict(states[place])
        assert tags(stream) == wanted[place:]


def test_an_iterator_is_read_forward_to_a_state_but_not_back():
    def make():
        return interleave({"a": iter(rows_of("a", [1] * 9)), "b": iter(rows_of("b", [1] * 9))})

    stream = make()
    early = stream.state_dict()
    names(stream, 4)
    middle = stream.state_dict()
    names(stream, 4)
    rest = make()
    names(rest, 2)
    rest.load_state_dict(middle)
    assert tags(rest) == tags(make())[4:]
    before = stream.state_dict()
    refused(lambda: stream.load_state_dict(early), tl.StateError, "sources.a", 4)
    assert stream.state_dict() == before
    assert tags(stream) == tags(make())[8:]


def test_what_can_skip_is_not_read_through():
    many, skips = Again([[1]] * 100), Skips([[1]] * 100)
    stream = interleave({"a": many, "b": skips}, offsets={"a": Offset(50), "b": Offset(50)})
    assert [next(stream).row for _ in range(2)] == [50, 50]
    assert (many.read, skips.read) == (51, 0)


def test_nothing_is_read_ahead():
    many = {name: Again([[1]] * 10) for name in "ab"}
    stream = interleave(many)
    assert all(source.read == 0 for source in many.values())
    for picks in range(1, 10):
        next(stream)
        assert sum(source.read for source in many.values()) == picks


def test_further_passes_are_told_to_a_source_that_wants_to_know():
    class Epochs(StatefulIterable):
        told = ()

        def set_epoch(self, epoch):
            self.told = (*self.told, epoch)

    source = Epochs([[1]] * 2)
    stream = interleave({"a": source}, stop="repeat", epochs=3)
    names(stream, 5)
    assert source.told == (1, 2)
    other = Epochs([[1]] * 2)
    again = interleave({"a": other}, stop="repeat", epochs=3)
    again.load_state_dict(stream.state_dict())
    assert other.told == (2,)
    assert tags(again) == [("a", 2, 1)]


def test_streams_are_sources_of_streams():
    def make():
        inner = interleave({"x": rows_of("x", [1, 2] * 6), "y": rows_of("y", [3] * 6)}, seed=1)
        return interleave({"inner": inner, "z": rows_of("z", [2] * 9)}, seed=2)

    whole = make()
    wanted = [(s.source, s.tokens, getattr(s.value, "source", None)) for s in whole]
    assert {inner for _, _, inner in wanted} == {"x", "y", None}
    stream, found = make(), []
    for _ in wanted:
        state, stream = json.loads(json.dumps(stream.state_dict())), make()
        stream.load_state_dict(state)
        s = next(stream)
        found.append((s.source, s.tokens, getattr(s.value, "source", None)))
    assert found == wanted


def test_iterable_datasets_of_hugging_face_resume_and_begin_again():
    datasets = importlib.import_module("datasets")

    def make():
        rows = datasets.Dataset.from_dict({"input_ids": [[i] * (1 + i % 3) for i in range(9)]})
        mixed = {"a": rows.to_iterable_dataset(num_shards=3), "b": rows}
        return interleave(mixed, stop="repeat", epochs=2, seed=1)

    wanted = [(s.source, s.epoch, s.row, s.value["input_ids"]) for s in make()]
    assert {epoch for _, epoch, _, _ in wanted} >= {0, 1}
    stream, found = make(), []
    for place in range(len(wanted)):
        if place % 3 == 0:
            state, stream = json.loads(json.dumps(stream.state_dict())), make()
            stream.load_state_dict(state)
        s = next(stream)
        found.append((s.source, s.epoch, s.row, s.value["input_ids"]))
    assert found == wanted


# -- states of others, and damaged ones --------------------------------------------------------


def busy(**given):
    usual = {"weights": {"a": 2.0}, "stop": "repeat", "epochs": 2, "seed": 5}
    sources = {"a": rows_of("a", [2] * 4), "b": StatefulIterable(rows_of("b", [3] * 4))}
    stream = interleave(sources, **usual | given)
    names(stream, 7)
    return stream


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"seed": 6}, ["seed", 5, 6]),
        ({"weights": {"a": 3.0}}, ["weights", "'a': 2.0", "'a': 3.0"]),
        ({"rule": "probability"}, ["rule", "cost"]),
    ],
)
def test_a_state_of_another_mix_is_refused_with_both_values(given, named):
    stream = busy(**given)
    before = stream.state_dict()
    refused(lambda: stream.load_state_dict(busy().state_dict()), tl.StateError, *named)
    assert stream.state_dict() == before


def test_a_state_of_other_sources_is_refused_with_a_way_out():
    state = interleave({"a": [[1]], "b": [[1]]}).state_dict()
    other = interleave({"a": [[1]], "c": [[1]]})
    refused(lambda: other.load_state_dict(state), tl.StateError, "['a', 'b']", "read_offsets")
    listed, other = {"a": [[1]] * 3, "b": [[1]] * 3}, {"b": [[1]] * 3, "a": [[1]] * 3}
    interleave(other).load_state_dict(interleave(listed).state_dict())  # the listing is no matter
    turns = interleave(listed, rule="round_robin").state_dict()
    stream = interleave(other, rule="round_robin")
    refused(lambda: stream.load_state_dict(turns), tl.StateError, "['b', 'a']")


def test_a_source_that_became_shorter_or_another_is_refused():
    given = {"weights": {"a": 2.0}, "stop": "repeat", "epochs": 2, "seed": 5}
    sources = {"a": rows_of("a", [2] * 4), "b": StatefulIterable(rows_of("b", [3] * 4))}
    saved = interleave(sources, **given)
    while saved.positions["a"].row < 2:
        next(saved)
    state = saved.state_dict()
    short = {"a": rows_of("a", [2] * 1), "b": StatefulIterable(rows_of("b", [3] * 4))}
    stream = interleave(short, **given)
    refused(lambda: stream.load_state_dict(state), tl.StateError, "sources.a", "2 rows")
    stream = interleave(short | {"a": Again(rows_of("a", [2] * 1))}, **given)
    stream.load_state_dict(state)  # only reading tells
    refused(lambda: list(stream), tl.StateError, "sources.a", "2 rows")
    stream = interleave({"a": rows_of("a", [2] * 4), "b": rows_of("b", [3] * 4)}, **given)
    refused(lambda: stream.load_state_dict(state), tl.StateError, "sources.b")


def test_a_source_whose_state_is_no_json_says_so():
    class Odd(Stateful):
        def state_dict(self):
            return {"place": {1, 2}}

    stream = interleave({"a": Odd([[1]])})
    refused(stream.state_dict, tl.StateError, "sources.a", "Odd")


HOSTILE = [
    (put("format", "tokenloom.interleave/1"), "format"),
    (put("pick", 3), "sha256"),
    (drop("picks"), "sha256"),
    (put("options", "weights", "a", 10**400), "sha256"),
    (put("sources", 0, "tokens", -1), "sha256"),
    (drop("sources", 0), "sha256"),
    (put("finished", 0), "sha256"),
    (put("sha256", "x"), "sha256"),
]


@pytest.mark.parametrize(("change", "named"), HOSTILE)
def test_a_damaged_state_is_refused_and_nothing_changes(change, named):
    state = busy().state_dict()
    change(state)
    stream = busy()
    before = stream.state_dict()
    refused(lambda: stream.load_state_dict(state), tl.StateError, named)
    assert stream.state_dict() == before
    busy().load_state_dict(before)


@pytest.mark.parametrize("wrong", [None, [], "state", 3, {}])
def test_what_is_no_state_is_refused(wrong):
    with pytest.raises(tl.StateError):
        busy().load_state_dict(wrong)


@given(st.data())
def test_junk_in_a_state_is_refused_or_harmless(data):
    """It is a StateError, or the stream runs to its end."""
    state = interleave({"a": [[1]] * 3, "b": [[2]] * 3}).state_dict()
    stream = interleave({"a": [[1]] * 3, "b": [[2]] * 3})
    try:
        stream.load_state_dict(data.draw(spoilt(state)))
    except tl.StateError:
        assert len(list(stream)) == 6
    else:
        assert len(list(stream)) <= 6
