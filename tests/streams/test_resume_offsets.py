"""Offsets of sources in the seed's form: read, written, and kept for specs that are not used."""

import json
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.streams.checkpoint import Offset, align_rows, locate_row, read_offsets, write_offsets
from tokenloom.streams.interleaved import interleave


def entry(spec, rows=None, tokens=None, **more):
    found = {"spec": spec, "row_offset": rows, "token_offset": tokens, **more}
    return {key: value for key, value in found.items() if value is not None}


def checkpoint(*entries, **more):
    return {"datasets": list(entries), **more}


def specs_of(saved):
    return [each["spec"] for each in saved["datasets"]]


# -- rows of the checklist ---------------------------------------------------------------------


def test_ck_01_the_form_is_that_of_the_seed():
    saved = write_offsets({"hf:wiki": Offset(123, 456), "txt:code": Offset(7, 89)})
    assert json.dumps(saved) == json.dumps(
        {
            "datasets": [
                {"spec": "hf:wiki", "row_offset": 123, "token_offset": 456},
                {"spec": "txt:code", "row_offset": 7, "token_offset": 89},
            ]
        }
    )


def test_ck_02_ck_16_offsets_persist_and_load_for_all_specs(tmp_path):
    stream = interleave({"a": [[1, 1]] * 9, "b": [[1, 1, 1]] * 9}, seed=1)
    list(islice(stream, 7))
    path = tmp_path / "resume_state.json"
    path.write_text(json.dumps(write_offsets(stream.offsets, active=stream.active)))
    loaded = read_offsets(json.loads(path.read_text()), ["a", "b"])
    assert loaded == stream.offsets
    assert {name: offset.rows for name, offset in loaded.items()} == Counter(a=4, b=3)
    assert loaded["a"].tokens == 8
    again = interleave({"a": [[1, 1]] * 9, "b": [[1, 1, 1]] * 9}, seed=1, offsets=loaded)
    assert [(s.source, s.row) for s in again] == [(s.source, s.row) for s in stream]


def test_ck_03_c_48_unknown_specs_are_preserved_byte_for_byte():
    """Save, load, save: the old spec keeps its 50 and is not lifted to the baseline."""
    old = {"token_offset": 50, "spec": "old", "row_offset": 5, "note": {"by": ["hand", 1.5]}}
    first = checkpoint(entry("a", 100, 1000), old)
    offsets = read_offsets(first, ["a", "b"])
    second = write_offsets(offsets, first)
    third = write_offsets(read_offsets(second, ["a", "b"]), second)
    for saved in (second, third):
        assert json.dumps(saved["datasets"][-1]) == json.dumps(old)
    assert json.dumps(second) == json.dumps(third)
    assert first == checkpoint(entry("a", 100, 1000), old), "the checkpoint itself is left alone"


def test_c_48_a_preserved_spec_that_is_active_again_is_lifted_to_the_baseline():
    saved = write_offsets(
        {"a": Offset(100, 1000), "b": Offset(90, 1008)},
        checkpoint(entry("low", 5, 50), entry("high", 500, 5000)),
    )
    found = read_offsets(saved, ["a", "b", "low", "high"])
    assert found["low"] == Offset(5, 1000), "max(saved, baseline)"
    assert found["high"] == Offset(500, 5000)
    assert found["a"] == Offset(100, 1000)
    zero = read_offsets(saved, ["a", "low"], missing="zero")
    assert zero["low"] == Offset(5, 50)


def test_c_48_without_a_mark_what_the_run_still_has_was_active():
    saved = checkpoint(entry("a", 1, 1000), entry("low", 5, 50))
    assert read_offsets(saved, ["a", "new"])["new"].tokens == 1000, "low is not of this run"
    assert read_offsets(saved, ["a", "low"])["low"].tokens == 50
    assert read_offsets(saved, ["a", "low"], active=["a"])["low"].tokens == 1000


def test_a_source_that_has_ended_does_not_hold_the_baseline_down():
    stream = interleave({"short": [[1] * 5] * 2, "long": [[1] * 5] * 50})
    list(islice(stream, 30))
    assert stream.active == ["long"]
    saved = write_offsets(stream.offsets, active=stream.active)
    assert saved["active"] == ["long"]
    assert read_offsets(saved, ["short", "long", "new"])["new"].tokens == 140


def test_ck_04_c_47_missing_tokens_are_zero_if_asked_for():
    saved = checkpoint(entry("a", 7), entry("b", 9, 120))
    found = read_offsets(saved, ["a", "b", "c"], missing="zero")
    assert found == {"a": Offset(7, 0), "b": Offset(9, 120), "c": Offset(0, 0)}


def test_ck_05_c_47_missing_tokens_are_the_baseline():
    saved = checkpoint(entry("old", 9, 120))
    assert read_offsets(saved, ["old", "new"])["new"] == Offset(0, 120)
    saved = checkpoint(entry("old", 9, 120), entry("rows", 4), entry("more", 1, 130))
    found = read_offsets(saved, ["old", "rows", "more"])
    assert found["rows"] == Offset(4, 120)
    assert found["more"] == Offset(1, 130)


def test_ck_06_a_new_spec_does_not_dominate():
    sources = {name: [[1] * 8] * 200 for name in ("a", "b", "new")}
    saved = checkpoint(entry("a", 50, 400), entry("b", 50, 400))

    def taken(missing):
        stream = interleave(sources, offsets=read_offsets(saved, list(sources), missing=missing))
        return Counter(sample.source for sample in islice(stream, 100))

    assert max(taken("baseline").values()) - min(taken("baseline").values()) <= 1
    assert taken("zero")["new"] > 60, "the control: from 0 it is all that is read at first"


def test_ck_07_old_checkpoints_without_tokens_load():
    saved = checkpoint(entry("a", 7), entry("b", 9))
    assert read_offsets(saved, ["a", "b"]) == {"a": Offset(7, 0), "b": Offset(9, 0)}
    null = {"datasets": [{"spec": "a", "row_offset": 7, "token_offset": None}]}
    assert read_offsets(null, ["a"]) == {"a": Offset(7, 0)}
    assert read_offsets({"datasets": [{"spec": "a"}]}, ["a"]) == {"a": Offset()}
    for empty in (None, {}, {"datasets": []}):
        assert read_offsets(empty, ["a"]) == {"a": Offset(0, 0)}
        assert specs_of(write_offsets({"a": Offset(1, 2)}, empty)) == ["a"]


def test_ck_08_current_specs_come_first_and_old_ones_sorted_after():
    saved = checkpoint(*(entry(spec, 1, 1) for spec in ("z", "c", "a", "y", "b")))
    written = write_offsets({"y": Offset(2, 2), "b": Offset(3, 3), "new": Offset(4, 4)}, saved)
    assert specs_of(written) == ["y", "b", "new", "a", "c", "z"]
    assert written["active"] == ["y", "b", "new"]


def test_other_keys_of_a_checkpoint_are_kept():
    saved = checkpoint(entry("a", 1, 1, note="x"), seeded_specs=["q"])
    written = write_offsets({"a": Offset(2, 3)}, saved)
    assert written == checkpoint(entry("a", 2, 3, note="x"), seeded_specs=["q"])
    alone = write_offsets({"a": Offset(2, 3)}, write_offsets({"a": Offset(), "b": Offset()}))
    assert write_offsets({"a": Offset(2, 3), "b": Offset(1, 1)}, alone).keys() == {"datasets"}


@pytest.mark.parametrize(
    ("row", "place"), [(0, (0, 0)), (2, (0, 2)), (3, (1, 0)), (4, (1, 1)), (5, (1, 2)), (6, (2, 0))]
)
def test_ck_17_a_row_offset_is_a_shard_and_a_row_in_it(row, place):
    assert locate_row([3, 3], row) == place


@given(st.lists(st.integers(0, 4), max_size=6))
def test_ck_17_every_row_is_found_where_it_stands(shard_rows):
    rows = [(shard, row) for shard, count in enumerate(shard_rows) for row in range(count)]
    assert [locate_row(shard_rows, row) for row in range(len(rows))] == rows
    assert locate_row(shard_rows, len(rows)) == (len(shard_rows), 0)
    with pytest.raises(tl.ConfigError, match="row: found"):
        locate_row(shard_rows, len(rows) + 1)


def test_ck_18_offsets_beyond_totals_are_clamped_and_passes_aligned():
    totals = {"a": 10, "b": 10}
    assert align_rows({"a": 15, "b": 3}, totals) == {"a": 10, "b": 3}
    assert align_rows({"a": 12, "b": 15}, totals) == {"a": 2, "b": 5}
    assert align_rows({"a": 25, "b": 15}, totals) == {"a": 10, "b": 5}
    assert align_rows({"a": 20, "b": 20}, totals) == {"a": 0, "b": 0}
    assert align_rows({"a": 15, "b": 30}, {"a": 10}) == {"a": 10, "b": 30}, "b's total is unknown"
    assert align_rows({"a": 15, "b": 7}, {"a": 10, "b": 0}) == {"a": 5, "b": 0}
    saved = checkpoint(entry("a", 12, 500), entry("b", 15, 510))
    assert read_offsets(saved, ["a", "b"], totals=totals) == {
        "a": Offset(2, 500),
        "b": Offset(5, 510),
    }


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 50), min_size=1),
    st.fixed_dictionaries({name: st.integers(1, 9) for name in "abc"}),
)
def test_ck_18_rows_are_aligned_as_by_counting_passes(rows, totals):
    left = dict(rows)
    while all(left[name] >= totals[name] for name in left):
        left = {name: left[name] - totals[name] for name in left}
    wanted = {name: min(left[name], totals[name]) for name in left}
    assert align_rows(rows, totals) == wanted


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

DAMAGED = {
    "text": ("x", "checkpoint: found 'x', allowed: an object"),
    "datasets": ({"datasets": {}}, "datasets: found {}, allowed: a list"),
    "an entry": (checkpoint(3), r"datasets\[0\]: found 3, allowed: an object"),
    "no spec": (checkpoint({"row_offset": 1}), r"datasets\[0\]\.spec: found None"),
    "a spec twice": (
        checkpoint(entry("a", 1, 1), entry("a", 2, 2)),
        r"datasets\[1\]\.spec: found 'a' twice",
    ),
    "negative rows": (checkpoint(entry("a", -1, 1)), r"datasets\[0\]\.row_offset: found -1"),
    "rows as text": (checkpoint(entry("a", "7", 1)), r"row_offset: found '7'"),
    "rows that are null": ({"datasets": [{"spec": "a", "row_offset": None}]}, "found None"),
    "a bool": (checkpoint(entry("a", True, 1)), "row_offset: found True"),
    "fractions": (checkpoint(entry("a", 1, 1.5)), r"token_offset: found 1\.5"),
    "NaN": (checkpoint(entry("a", 1, float("nan"))), "token_offset: found nan"),
    "too many": (checkpoint(entry("a", 1, 1 << 63)), "token_offset: found 9223372036854775808"),
    "too long to show": (checkpoint(entry("a", 1, 10**5000)), "that cannot be shown"),
    "active": (checkpoint(entry("a", 1, 1), active=["b"]), r"active: found \['b'\]"),
    "active as text": (checkpoint(entry("a", 1, 1), active="a"), "active: found 'a'"),
}


@pytest.mark.parametrize(("wrong", "match"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_checkpoint_is_refused_by_both(wrong, match):
    with pytest.raises(tl.StateError, match=match):
        read_offsets(wrong, ["a"])
    with pytest.raises(tl.StateError, match="It is not a checkpoint of offsets"):
        write_offsets({"a": Offset(1, 1)}, wrong)


def test_every_problem_is_named():
    with pytest.raises(tl.StateError, match=r"(?s)\[0\].*\[1\].*\[2\]"):
        read_offsets(checkpoint(1, entry("a", -1), entry("b", 1, -1)), ["a"])
    with pytest.raises(tl.StateError, match="and 10 more"):
        read_offsets(checkpoint(*range(30)), ["a"])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: read_offsets(None, ["a"], missing="base"), "missing: found 'base'.*'baseline'"),
        (lambda: read_offsets(None, "abc"), "specs: found the text 'abc'"),
        (lambda: read_offsets(None, ["a", "a"]), "specs: found 'a'"),
        (lambda: read_offsets(None, [3]), "specs: found 3"),
        (lambda: write_offsets({"a": Offset()}, active=["b"]), "active: found 'b'"),
        (lambda: Offset(-1, 0), "rows: found -1"),
        (lambda: Offset(0, 1.5), r"tokens: found 1\.5"),
        (lambda: align_rows({"a": 3}, {"a": -1}), r"totals\.a: found -1"),
        (lambda: locate_row([3, -1], 0), r"shard_rows\[1\]: found -1"),
        (lambda: locate_row([3], -1), "row: found -1"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(call, match):
    with pytest.raises(tl.ConfigError, match=match):
        call()


def test_offsets_beyond_a_source_are_refused():
    stream = interleave({"a": [[1]] * 3}, offsets={"a": Offset(4, 4)})
    with pytest.raises(tl.StateError, match=r"sources\.a: .*after 4 rows, but there are only 3"):
        next(stream)
    assert list(interleave({"a": [[1]] * 3}, offsets={"a": Offset(3, 3)})) == []
