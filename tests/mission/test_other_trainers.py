"""The published checkpoint of an interleaved run goes on exactly, or is refused with the reason."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

import tokenloom as tl
from tokenloom.streams import continue_interleave


def other_trainer(sources, rng, picks):
    """A least-consumed loop with a generator of its own, which its checkpoint does not hold.

    Gives what it drew, and a checkpoint after each pick.
    """
    rows, tokens = dict.fromkeys(sources, 0), dict.fromkeys(sources, 0)
    drawn, saved = [], []
    for _ in range(picks):
        saved.append(
            {
                "datasets": [
                    {"spec": name, "row_offset": rows[name], "token_offset": tokens[name]}
                    for name in sources
                ]
            }
        )
        left = [name for name in sources if rows[name] < len(sources[name])]
        if not left:
            break
        least = min(tokens[name] for name in left)
        name = rng.choice([name for name in left if tokens[name] == least])
        drawn.append((name, rows[name], least))
        tokens[name] += max(1, len(sources[name][rows[name]]))
        rows[name] += 1
    return drawn, saved


@given(data=st.data())
def test_what_is_left_comes_as_there_up_to_the_order_of_equal_counts(data):
    rows = st.lists(st.integers(1, 5).map(lambda n: [7] * n), min_size=1, max_size=12)
    sources = {f"s{i}": data.draw(rows) for i in range(data.draw(st.integers(1, 4)))}
    rng = random.Random(data.draw(st.integers(0, 99)))
    drawn, saved = other_trainer(sources, rng, 100)
    stop = data.draw(st.integers(0, len(saved) - 1))
    stream, notes = continue_interleave(saved[stop], sources)
    samples = [(sample.source, sample.row) for sample in stream]
    assert sorted(samples) == sorted((name, row) for name, row, _ in drawn[stop:])
    # what each had consumed when its rows came is the same: only ties come otherwise
    count = {entry["spec"]: entry["token_offset"] for entry in saved[stop]["datasets"]}
    before = []
    for name, row in samples:
        before.append(count[name])
        count[name] += len(sources[name][row])
    assert before == [least for _, _, least in drawn[stop:]]
    assert notes


def test_the_state_of_the_stream_goes_on_from_there():
    sources = {"a": [[1, 1]] * 6, "b": [[2]] * 6}
    saved = {"datasets": [entry("a", 2, 4), entry("b", 3, 3)]}
    stream, _ = continue_interleave(saved, sources, seed=5)
    first = [next(stream) for _ in range(3)]
    state = stream.state_dict()
    rest = [(one.source, one.row) for one in stream]
    again, _ = continue_interleave(saved, sources, seed=5)
    again.load_state_dict(state)
    assert [(one.source, one.row) for one in again] == rest
    assert [(one.source, one.row) for one in first] + rest == [
        (one.source, one.row) for one in continue_interleave(saved, sources, seed=5).stream
    ]


def entry(spec, rows, tokens):
    return {"spec": spec, "row_offset": rows, "token_offset": tokens}


@pytest.mark.parametrize(
    ("datasets", "named"),
    [
        ([entry("a", 1, 2)], ("'b'",)),
        ([entry("a", 1, 2), entry("b", 1, 2), entry("c", 1, 2)], ("'c'",)),
        ([entry("a", 1, 2), {"spec": "b", "row_offset": 1}], ("'b'", "token_offset")),
        ([entry("a", 1, 2), {"spec": "b", "token_offset": 1}], ("'b'", "row_offset")),
        ([entry("a", -1, 2), entry("b", 1, 2)], ("datasets[0]",)),
    ],
)
def test_a_checkpoint_that_would_not_go_on_exactly_is_refused(datasets, named):
    sources = {"a": [[1]], "b": [[2]]}
    refused(lambda: continue_interleave({"datasets": datasets}, sources), tl.StateError, *named)


def test_settings_that_the_other_trainer_has_not_are_refused():
    saved, sources = {"datasets": [entry("a", 0, 0)]}, {"a": [[1]]}
    refused(
        lambda: continue_interleave(saved, sources, weights={"a": 2}), tl.ConfigError, "weights"
    )
    refused(lambda: continue_interleave([], sources), tl.ConfigError, "checkpoint", "list")
