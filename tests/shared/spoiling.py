"""Junk at every place of plain data, for tests of states, descriptions and run files."""

import copy

from hypothesis import strategies as st

DEEP: list = []
for _ in range(5000):
    DEEP = [DEEP]

JUNK = [
    *(None, True, 0, 1, -1, 2**31, 2**62, 2**63, 2**70, 10**30, -(10**30), 10**5000),
    *(1.5, -0.5, 1e300, float("nan"), float("inf")),
    *("", "x", "none", "\0", "\ud800", "a" * 10_000, "é" * 50, "/etc/passwd", "../..", "=", "a.b"),
    *(
        "${",
        "${}",
        "${HOME}",
        "a:b",
        [],
        [[]],
        [None],
        [1, "a"],
        {},
        {"": 1},
        {"a": 1},
        {"x": None},
    ),
    *(
        {"kind": []},
        {"0": -1},
        {"a": {"a": {}}},
        {1: 2},
        {True: 1},
        {None: 1},
        {1.5: 1},
        {(1, 2): 3},
    ),
    *({"\ud800": 1}, b"bytes", (1, 2), object(), set(), DEEP),
]

# small junk that JSON can hold
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def places(value, path=()):
    """The path of everything in plain data, the whole (an empty path) first."""
    yield path
    items = value.items() if isinstance(value, dict) else ()
    for key, inner in enumerate(value) if isinstance(value, list) else items:
        yield from places(inner, (*path, key))


def _holder(value, path):
    for key in path[:-1]:
        value = value[key]
    return value


def replaced(value, path, other):
    """A copy with another value at a path."""
    if not path:
        return other
    made = copy.deepcopy(value)
    _holder(made, path)[path[-1]] = other
    return made


def without(value, path):
    """A copy without what is at a path."""
    made = copy.deepcopy(value)
    del _holder(made, path)[path[-1]]
    return made


def spoilt(value):
    """Copies of a state with junk, or a small number, at any place in it."""
    inside = [path for path in places(value) if path]
    return st.builds(replaced, st.just(value), st.sampled_from(inside), junk | st.integers(0, 9))


def put(*path_and_value):
    """A change that puts a value at a path of keys."""
    *path, last, value = path_and_value

    def change(state):
        _holder(state, (*path, last))[last] = value

    return change


def drop(*path):
    """A change that removes what stands at a path of keys."""

    def change(state):
        del _holder(state, path)[path[-1]]

    return change
