"""Checks of arguments: words, numbers and names, each refused with its path.

Every argument comes through here, whether from Python, the command line or a description.
All are held to the same rules, and every refusal reads alike: the path, the value found, what is
allowed, and the near miss.

==================  =============================================================================
`one_of`            a value that must be one of a list
`check_between`     a number that must be within its bounds; None passes
`check_options`     names of options that must exist
`check_names`       names of sources that must exist
`integer`, …        readers: take what people write and return plain Python values
==================  =============================================================================
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import math
import numbers
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from tokenloom.errors import ConfigError, choices


def check_options(where: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse options that do not exist, with the near miss.

    >>> check_options("windows", ["tial"], ["tail"])
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: windows: no option 'tial'. Options: tail. Did you mean 'tail'?
    """
    for name in given:
        if name not in allowed:
            raise ConfigError(f"{where}: no option {name!r}. Options: {choices(name, allowed)}")


Function = TypeVar("Function", bound=Callable[..., Any])


def near_misses(where: str, *further: str, **instead: str) -> Callable[[Function], Function]:
    """Make a function refuse an unknown keyword with the near miss.

    Otherwise Python raises a bare `TypeError`. The signature stays as written, for `help`, editors
    and type checkers.

    Args:
        where: the name of the function.
        further: keywords that it hands on, as ``**options``.
        instead: for a keyword that people bring along from elsewhere, the sentence what to do.

    >>> @near_misses("loop")
    ... def loop(*, tail=None): ...
    >>> loop(tial=1)
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: loop: no option 'tial'. Options: tail. Did you mean 'tail'?
    """

    def decorate(function: Function) -> Function:
        code = function.__code__
        named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        allowed = [*(name for name in named if name != "self"), *further]

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            for name in given:
                if name in instead:
                    raise ConfigError(f"{where}: no option {name!r}. {instead[name]}")
            check_options(where, given, allowed)
            return function(*args, **given)

        return cast(Function, call)

    return decorate


def field_names(spec: type) -> list[str]:
    """The field names of a settings class."""
    return [one.name for one in dataclasses.fields(spec)]


class AsIs(enum.Enum):
    """The default of an argument that changes nothing if it is left out, where None is a value."""

    AS_IS = "as it is"

    def __repr__(self) -> str:
        return "AS_IS"


AS_IS = AsIs.AS_IS


def given_fields(spec: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a settings class among arguments, without those that were left out.

    >>> Point = dataclasses.make_dataclass("Point", ["x", "y"])
    >>> given_fields(Point, {"self": None, "x": None, "y": AS_IS})
    {'x': None}
    """
    return {name: arguments[name] for name in field_names(spec) if arguments[name] is not AS_IS}


MAX_COUNT = (1 << 63) - 1
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")  # one letter would be a drive

_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def expanded(where: str, text: str) -> str:
    """A path with every ``${NAME}`` replaced by that environment variable.

    The result is for opening files; descriptions, states and messages keep the text as written.

    >>> os.environ["TOY"] = "stores"
    >>> expanded("store", "${TOY}/wiki"), expanded("store", "stores/wiki")
    ('stores/wiki', 'stores/wiki')
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise ConfigError(
                f"{where}: found {text!r}, but the environment variable {found[1]!r} is not set. "
                "Set it, or write the path."
            )
        return os.environ[found[1]]

    return _VARIABLE.sub(value, text) if isinstance(text, str) else text


def local_path(where: str, value: Any) -> Path:
    """A path of this machine; a URL is refused, since it would become a directory named ``s3:``.

    >>> local_path("out", "stores/wiki")
    PosixPath('stores/wiki')
    >>> local_path("out", "s3://bucket/wiki")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: out: found 's3://bucket/wiki', a URL, allowed: a path on this ...
    """
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else value
    if not isinstance(text, str) or not text:
        raise ConfigError(f"{where}: found {value!a:.100}, allowed: a path on this machine.")
    scheme = _SCHEME.match(text)
    if scheme:
        raise ConfigError(
            f"{where}: found {_SECRET.sub('…', text)!r}, a URL, allowed: a path on "
            f"this machine. Use one, and copy what is there from or to {scheme[1]}."
        )
    try:
        name = os.fsencode(text)
    except UnicodeEncodeError:
        name = b"\0"
    if b"\0" in name or len(name) > 4095 or max(map(len, name.split(b"/"))) > 255:
        raise ConfigError(
            f"{where}: found {value!a:.100}, which no file can be named. Use another path."
        )
    return Path(text)


@dataclasses.dataclass(frozen=True, slots=True)
class Url:
    """Where an object or a folder of a bucket is; it never holds credentials.

    >>> url = place("store", "s3://bucket/stores/wiki")
    >>> url.host, url.key, url.name, str(url.parent / "code")
    ('bucket', 'stores/wiki', 'wiki', 's3://bucket/stores/code')
    """

    scheme: str
    host: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}{self.key and '/' + self.key}"

    def __truediv__(self, name: str) -> Url:
        return Url(self.scheme, self.host, f"{self.key}/{name}".strip("/"))

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> Url:
        """The folder that it is in."""
        return Url(self.scheme, self.host, self.key.rpartition("/")[0])


Place = Path | Url
_URL = re.compile(r"([a-z][a-z0-9+.-]+)://([^/]*)/*(.*?)/*")
# a user, a password (both may have slashes), a query; but abfss:// has a container before an @
_SECRET = re.compile(
    r"((?<!abfs)(?<!abfss):/+[^/]*@|(?<=http|ttps):.*@|:/+[^/]*:(?!\d+(/|$))|[?&#][^/]*=).*"
)


def place(where: str, value: Any) -> Place:
    """A path of this machine, or a URL such as ``s3://bucket/key``.

    A URL that carries a user, a password or a query is refused, and not repeated.
    """
    if isinstance(value, Url) or not _SCHEME.match(str(value)):
        return value if isinstance(value, Url) else local_path(where, value)
    scheme, host, key = found.groups() if (found := _URL.fullmatch(str(value))) else ("", "", "")
    if _SECRET.search(str(value)):
        raise ConfigError(
            f"{where}: found a URL with a user, a password or a query (not repeated here), allowed:"
            " one without. Put credentials into the environment (AWS_…, GOOGLE_…, AZURE_…)."
        )
    odd = key and not {"", ".", ".."}.isdisjoint(key.split("/"))
    if odd or scheme == "file" or not (host or scheme == "memory") or not key.isprintable():
        allowed = "scheme://bucket/key without '.', '..' and '//', or a path on this machine"
        raise ConfigError(f"{where}: found {str(value)!a:.100}, allowed: {allowed}.")
    return Url(scheme, host, key)


# -- refusals -----------------------------------------------------------------------------------
def by_name(what: str, given: Any, names: Sequence[str], usual: Any) -> dict[str, Any]:
    """A value for each name, from a list or from a mapping (missing names get `usual`).

    >>> by_name("weights", {"b": 3}, ["a", "b"], 1), by_name("weights", [2, 3], ["a", "b"], 1)
    ({'a': 1, 'b': 3}, {'a': 2, 'b': 3})
    """
    if given is None:
        return dict.fromkeys(names, usual)
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise ConfigError(
                    f"{what}: found {name!r}, allowed: the sources: {choices(name, names)}"
                )
        return {name: _plain(given.get(name, usual)) for name in names}
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ConfigError(f"{what}: found {given!r}, allowed: a mapping by source, or a list.")
    values = [_plain(value) for value in given]
    if len(values) != len(names) or not values:
        raise ConfigError(
            f"{what}: found {len(values)} for {len(names)} sources, allowed: one for each."
        )
    return dict(zip(names, values, strict=True))


def one_of(what: str, found: Any, allowed: Iterable[Any]) -> None:
    """Refuse a value that is not in `allowed`, with the near miss; 1 does not pass for True.

    >>> one_of("end", "dro", ["drop", "pad"])
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: end: found 'dro', allowed: drop, pad. Did you mean 'drop'?
    """
    known = list(allowed)
    if not any(found == one and isinstance(found, type(one)) for one in known):
        raise ConfigError(f"{what}: found {found!r}, allowed: {choices(found, known)}")


def check_between(
    what: str,
    found: float | None,
    least: float,
    most: float | None = None,
    *,
    unit: str = "",
    why: str = "",
) -> None:
    """Refuse a number outside its bounds, which are inclusive; None passes.

    Args:
        what: the path of the argument.
        found: its value; its type has already been checked.
        least: the lower bound.
        most: the upper bound; None for none, although infinity is still refused.
        unit: unit of the number, for the message.
        why: text that follows the bounds in the message.

    >>> check_between("seq_len", 1, 2, 1 << 30, unit="tokens")
    Traceback (most recent call last):
        ...
    tokenloom.errors.ConfigError: seq_len: found 1, allowed: 2 to 2^30 tokens.
    """
    if found is None or (least <= found < math.inf and (most is None or found <= most)):
        return
    top = " or more" if most is None else f" to {_round(most)}"
    raise ConfigError(
        f"{what}: found {_shown(found)}, allowed: {least}{top}{unit and ' ' + unit}{why}."
    )


def _round(bound: float) -> str:
    """A bound the way people write it.

    >>> _round(1000), _round(1 << 30), _round((1 << 31) - 1)
    ('1000', '2^30', '2^31 - 1')
    """
    for number, less in ((bound, ""), (bound + 1, " - 1")):
        if number > 1 << 16 and number == int(number) and int(number).bit_count() == 1:
            return f"2^{int(number).bit_length() - 1}{less}"
    return str(bound)


def wrong_type(where: str, value: Any, allowed: str) -> ConfigError:
    """The error for an object that is too large to show; it names the type only."""
    return ConfigError(f"{where}: found {type(value).__name__}, allowed: {allowed}.")


def count_of(what: str, value: Any) -> int:
    """A count: a Python integer from 0 to 2^63 - 1."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise ConfigError(f"{what}: found {value!r}, allowed: an integer from 0 to 2^63 - 1.")
    return value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


DIGITS = 12  # significant digits of a weight, so that every machine writes the same


def wrong(where: str, value: Any, allowed: str) -> ConfigError:
    """The error for an invalid value."""
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "..."
    return ConfigError(f"{where}: found {text} ({type(value).__name__}), allowed: {allowed}.")


def number(where: str, value: Any) -> float:
    """A real number as a float."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, Decimal)):
        raise wrong(where, value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise wrong(where, value, "a number below 2^1024") from None


def integer(where: str, value: Any, least: int = 0, most: int = 1 << 62) -> int:
    """An integer within its bounds."""
    try:
        found = operator.index(value)
    except TypeError:
        raise wrong(where, value, "an integer") from None
    if isinstance(value, (bool, np.bool_)):
        raise wrong(where, value, "an integer")
    if not least <= found <= most:
        limit = f"{least} or more" if found < least else f"at most {most:,}"
        raise ConfigError(f"{where}: found {_shown(found)}, allowed: {limit}.")
    return found


def _shown(found: Any) -> str:
    short = not isinstance(found, int) or abs(found) < 1 << 70
    return repr(found) if short else f"a number of {found.bit_length()} bits"


def mapping(where: str, value: Any, of: str) -> dict[Any, Any]:
    """A dict from a mapping or from pairs."""
    if value is None:
        return {}
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return dict(value)
    except (TypeError, ValueError):
        raise wrong(where, value, of) from None


def number_map(where: str, value: Any) -> dict[str, float]:
    """Numbers by name."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise wrong(where, value, "{source: number}")
    return {name: number(f"{where}.{name}", one) for name, one in value.items()}


def name_of(where: str, value: Any) -> str:
    """The name of a source."""
    if isinstance(value, str) and value:
        try:
            value.encode()
            return value
        except UnicodeEncodeError:
            pass
    raise ConfigError(f"{where}: found the name {value!r}, allowed: a non-empty string.")


def names_of(where: str, value: Any) -> tuple[str, ...]:
    """Names of sources, each once, sorted so that the order of listing does not matter."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise wrong(where, value, "a list of names")
    return tuple(sorted({name_of(where, one) for one in value}))


def pairs_of(where: str, value: Any) -> tuple[tuple[str, int], ...]:
    """(source, document) pairs, each once, sorted."""
    allowed = "a list of (source, document) pairs"
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise wrong(where, value, allowed)
    found = set()
    for one in value:
        if not isinstance(one, (list, tuple)) or len(one) != 2 or not isinstance(one[0], str):
            raise wrong(where, one, allowed)
        found.add((one[0], integer(where, one[1], least=-(1 << 62))))
    return tuple(sorted(found))


def check_names(where: str, found: Sequence[str] | Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse names of sources that do not exist."""
    for name in found:
        if name not in known:
            raise ConfigError(
                f"{where}.{name}: no source named {name!r}. Sources: {choices(name, known)}"
            )


def import_reference(reference: str) -> Any:
    """The object that ``module:qualified.name`` names.

    Raises:
        ImportError: there is no such object; the message says why.

    >>> import_reference("json:loads")("[1]")
    [1]
    """
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        raise ImportError(f"{reference!r} is not of the form 'module:function'")
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except AttributeError as error:
        raise ImportError(str(error)) from error


def reference_of(function: Any) -> str | None:
    """``"module:qualname"`` if another process can import this very object that way, else None.

    >>> import json
    >>> reference_of(json.loads), reference_of(lambda text: [])
    ('json:loads', None)
    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if not module or not name or module == "__main__" or "<" in name:
        return None
    target: Any = sys.modules.get(module)
    for part in name.split("."):
        target = getattr(target, part, None)
    return f"{module}:{name}" if target is function else None


def rounded(weight: float) -> float:
    """A weight rounded to the `DIGITS` digits that are written."""
    return float(f"{weight:.{DIGITS}g}")


def part_of(part: Any) -> tuple[int, int]:
    """Which part of how many ``"3/64"`` is, from 1.

    >>> part_of("3/64")
    (3, 64)
    """
    found = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", str(part))
    if found is None:
        raise ConfigError(
            f"part: found {part!r}, allowed: which part of how many, from 1, as '3/64'."
        )
    number, parts = int(found[1]), int(found[2])
    if not 1 <= number <= parts:
        raise ConfigError(
            f"part: found {part!r}, allowed: '1/{parts}' to '{parts}/{parts}'. Parts are counted "
            "from 1."
        )
    return number, parts
