"""Settings from YAML, JSON and TOML: plain data only, every key once, of bounded size.

One idea: whoever reads a message looks for a line. Every value of a YAML file has its line and
column, by the path that messages start with; JSON and TOML give one where their parser does.

A key that is in a file twice is a mistake: in plain YAML and JSON the second one silently wins;
here it is refused, with both lines, however each is written (``2024`` and ``'2024'``, ``600`` and
``0x258``). Anchors, aliases and merge keys work; the values they expand to are counted, so a file
of a few lines cannot fill the memory. A tag that names code is refused. Numbers such as ``1e-3``
are numbers, as in YAML 1.2; unquoted ``010`` and ``1:20``, which are 8 and 80 in YAML 1.1, are
refused.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenloom.arguments import Url, place, wrong_type
from tokenloom.errors import ConfigError, MissingExtra
from tokenloom.remote.uploads import read_whole

MAX_BYTES = 1 << 20

MAX_VALUES = 100_000

MAX_DEPTH = 32

Mark = tuple[int, int]

"""Line and column of a value, from 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """What a file says.

    Attributes:
        plain: the settings as plain data; keys are as written.
        marks: path of a value → its line and column, where they are known.
        name: the name of the file, for messages.
        folder: what relative paths in it are relative to.
        raw: path → the text of an override, before it was read as YAML.
    """

    plain: dict[str, Any]
    marks: Mapping[str, Mark] = field(default_factory=dict)
    name: str = ""
    folder: str = ""
    raw: Mapping[str, str] = field(default_factory=dict)

    def mark(self, path: str) -> Mark | None:
        """The line and column of a path, or of the nearest place above it that has one."""
        while path:
            if path in self.marks:
                return self.marks[path]
            path = re.sub(r"(\.|^)[^.\[\]]*$|\[\d+\]$", "", path)
        return None


def below(path: str, key: object) -> str:
    """The path of a key inside another.

    >>> below("", "seed"), below("sources", "wiki"), below("edits", 0)
    ('seed', 'sources.wiki', 'edits[0]')
    """
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)


def read_settings(path: str | os.PathLike[str]) -> Written:
    r"""What a file says, in YAML, JSON (``.json``) or TOML (``.toml``).

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: it cannot be read; names the line where it is known.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "run.yaml").write_text("seed: 7\nloader: {batch_size: 64}")
    ...     found = read_settings(folder + "/run.yaml")
    >>> found.plain, found.mark("loader.batch_size")
    ({'seed': 7, 'loader': {'batch_size': 64}}, (2, 22))
    """
    name = str(path)
    raw = _bytes_of(path)
    kind = Path(path).suffix.lower()
    marks: dict[str, Mark] = {}
    plain = _parsed(raw, name, marks, kind)
    if not isinstance(plain, dict):
        raise wrong_type(name, plain, "a mapping, such as 'sources: ...'")
    _check_size(plain, name)
    return Written(plain=plain, marks=marks, name=name, folder=os.path.dirname(name))


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
    found = _parsed(_bytes_of(path), str(path), {})
    if not isinstance(found, dict):
        raise wrong_type(str(path), found, "a mapping, such as 'data: ...'")
    _check_size(found, str(path))
    return found


def read_value(text: str, where: str) -> Any:
    """One value as it would be written in YAML, such as the right side of ``a.b=c``.

    >>> read_value("64", "x"), read_value("[1, 2]", "x"), read_value("stores/wiki", "x")
    (64, [1, 2], 'stores/wiki')
    """
    found = _parsed(text.encode("utf-8", "surrogateescape"), where, {})
    if isinstance(found, dict | list):
        _check_size(found, where)
    return found


def _bytes_of(path: str | os.PathLike[str]) -> bytes:
    where = place("path", path) if "://" in str(path) else Path(path)
    if isinstance(where, Url):
        found = read_whole(where, MAX_BYTES)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(where))
        return found
    with where.open("rb") as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            f"{path}: found more than 1 MiB, which is too large for settings. Name the file of "
            "the run."
        )
    return raw


def _parsed(raw: bytes, path: str, marks: dict[str, Mark], kind: str = ".yaml") -> Any:
    try:
        if kind == ".json":
            return _from_json(raw.decode("utf-8-sig"), path)
        if kind == ".toml":
            return _from_toml(raw.decode("utf-8-sig"), path)
        return _from_yaml(raw, path, marks)
    except RecursionError:
        raise ConfigError(
            f"{path}: it is nested too deeply for settings. Write it flatter."
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: it is not UTF-8 ({error.reason}). Save it as UTF-8.") from None


# -- YAML --------------------------------------------------------------------------------------
def _from_yaml(raw: bytes, path: str, marks: dict[str, Mark]) -> Any:
    loader_class = _strict_loader()
    try:
        loader = loader_class(raw)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            found = loader.construct_document(node)
            if isinstance(found, dict):
                _check_size(found, path)  # before every mention of an alias gets its mark
                _put_marks(marks, node, "")
            return found
        finally:
            loader.dispose()
    except ValueError as error:  # a scalar that looks like a number or a date but is not
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{path}: {error}. Put the value in quotes.") from error
    except _yaml().YAMLError as error:
        raise ConfigError(f"{path}: {_in_words(error)}{_hint(error, raw)}") from error


def _put_marks(marks: dict[str, Mark], node: Any, path: str) -> None:
    """Where every value is; merge keys have been put in their place already."""
    if isinstance(node.value, str):
        return
    is_mapping = node.id == "mapping"
    pairs: list[Any] = node.value if is_mapping else [(one, one) for one in node.value]
    for number, (key, inner) in enumerate(pairs):
        here = below(path, key.value if is_mapping else number)
        # the last one counts: a key of the mapping itself comes after merged ones
        start = (inner if isinstance(inner.value, str) else key).start_mark
        marks[here] = start.line + 1, start.column + 1
        _put_marks(marks, inner, here)


def _in_words(error: Any) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f"it is not YAML ({' '.join(str(error).split())})."
    place = f"line {mark.line + 1}, column {mark.column + 1}"
    tag = re.match(r"could not determine a constructor for the tag '(.*)'", error.problem or "")
    if tag:
        return (
            f"{place}: the tag {tag[1]!r} names code or a type, but settings are plain data and "
            "run nothing. Remove the tag."
        )
    context = f"{error.context}, " if getattr(error, "context", None) else ""
    problem = " ".join(f"{context}{error.problem}".split())
    return f"{place}: {problem}."


def _hint(error: Any, raw: bytes) -> str:
    """What to do where a variable inside braces is the likely cause."""
    mark = getattr(error, "problem_mark", None)
    lines = raw.decode("utf-8", "replace").splitlines()
    line = lines[mark.line] if mark is not None and mark.line < len(lines) else ""
    return " Inside braces, '${NAME}/...' needs quotes." if "${" in line else ""


def _check_size(value: Any, path: str) -> None:
    """Refuse what aliases expand too far; every mention counts, because readers visit each one."""
    level, count = [value], 0
    for _ in range(MAX_DEPTH):
        nested: list[Any] = []
        for one in level:
            inside = one.values() if isinstance(one, dict) else one
            count += len(one)
            if count > MAX_VALUES:
                raise ConfigError(
                    f"{path}: found more than {MAX_VALUES:,} values. Write fewer, or name a file "
                    "of them."
                )
            nested += [each for each in inside if isinstance(each, dict | list | set | tuple)]
        if not nested:
            return
        level = nested
    raise ConfigError(f"{path}: it is nested more than {MAX_DEPTH} levels deep. Write it flatter.")


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
            first: dict[Any, Any] = {}
            for key, _ in node.value:
                if not isinstance(key.value, str):
                    continue
                special = key.tag in ("tag:yaml.org,2002:merge", "tag:yaml.org,2002:value")
                made = key.value if special else self.construct_object(key)
                before = first.get(made) or first.get(str(made))  # 600 is 600.0, and text later
                if before is not None:
                    raise yaml.constructor.ConstructorError(
                        problem=_twice(key, before), problem_mark=key.start_mark
                    )
                first[made] = first[str(made)] = key
            return node

        def compose_scalar_node(self, anchor: Any) -> Any:
            event = self.peek_event()
            if event.implicit[0] and AMBIGUOUS.fullmatch(event.value):
                raise yaml.constructor.ConstructorError(
                    problem=f"found {event.value}, which programs read as different numbers, or as "
                    "text. Write it without leading zeros and colons, or put it in quotes if it "
                    "is text",
                    problem_mark=event.start_mark,
                )
            return super().compose_scalar_node(anchor)

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


AMBIGUOUS = re.compile(
    r"[-+]?(0_*[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)"
)

"""Numbers with leading zeros (octal in YAML 1.1, decimal in 1.2) or colons (base 60 in 1.1)."""


def _twice(key: Any, before: Any) -> str:
    """That two keys are one, each as it is written if they are written differently."""
    spelled, other = (f"{one.style or ''}{one.value}{one.style or ''}" for one in (key, before))
    shown, also = (repr(key.value), "") if spelled == other else (spelled, f" as {other}")
    return (
        f"the key {shown} appears twice, first in line {before.start_mark.line + 1}{also}. Remove "
        "one of them"
    )


# -- JSON and TOML -----------------------------------------------------------------------------
class _Repeated(dict[str, Any]):
    """An object of JSON that has a key twice: found first, refused when its path is known."""

    key = ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    names = [name for name, _ in pairs]
    bad = _Repeated(found)
    bad.key = next(name for name in names if names.count(name) > 1)
    return bad


def _from_json(text: str, name: str) -> Any:
    try:
        found = json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{name}: line {error.lineno}, column {error.colno}: it is not JSON ({error.msg}). "
            "Mend that place."
        ) from None
    level: list[tuple[str, Any]] = [("", found)]
    while level:
        path, value = level.pop()
        if isinstance(value, _Repeated):
            where = below(path, value.key)
            raise ConfigError(f"{name}: {where}: the key appears twice. Remove one of them.")
        if isinstance(value, dict):
            level += [(below(path, key), one) for key, one in value.items()]
        elif isinstance(value, list):
            level += [(below(path, number), one) for number, one in enumerate(value)]
    return found


def _from_toml(text: str, name: str) -> Any:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # its message has the line; a key twice is one of them
        words = str(error).replace("Cannot overwrite a value", "a key appears twice")
        raise ConfigError(f"{name}: it is not TOML: {words}. Mend that place.") from None
