"""Ways to spoil a state, for tests of everything that has one."""

from hypothesis import strategies as st

junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


def put(*path_and_value):
    """A change that puts a value at a path of keys."""
    *path, last, value = path_and_value

    def change(state):
        for name in path:
            state = state[name]
        state[last] = value

    return change


def drop(*path):
    """A change that removes what stands at a path of keys."""

    def change(state):
        for name in path[:-1]:
            state = state[name]
        del state[path[-1]]

    return change
