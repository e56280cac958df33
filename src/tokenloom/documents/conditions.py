"""Conditions on the metadata of documents: ``lang==en and year>=1999``. Nothing is evaluated.

One idea: a condition is a column, a sign and a value, and conditions are joined by " and "; that is
the whole language. A document's number is compared as a number, its text as text (by code points),
true and false by their names; a document without the column, or with a list there, meets nothing.
Values that hold ``=``, ``<``, ``>``, quotes or " and " are written in quotes.

>>> parse_conditions("lang==en and title != 'war and peace'")
(Condition(column='lang', sign='==', value='en'),
 Condition(column='title', sign='!=', value='war and peace'))

Only the columns that are named are read, a group of documents at a time. Whoever needs more than
that gives a function of the metadata, which is asked once for every document.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, choices
from tokenloom.store.reader import Reader
from tokenloom.store.snapshots import read_inputs

__all__ = ["Condition", "documents_where", "meeting", "parse_conditions"]

Int64 = NDArray[np.int64]

Bools = NDArray[np.bool_]

SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}

_CONDITION = re.compile(
    r"""\s* (?P<column> [^\s=!<>'"] ([^=!<>'"]*[^\s=!<>'"])? )
        \s* (?P<sign> ==|!=|<=|>=|<|> )
        \s* ( "(?P<double>[^"]*)" | '(?P<single>[^']*)'
            | (?P<bare> [^\s=<>'"] ([^=<>]*?[^\s=<>])? ) )
        \s* ( \s and \s | $ )""",
    re.VERBOSE,
)

_LOOKED_AT = 1000  # documents whose keys are listed where a column is missing


@dataclass(frozen=True, slots=True)
class Condition:
    """What one column must be: `sign` is one of ==, !=, <=, >=, < and >."""

    column: str
    sign: str
    value: str

    def test(self) -> Callable[[Any], bool]:
        """Whether a document with this in the column meets the condition.

        >>> [Condition("year", ">=", "1999").test()(found) for found in (2001, "200", None)]
        [True, True, False]
        """
        compare, text, number = SIGNS[self.sign], self.value, _number(self.value)

        def meets(found: Any) -> bool:
            if isinstance(found, str):
                return compare(found, text)
            if isinstance(found, bool):
                return compare(str(found).lower(), text.lower())
            if isinstance(found, int | float):
                return self.sign == "!=" if number is None else compare(found, number)
            return False

        return meets


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return None


def parse_conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of a text such as ``id==a7``.

    Raises:
        ConfigError: it cannot be read.
    """
    found: list[Condition] = []
    place = 0
    while place < len(text) or not found:
        match = _CONDITION.match(text, place)
        if match is None:
            raise ConfigError(
                f"doc_key: cannot read {text[place:]!r}, allowed are conditions such as 'id==a7', "
                f"joined by ' and ', with {', '.join(SIGNS)}. Quote a value that holds such signs; "
                "for anything else give a function of the metadata."
            )
        written = (match[name] for name in ("double", "single", "bare"))
        value = next(one for one in written if one is not None)
        found.append(Condition(match["column"], match["sign"], value))
        place = match.end()
    return tuple(found)


def meeting(reader: Reader, text: str) -> Bools:
    """Which documents of a store meet conditions [documents].

    Raises:
        ConfigError: the conditions cannot be read, name a column that is not there, or are met by
            no document.
    """
    meets, seen = np.ones(reader.manifest.documents, np.bool_), []
    for condition in parse_conditions(text):
        test, first, known = condition.test(), 0, None
        for values in _values(reader, condition.column):
            here = slice(first, first + len(values))
            meets[here] &= np.fromiter(map(test, values), np.bool_, len(values))
            known = next((v for v in values if v is not None), None) if known is None else known
            first = here.stop
        if known is None:
            raise _missing(reader, condition.column)
        seen.append(f"{condition.column} is {known!r:.60} in the first that has it")
    if not meets.any():
        raise ConfigError(
            f"doc_key: no document of {len(meets):,} meets {text!r} ({'; '.join(seen)})."
        )
    return meets


def documents_where(
    reader: Reader, function: Callable[[dict[str, Any]], Any], among: Int64 | None
) -> Int64:
    """The documents for whose metadata a function gives something true, of all or `among` some.

    Raises:
        ConfigError: it does so for none.
    """
    asked = np.arange(reader.manifest.documents) if among is None else among
    names, found = _input_names(reader), []
    for document in asked.tolist():
        row = reader.metadata(document)
        if "_input" in row:
            row["_input"] = names(document, row["_input"])
        if function(row):
            found.append(document)
    if not found:
        raise ConfigError(
            f"doc_key: no document of {len(asked):,} meets {function!r}. It is given the metadata "
            "of each, as `Store.metadata` gives it."
        )
    return np.array(found, np.int64)


def _values(reader: Reader, column: str) -> Iterator[list[Any]]:
    """What all documents have in a column, in groups; inputs by their names."""
    if column != "_input":
        yield from reader.values(column)
        return
    names, first = _input_names(reader), 0
    for values in reader.values(column):
        yield [None if v is None else names(first + i, v) for i, v in enumerate(values)]
        first += len(values)


def _input_names(reader: Reader) -> Callable[[int, Any], Any]:
    """(document, number of its input) → name of the input; the number itself if it has none."""
    manifest = reader.manifest
    ends = np.cumsum([part.documents for part in manifest.parts])

    @functools.cache
    def names(part: int) -> list[str]:
        number = manifest.parts[part].manifest
        listed = read_inputs(reader.source, Path(reader.path), manifest, number)
        return [one.name for one in listed]

    def name(document: int, number: Any) -> Any:
        known = names(int(np.searchsorted(ends, document, side="right")))
        return known[number] if isinstance(number, int) and 0 <= number < len(known) else number

    return name


def _missing(reader: Reader, column: str) -> ConfigError:
    """That no document has such a column, with those that the first ones have."""
    first = range(min(_LOOKED_AT, reader.manifest.documents))
    keys = list(dict.fromkeys(key for document in first for key in reader.metadata(document)))
    if not keys:
        return ConfigError(
            f"doc_key: {reader.path} keeps no metadata, so no document has a {column!r}. Choose by "
            "doc_index or length, or build the store from records with such a key."
        )
    return ConfigError(
        f"doc_key: no document has a {column!r}. The first ones have: {choices(column, keys)}"
    )
