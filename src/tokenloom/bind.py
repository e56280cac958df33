"""Plain JSON in, frozen dataclasses out, with every mistake named by its path.

A frozen dataclass *is* the schema. ``bind`` walks the JSON along with the type hints and
collects all problems before it raises, so a user can fix a file in one go::

    $.shards[3].tokens: found -1 (int), allowed: an integer >= 0

Used for settings and for what is read from disk (manifests, shard records). It runs no code that
the data chooses, and copies only what the schema names.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from tokenloom.errors import ConfigError, choices

T = TypeVar("T")


class BindError(ValueError):
    """The JSON does not fit the schema; ``problems`` lists every mistake."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(self.problems))


def bind(cls: type[T], value: Any, *, path: str = "$", unknown: str = "refuse") -> T:
    """The dataclass `cls` filled from plain JSON.

    Args:
        cls: a dataclass whose hints are int, float, bool, str, None, Literal, unions of those,
            tuple[X, ...] or Sequence[X], dict[str, X] or Mapping[str, X], nested dataclasses,
            Callable (for what is set in Python), or Any.
        value: what ``json.loads`` returned.
        path: where the value is, for messages.
        unknown: "refuse" unknown keys with a near miss, or "ignore" them.

    Raises:
        BindError: one line for every problem found.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> bind(Point, {"x": 3})
    Point(x=3, y=0)
    >>> bind(Point, {"xx": 3})
    Traceback (most recent call last):
        ...
    tokenloom.bind.BindError: $.xx: unknown key. Allowed: x, y. Did you mean 'x'?
    $.x: missing
    """
    problems: list[str] = []
    result = _bind(cls, value, path, unknown, problems)
    if problems:
        raise BindError(problems)
    return typing.cast(T, result)


def unbind(record: Any) -> Any:
    """A dataclass as plain JSON; the inverse of `bind`.

    >>> unbind((1, {"a": None}))
    [1, {'a': None}]
    """
    if record is None or isinstance(record, (str, int, float)):  # most values
        return record
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: unbind(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {key: unbind(item) for key, item in record.items()}
    if isinstance(record, (list, tuple)):
        return [unbind(item) for item in record]
    return record


def check_fields(record: Any) -> None:
    """Raise ConfigError if a field of a frozen dataclass does not have the type of its hint.

    Call it from `__post_init__`, so that a setting built in Python is held to the same types as one
    read from JSON. NumPy scalars become Python numbers, which can be written as JSON.
    """
    problems: list[str] = []
    cls: type = type(record)
    for name, (hint, _) in _schema(cls).items():
        value = getattr(record, name)
        if not dataclasses.is_dataclass(value):
            plain = value.item() if isinstance(value, np.generic) else value
            object.__setattr__(record, name, _bind(hint, plain, name, "refuse", problems))
    if problems:
        raise ConfigError("\n".join(problems))


def _bind(hint: Any, value: Any, path: str, unknown: str, problems: list[str]) -> Any:
    if type(value) is hint or hint is Any:  # exact, as most values are
        return value
    return _binder(hint)(hint, value, path, unknown, problems)


@functools.cache
def _binder(hint: Any) -> Callable[[Any, Any, str, str, list[str]], Any]:
    """What binds values to a hint; found once per hint, since stores are opened often."""
    if dataclasses.is_dataclass(hint):
        return _bind_record
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _bind_union
    return _GENERIC.get(origin, _bind_scalar)


def _bind_literal(hint: Any, value: Any, path: str, unknown: str, problems: list[str]) -> Any:
    allowed = typing.get_args(hint)
    if value not in allowed or isinstance(value, bool):
        problems.append(f"{path}: found {_show(value)}, allowed: {_words(allowed)}")
    return value


def _bind_record(cls: type, value: Any, path: str, unknown: str, problems: list[str]) -> Any:
    if isinstance(value, cls):  # built in Python, so already checked
        return value
    if not isinstance(value, Mapping):
        problems.append(f"{path}: found {_show(value)}, allowed: an object")
        return None
    schema = _schema(cls)
    if unknown == "refuse" and not value.keys() <= schema.keys():
        names = sorted(schema)
        problems.extend(
            f"{path}.{key}: unknown key. Allowed: {choices(key, names)}"
            for key in value
            if key not in schema
        )
    found: dict[str, Any] = {}
    before = len(problems)
    for name, (hint, required) in schema.items():
        if name in value:
            found[name] = _bind(hint, value[name], f"{path}.{name}", unknown, problems)
        elif required:
            problems.append(f"{path}.{name}: missing")
    if len(problems) > before:
        return None
    try:
        return cls(**found)
    except ValueError as error:  # the dataclass's own __post_init__ checks
        problems.append(f"{path}: {error}")
        return None


@functools.cache
def _schema(cls: type) -> dict[str, tuple[Any, bool]]:
    """Field name → (resolved hint, whether it is required), computed once per class."""
    hints = typing.get_type_hints(cls)
    missing = dataclasses.MISSING
    return {
        f.name: (hints[f.name], f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(cls)
        if f.init
    }


def _bind_union(hint: Any, value: Any, path: str, unknown: str, problems: list[str]) -> Any:
    options = typing.get_args(hint)
    if value is None and type(None) in options:
        return None
    trials: list[list[str]] = []
    for option in options:
        if option is type(None):
            continue
        trial: list[str] = []
        result = _bind(option, value, path, unknown, trial)
        if not trial:
            return result
        trials.append(trial)
    # the option that got deeper than this very value explains the mistake best
    here = f"{path}: found {_show(value)}, allowed: "
    deeper = [trial for trial in trials if not trial[0].startswith(here)]
    if deeper:
        problems += sorted(deeper, key=lambda trial: len(trial[0]))[-1]
    else:
        allowed = [trial[0].removeprefix(here) for trial in trials] or ["null"]
        problems.append(here + " or ".join(dict.fromkeys(allowed)))
    return None


def _bind_tuple(hint: Any, value: Any, path: str, unknown: str, problems: list[str]) -> Any:
    if not isinstance(value, (list, tuple)):
        problems.append(f"{path}: found {_show(value)}, allowed: a list")
        return ()
    (item, *_rest) = typing.get_args(hint)
    if item in _NAMES and set(map(type, value)) <= {item}:  # usual, and there may be many
        return tuple(value)
    return tuple(
        _bind(item, each, f"{path}[{i}]", unknown, problems) for i, each in enumerate(value)
    )


def _bind_dict(hint: Any, value: Any, path: str, unknown: str, problems: list[str]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(f"{path}: found {_show(value)}, allowed: an object")
        return {}
    _key, item = typing.get_args(hint)
    return {
        str(key): _bind(item, each, f"{path}.{key}", unknown, problems)
        for key, each in value.items()
    }


def _bind_callable(hint: Any, value: Any, path: str, unknown: str, problems: list[str]) -> Any:
    if not callable(value):
        problems.append(f"{path}: found {_show(value)}, allowed: a function")
    return value


def _bind_scalar(hint: Any, value: Any, path: str, unknown: str, problems: list[str]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not hint:  # exact: True is not an integer here
        problems.append(f"{path}: found {_show(value)}, allowed: {_NAMES.get(hint, hint)}")
    return value


_GENERIC: dict[Any, Callable[[Any, Any, str, str, list[str]], Any]] = {
    Literal: _bind_literal,
    tuple: _bind_tuple,
    collections.abc.Sequence: _bind_tuple,
    dict: _bind_dict,
    collections.abc.Mapping: _bind_dict,
    collections.abc.Callable: _bind_callable,
}

_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}


def _show(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def _words(allowed: Sequence[Any]) -> str:
    return ", ".join(repr(word) for word in allowed)
