"""Settings of a loader, one at a time: what is allowed up to its limit, and what is refused."""

import pytest

from tokenloom.errors import ConfigError
from tokenloom.loader import state as state_module
from tokenloom.loader.accepted import accepted_fields, accepted_steps, check_accepted, no_dataset

SETTINGS = [  # name, allowed, refused
    ("end", ["drop", "pad", "wrap"], ["dro", "keep"]),
    ("fetch", ["auto", "blocks", "rows"], ["row"]),
    ("untrained", ["raise", "zero"], ["warn"]),
    ("dtype", ["int32", "int64"], ["int16"]),
    ("fields", [(), ("tokens",), ("input_ids", "step_loss_tokens")], [("token",), ("tokens", "x")]),
    ("patience", [0.001, 1, 60.0, float("inf")], [0, -1, float("nan")]),
    ("prefetch", [0, 1, 100], [-1]),
    ("accumulate", [None, 1, 2], [0, -2]),
    ("batch_size", [None, 1, [(0, 4), (9, 8)]], [0, -1, [], [(1, 4)]]),
]


@pytest.mark.parametrize(("name", "allowed", "refused"), SETTINGS)
def test_a_setting_is_judged_alone_and_beside_others(name, allowed, refused):
    check_accepted({})
    for value in allowed:
        check_accepted({name: value})
        check_accepted({"end": "pad", "prefetch": 2, name: value})
    for value in refused:
        for others in ({}, {"end": "pad", "prefetch": 2}):
            with pytest.raises(ConfigError, match=f"^{name}: found"):
                check_accepted(others | {name: value})


def test_fields_are_known_by_both_names_and_come_back_as_ours():
    assert accepted_fields(["input_ids", "labels"]) == ("tokens", "labels")
    assert accepted_fields(()) == ()


def test_a_batch_size_must_be_given():
    with pytest.raises(ConfigError, match="batch_size: found None"):
        accepted_steps(None)
    assert accepted_steps(3).size(7) == 3
    assert "it was asked for item 5, but it is a loader" in no_dataset("Loader", 5)


@pytest.mark.parametrize(("count", "more"), [(1, []), (50, []), (51, ["and 1 more"])])
def test_differences_are_listed_until_they_are_many_and_cut_where_they_are_long(
    count, more, monkeypatch
):
    long = [f"{number}".ljust(400 + number % 2, "x") for number in range(count)]
    monkeypatch.setattr(state_module.description, "differences", lambda saved, now: long)
    found = state_module._differences({}, {})
    assert found[50:] == more
    assert len(found) == min(count, 50) + len(more)
    for number, line in enumerate(found[:50]):
        assert line == long[number][:400] + "…" * (number % 2)
    assert state_module._differences("no description", {}) == []
    assert state_module._shown("y" * 198) == repr("y" * 198)
    assert state_module._shown("y" * 199) == repr("y" * 199)[:200] + "…"
