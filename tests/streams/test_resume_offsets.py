"""Offsets of sources in the seed's form: read, written, and kept for specs that are not used."""

import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

import tokenloom as tl
from tokenloom.streams import Offset, interleave, locate_row, read_offsets, write_offsets


def entry(spec, rows=None, tokens=None, **more):
    found = {"spec": spec, "row_offset": rows, "token_offset": tokens, **more}
    return {key: value for key, value in found.items() if value is not None}


def checkpoint(*entries, **more):
    return {"datasets": list(entries), **more}


def specs_of(saved):
    return [each["spec"] for each in saved["datasets"]]


def test_a_source_that_has_ended_does_not_hold_the_baseline_down():
    stream = interleave({"short": [[1] * 5] * 2, "long": [[1] * 5] * 50})
    list(islice(stream, 30))
    assert stream.active == ["long"]
    saved = write_offsets(stream.offsets, active=stream.active)
    assert saved["active"] == ["long"]
    assert read_offsets(saved, ["short", "long", "new"])["new"].tokens == 140


def test_other_keys_of_a_checkpoint_are_kept():
    saved = checkpoint(entry("a", 1, 1, note="x"), seeded_specs=["q"])
    written = write_offsets({"a": Offset(2, 3)}, saved)
    assert written == checkpoint(entry("a", 2, 3, note="x"), seeded_specs=["q"])
    alone = write_offsets({"a": Offset(2, 3)}, write_offsets({"a": Offset(), "b": Offset()}))
    assert write_offsets({"a": Offset(2, 3), "b": Offset(1, 1)}, alone).keys() == {"datasets"}


# -- laws --------------------------------------------------------------------------------------

counts = st.integers(0, 1000)
runs = st.lists(
    st.dictionaries(st.sampled_from("abcde"), st.tuples(counts, counts), min_size=1), max_size=6
)


@given(runs)
def test_a_checkpoint_remembers_the_last_of_every_spec(history):
    """Runs with other specs each, one after the other: nothing is lost, nothing is touched."""
    saved, known = None, {}
    for run in history:
        offsets = {spec: Offset(*pair) for spec, pair in run.items()}
        read = read_offsets(saved, run)
        assert {spec: o.rows for spec, o in read.items()} == {
            spec: known.get(spec, (0, 0))[0] for spec in run
        }
        assert all(o.tokens >= known.get(spec, (0, 0))[1] for spec, o in read.items())
        saved = json.loads(json.dumps(write_offsets(offsets, saved)))
        known |= run
        assert {e["spec"]: (e["row_offset"], e["token_offset"]) for e in saved["datasets"]} == known
        assert specs_of(saved) == [*run, *sorted(known.keys() - run.keys())]
        assert saved.get("active", list(run)) == list(run)


@given(runs.filter(bool))
def test_no_spec_begins_below_the_baseline(history):
    saved = None
    for run in history:
        saved = write_offsets({spec: Offset(*pair) for spec, pair in run.items()}, saved)
    last = history[-1]
    baseline = min(tokens for _, tokens in last.values())
    found = read_offsets(saved, list("abcdefg"))
    assert min(offset.tokens for offset in found.values()) == baseline
    assert found["f"].tokens == found["g"].tokens == baseline


# -- what is refused ---------------------------------------------------------------------------

DAMAGED = [
    ("x", "'x'"),
    ({"datasets": {}}, "datasets"),
    (checkpoint(3), "datasets[0]"),
    (checkpoint({"row_offset": 1}), "datasets[0].spec"),
    (checkpoint(entry("a", 1, 1), entry("a", 2, 2)), "datasets[1].spec"),
    (checkpoint(entry("a", -1, 1)), "datasets[0].row_offset"),
    (checkpoint(entry("a", "7", 1)), "row_offset"),
    ({"datasets": [{"spec": "a", "row_offset": None}]}, "row_offset"),
    (checkpoint(entry("a", True, 1)), "row_offset"),
    (checkpoint(entry("a", 1, float("nan"))), "token_offset"),
    (checkpoint(entry("a", 1, 1 << 63)), "token_offset"),
    (checkpoint(entry("a", 1, 10**5000)), "token_offset"),
    (checkpoint(entry("a", 1, 1), active=["b"]), "active"),
    (checkpoint(entry("a", 1, 1), active="a"), "active"),
]


@pytest.mark.parametrize(("wrong", "named"), DAMAGED)
def test_a_damaged_checkpoint_is_refused_by_both(wrong, named):
    refused(lambda: read_offsets(wrong, ["a"]), tl.StateError, named)
    refused(lambda: write_offsets({"a": Offset(1, 1)}, wrong), tl.StateError, named)


def test_every_problem_is_named():
    wrong = checkpoint(1, entry("a", -1), entry("b", 1, -1))
    refused(lambda: read_offsets(wrong, ["a"]), tl.StateError, "[0]", "[1]", "[2]")
    message = refused(lambda: read_offsets(checkpoint(*range(30)), ["a"]), tl.StateError, 10)
    assert len(message.splitlines()) < 30


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: read_offsets(None, ["a"], missing="base"), ("missing", "'base'", "'baseline'")),
        (lambda: read_offsets(None, "abc"), ("specs", "'abc'")),
        (lambda: read_offsets(None, ["a", "a"]), ("specs", "'a'")),
        (lambda: read_offsets(None, [3]), ("specs", 3)),
        (lambda: write_offsets({"a": Offset()}, active=["b"]), ("active", "'b'")),
        (lambda: Offset(-1, 0), ("rows", -1)),
        (lambda: Offset(0, 1.5), ("tokens", 1.5)),
        (lambda: locate_row([3, -1], 0), ("shard_rows[1]", -1)),
        (lambda: locate_row([3], -1), ("row", -1)),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(call, named):
    refused(call, tl.ConfigError, *named)


def test_offsets_beyond_a_source_are_refused():
    stream = interleave({"a": [[1]] * 3}, offsets={"a": Offset(4, 4)})
    refused(lambda: next(stream), tl.StateError, "sources.a", 4, 3)
    assert list(interleave({"a": [[1]] * 3}, offsets={"a": Offset(3, 3)})) == []
