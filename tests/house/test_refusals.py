"""Every error is of one tree and says where, what and what to do; each rule can fail."""

import doctest

import pytest
import refusals
from tree import Tree

from tokenloom import errors

HOUSE = Tree.of()
RULES = [
    refusals.wrong_classes,
    refusals.stale_exceptions,
    refusals.wrong_messages,
    refusals.wrong_drawing,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule):
    assert rule(HOUSE) == []


def raising(statement, function="f"):
    return {"batch.x": f'"""X."""\ndef {function}(value, path):\n    {statement}\n'}


BROKEN = {
    "a bare ValueError": (refusals.wrong_classes, raising("raise ValueError('x: found')")),
    "a bare RuntimeError": (refusals.wrong_classes, raising("raise RuntimeError")),
    "a class of its own": (
        refusals.wrong_classes,
        {"batch.x": '"""X."""\nclass Odd(Exception): ...\ndef f():\n    raise Odd("x")\n'},
    ),
    "a contract at the wrong place": (refusals.wrong_classes, raising("raise KeyError('x: no')")),
    "the error of a maker that says nothing": (
        refusals.wrong_classes,
        {"batch.x": '"""X."""\ndef made() -> ValueError: ...\ndef f():\n    raise made()\n'},
    ),
    "an exception from the rule that is gone": (
        refusals.stale_exceptions,
        {"store.plan_cache": '"""X."""\n'},
    ),
    "no place": (refusals.wrong_messages, raising("raise ConfigError(f'bad {value}. Use 3.')")),
    "no value": (refusals.wrong_messages, raising("raise ConfigError('end: wrong. Use drop.')")),
    "no way out": (refusals.wrong_messages, raising("raise InputError(f'{path}: is {value}.')")),
    "no way out of a contract": (
        refusals.wrong_messages,
        raising("raise TypeError('len: it is endless.')", "__len__"),
    ),
    "a class that is not drawn": (
        refusals.wrong_drawing,
        {
            "errors": HOUSE.sources["errors"]
            + "\nclass LateError(TokenloomError, ValueError): ...\n"
        },
    ),
    "a class that is drawn elsewhere": (
        refusals.wrong_drawing,
        {
            "errors": HOUSE.sources["errors"].replace(
                "StateError(ValueError) ", "StateError(OSError) "
            )
        },
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_tree_that_breaks_it_is_told(name):
    rule, sources = BROKEN[name]
    assert set(rule(Tree(HOUSE.sources | sources))) - set(rule(HOUSE))


@pytest.mark.parametrize(
    "statement",
    [
        "raise ConfigError(f'end: found {value!r}, allowed: drop, pad.')",
        "raise StoreCorrupt(f'{path}: it was renamed. Give it its name back.')",
        "raise wrong_type('run', value, 'a dataset')",
        "raise IndexError(f'index {value}: out of range, allowed: 0 to 3.')",
        "raise",
    ],
)
def test_control_a_right_refusal_is_not_told(statement):
    tree = Tree(HOUSE.sources | raising(statement))
    assert [one for rule in RULES for one in rule(tree)] == []


def test_every_refusal_is_looked_at():
    """The rules see what is there: hundreds of them, of every class of the tree."""
    found = refusals.refusals(HOUSE)
    assert len(found) > 800
    raised = {name for _, name, _ in refusals.messages(HOUSE)}
    drawn = {name for name in errors.__all__ if name.endswith(("Error", "Extra"))}
    assert drawn - raised == {"TokenloomError", "MissingExtra"}


def test_every_class_of_the_tree_is_the_builtin_that_a_caller_guesses():
    for name in refusals.tree_of_errors(HOUSE):
        kind = getattr(errors, name, None)
        if kind is None or kind is errors.TokenloomError:
            continue
        assert issubclass(kind, errors.TokenloomError)
        assert any(base.__module__ == "builtins" for base in kind.__mro__[1:-3]), name


def test_the_examples_of_the_rules_hold():
    assert doctest.testmod(refusals).failed == 0
