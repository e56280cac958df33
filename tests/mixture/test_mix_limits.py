"""Settings of mixes and edits: the last allowed value is taken, the next is refused by name."""

import math

import pytest

from tokenloom.errors import ConfigError
from tokenloom.mixture.merge import LONGEST
from tokenloom.mixture.spec import LEAST, MOST, MOST_EPOCHS, Edit, MixSpec, usual_cost

MIX = [  # name, others, allowed, refused
    ("rule", {}, ["least_consumed", "weights", "rounds", "random", "round_robin"], ["rondom"]),
    ("cost", {}, ["tokens", "rows", "loss_tokens"], ["bytes"]),
    ("stop", {}, ["first_exhausted", "all_exhausted", "restart"], ["never"]),
    ("block", {}, [1, 10**6], [0, -1]),
    ("seed", {}, [None, 0, 2**64 - 1], [-1, 2**64]),
    ("take", {}, [None, 0, 10**9], [-1]),
    ("weights", {}, [{"a": LEAST, "b": MOST}], [{}, {"a": 0}, {"a": -1.0}, {"a": LEAST / 2}]),
    ("weights", {}, [{"a": 1.0}], [{"a": MOST * 2}, {"a": math.nan}]),
    ("weights", {"rule": "round_robin"}, [{"a": 1.0, "b": 1.0}], [{"a": 1.0, "b": 2.0}]),
    ("max_epochs", {}, [{}, 0.5, MOST_EPOCHS, {"a": 2.0}], [0, -1, MOST_EPOCHS * 2, {"a": 0}]),
    ("initial", {}, [{}, {"a": 0}, {"a": LONGEST}], [{"a": -1}, {"a": LONGEST + 1}]),
]

EDIT = [
    ("at", {}, [0, LONGEST], [-1, LONGEST + 1]),
    ("weights", {}, [{}, {"a": 2.0}], [{"a": 0}, {"a": math.inf}]),
    ("weights", {"remove": ("b",)}, [{"a": 2.0}], [{"b": 2.0}]),
    ("remove", {"add": ("a",)}, [(), ("b",)], [("a",)]),
    ("quarantine", {}, [(), (("a", 0), ("a", 5))], [(("a",),), (("a", "x"),)]),
    ("add", {}, [(), ("a", "b")], [("",)]),
]


@pytest.mark.parametrize(("name", "others", "allowed", "refused"), MIX)
def test_a_setting_of_a_mix_is_taken_up_to_its_limit(name, others, allowed, refused):
    for value in allowed:
        made = MixSpec(**{"weights": {"a": 1.0}, **others, name: value})
        assert getattr(made, name) == value
    for value in refused:
        with pytest.raises(ConfigError, match=name):
            MixSpec(**{"weights": {"a": 1.0}, **others, name: value})


@pytest.mark.parametrize(("name", "others", "allowed", "refused"), EDIT)
def test_a_setting_of_an_edit_is_taken_up_to_its_limit(name, others, allowed, refused):
    for value in allowed:
        assert getattr(Edit(**{"at": 3, **others, name: value}), name) == value
    for value in refused:
        with pytest.raises(ConfigError, match=name):
            Edit(**{"at": 3, **others, name: value})


def test_caps_are_for_all_sources_or_for_some_by_name():
    weights = {"a": 1.0, "b": 1.0}
    for_all = MixSpec(weights=weights, max_epochs=3)
    assert (for_all.cap("a"), for_all.cap("b")) == (3, 3)
    some = MixSpec(weights=weights, max_epochs={"a": 2, "b": None})
    assert (some.cap("a"), some.cap("b")) == (2, None)
    assert MixSpec(weights=weights, max_epochs=None).cap("a") is None


@pytest.mark.parametrize(
    ("rule", "midpoint", "listed", "block", "shuffled", "cost"),
    [
        ("least_consumed", False, False, 0, False, "tokens"),
        ("weights", True, False, 0, False, "rows"),
        ("rounds", True, False, 7, False, "rows"),
        ("random", True, False, 7, True, "rows"),
        ("round_robin", False, True, 0, False, "rows"),
    ],
)
def test_rulings_10_and_11_what_each_rule_is(rule, midpoint, listed, block, shuffled, cost):
    made = MixSpec(weights={"a": 1.0}, rule=rule, block=7, seed=5).as_rule
    assert (made.midpoint, made.listed, made.block) == (midpoint, listed, block)
    assert (made.shuffled, made.stop, made.seed) == (shuffled, "restart", 5)
    assert usual_cost(rule) == cost
    assert MixSpec(weights={"a": 1.0}).as_rule.seed == 0
    assert usual_cost(None) == "tokens"
