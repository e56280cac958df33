"""Settings from YAML files: plain data only, every key once, of bounded size.

One idea: a key that is in a file twice is a mistake. In plain YAML the second `num_docs` silently
wins; here it is refused with both lines. Anchors, aliases and merge keys work; the values they
expand to are counted, so a file of a few lines cannot fill the memory. Numbers such as ``1e-3`` are
numbers, as in YAML 1.2.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import Any

from tokenloom.arguments import wrong_type
from tokenloom.errors import ConfigError, MissingExtra

__all__ = ["load_yaml"]

MAX_BYTES = 1 << 20

MAX_VALUES = 100_000

MAX_DEPTH = 32


def load_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings in a YAML file, as plain data.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: it is not YAML, not a mapping, has a key twice, or is too large.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.yaml").write_text("data: {alpha: 8e-1, doc_index: null}")
    ...     load_yaml(folder + "/a.yaml")
    {'data': {'alpha': 0.8, 'doc_index': None}}
    """
    with Path(path).open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: found more than 1 MiB, which is too large for settings.")
    found = _parsed(raw, str(path))
    if not isinstance(found, dict):
        raise wrong_type(str(path), found, "a mapping, such as 'data: ...'")
    _check_size(found, str(path))
    return found


def _parsed(raw: bytes, path: str) -> Any:
    loader_class = _strict_loader()
    try:
        loader = loader_class(raw)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except RecursionError:
        raise ConfigError(f"{path}: it is nested too deeply for settings.") from None
    except ValueError as error:  # a scalar that looks like a number or a date but is not
        raise ConfigError(f"{path}: {error}. Put the value in quotes.") from error
    except _yaml().YAMLError as error:
        raise ConfigError(f"{path}: {_in_words(error)}") from error


def _in_words(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"it is not YAML ({' '.join(str(error).split())})."
    context = f"{error.context}, " if getattr(error, "context", None) else ""
    problem = " ".join(f"{context}{error.problem}".split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}."


def _check_size(value: Any, path: str) -> None:
    """Refuse what aliases expand too far; every mention counts, because readers visit each one."""
    level, count = [value], 0
    for _ in range(MAX_DEPTH):
        nested: list[Any] = []
        for one in level:
            inside = one.values() if isinstance(one, dict) else one
            count += len(one)
            if count > MAX_VALUES:
                raise ConfigError(f"{path}: found more than {MAX_VALUES:,} values.")
            nested += [each for each in inside if isinstance(each, dict | list | set | tuple)]
        if not nested:
            return
        level = nested
    raise ConfigError(f"{path}: it is nested more than {MAX_DEPTH} levels deep.")


def _yaml() -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtra("Reading a YAML file", "PyYAML", "build") from None
    return yaml


@functools.cache
def _strict_loader() -> Any:
    """The safe loader of PyYAML, made on first use: importing it takes a while."""
    yaml: Any = _yaml()

    class Strict(yaml.SafeLoader):  # type: ignore[misc]
        """Plain data; duplicate keys are refused."""

        def compose_mapping_node(self, anchor: Any) -> Any:
            # here and not when values are made: by then merge keys have added others
            node = super().compose_mapping_node(anchor)
            first: dict[tuple[str, str], Any] = {}
            for key, _ in node.value:
                if not isinstance(key.value, str):
                    continue
                before = first.setdefault((key.tag, key.value), key)
                if before is not key:
                    raise yaml.constructor.ConstructorError(
                        problem=f"the key {key.value!r} appears twice, first in line "
                        f"{before.start_mark.line + 1}. Remove one of them",
                        problem_mark=key.start_mark,
                    )
            return node

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            if len(node.value) > MAX_VALUES:
                raise yaml.constructor.ConstructorError(
                    problem=f"merge keys make more than {MAX_VALUES:,} values of it",
                    problem_mark=node.start_mark,
                )

    Strict.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )
    return Strict
