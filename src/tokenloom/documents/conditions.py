"""Conditions on document metadata: ``lang==en and year>=1999``. Nothing is passed to `eval`.

A condition is a column, an operator and a value, and " and " joins conditions; that is
the whole language. Numbers in the metadata compare as numbers, strings as strings (by code point),
booleans by name. A document that lacks the column, or has a list there, meets no condition.
Quote a value that contains ``=``, ``<``, ``>``, quotes or " and ".

>>> parse_conditions("lang==en and title != 'war and peace'")
(Condition(column='lang', sign='==', value='en'),
 Condition(column='title', sign='!=', value='war and peace'))

Only the named columns are read, one group of documents at a time. For anything more complex, pass a
function of the metadata; it is called once per document.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64
from tokenloom.errors import ConfigError, choices
from tokenloom.store.reader import Reader

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

_LOOKED_AT = 1000  # documents whose keys an error lists when a column is missing


@dataclass(frozen=True, slots=True)
class Condition:
    """A test of one column; `sign` is one of ==, !=, <=, >=, < and >."""

    column: str
    sign: str
    value: str

    def test(self) -> Callable[[Any], bool]:
        """A function that tells whether a value found in the column meets the condition.

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
    """Parses a text such as ``id==a7`` into its conditions.

    Raises:
        ConfigError: the text cannot be parsed.
    """
    found: list[Condition] = []
    place = 0
    while place < len(text) or not found:
        match = _CONDITION.match(text, place)
        if match is None:
            raise ConfigError(
                f"doc_key: cannot parse {text[place:]!r}, allowed: conditions such as 'id==a7', "
                f"joined by ' and ', with {', '.join(SIGNS)}. Quote a value that contains one of "
                "these; for anything else, pass a function of the metadata."
            )
        written = (match[name] for name in ("double", "single", "bare"))
        value = next(one for one in written if one is not None)
        found.append(Condition(match["column"], match["sign"], value))
        place = match.end()
    return tuple(found)


def meeting(reader: Reader, text: str) -> Bools:
    """Which documents of a store meet all conditions [documents].

    Raises:
        ConfigError: the conditions cannot be parsed, name a column that does not exist, or no
            document meets them.
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
        seen.append(f"{condition.column} is {known!r:.60} in the first document that has it")
    if not meets.any():
        raise ConfigError(
            f"doc_key: no document of {len(meets):,} meets {text!r} ({'; '.join(seen)})."
            " Relax the condition."
        )
    return meets


def documents_where(
    reader: Reader, function: Callable[[dict[str, Any]], Any], among: Int64 | None
) -> Int64:
    """The documents, of all or `among` some, for whose metadata a function returns a true value.

    Raises:
        ConfigError: there is no such document.
    """
    asked = np.arange(reader.manifest.documents) if among is None else among
    found = [one for one in asked.tolist() if function(reader.named_metadata(one))]
    if not found:
        raise ConfigError(
            f"doc_key: no document of {len(asked):,} meets {function!r}. It is called with the "
            "metadata of each document, as `Store.metadata` returns it. Try it on one of them."
        )
    return np.array(found, np.int64)


def _values(reader: Reader, column: str) -> Iterator[list[Any]]:
    """The values of a column for all documents, in groups; inputs by name."""
    if column != "_input":
        yield from reader.values(column)
        return
    first = 0
    for values in reader.values(column):
        numbered = enumerate(values, first)
        yield [None if one is None else reader.input_name(number, one) for number, one in numbered]
        first += len(values)


def _missing(reader: Reader, column: str) -> ConfigError:
    """The error for a column that no document has; it lists the columns of the first documents."""
    first = range(min(_LOOKED_AT, reader.manifest.documents))
    keys = list(dict.fromkeys(key for document in first for key in reader.metadata(document)))
    if not keys:
        return ConfigError(
            f"doc_key: {reader.path} stores no metadata, so no document has a {column!r}. Choose "
            "by doc_index or length, or build the store from records that have this key."
        )
    return ConfigError(
        f"doc_key: no document has a {column!r}. The first ones have: {choices(column, keys)}"
    )
