"""From what a file says to typed settings: keys, types, words for None, overrides, places.

One idea: whatever can be known to be wrong without opening a store is found here, all of it, in
one walk over plain data: keys that do not exist, values of another type, nulls, dates, ``${NAME}``
where no path is.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from tokenloom.bind import BindError, bind
from tokenloom.errors import ConfigError, choices
from tokenloom.runfiles.problems import Mistake, told
from tokenloom.runfiles.schema import NONE, OMITTED, run_form
from tokenloom.runfiles.text import Written, below, read_value

VARIABLE = re.compile(r"\$\{([^}]*)\}")

PATHS = re.compile(
    r"(sources|evaluate)\.[^.]+\.store(\.path)?|edits\[\d+\]\.append\..*|build\.tokenizer|"
    r"build\.chat_template|build\.stores\..*"
)  # where ${NAME} may be written

LARGEST = 1 << 63

NUMBERS = ("epochs", "content_length", "eos_id", "ignore_id")  # with a word for None


def overridden(written: Written, overrides: Iterable[str]) -> Written:
    """What a file says, with values replaced or added by ``a.b=c``.

    The value is read as YAML and then typed like every other one; a key with dots is put in double
    quotes, as in ``sources."v1.2".epochs=3``.

    Raises:
        ConfigError: an override is not of that form, or leads through a value.

    >>> found = overridden(Written(plain={"seed": 1}), ["loader.batch_size=64", "seed=2"])
    >>> found.plain
    {'seed': 2, 'loader': {'batch_size': 64}}
    """
    if isinstance(overrides, str):
        raise ConfigError(f"overrides: found {overrides!r}, allowed: a list, [{overrides!r}].")
    plain, marks, raw = _copied(written.plain), dict(written.marks), dict(written.raw)
    for one in overrides:
        name, equals, text = str(one).partition("=")
        keys = [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^".]+)', name.strip())]
        if not equals or not keys:
            raise ConfigError(
                f"override {one!r}: allowed: PATH=VALUE, such as loader.batch_size=64."
            )
        _put(plain, keys, read_value(text, f"override {one}"), one)
        path = ".".join(keys)
        raw[path] = text
        for known in [known for known in marks if known == path or known.startswith(f"{path}.")]:
            del marks[known]
    return dataclasses.replace(written, plain=plain, marks=marks, raw=raw)


def _put(plain: dict[str, Any], keys: list[str], value: Any, override: str) -> None:
    place = plain
    for depth, key in enumerate(keys[:-1]):
        known = next((one for one in place if str(one) == key), key)
        inner = place.setdefault(known, {})
        if not isinstance(inner, dict):
            whole = ".".join(keys[: depth + 1])
            raise ConfigError(
                f"override {override!r}: {whole} is {inner!r}, which has no keys. Leave out what "
                "follows it."
            )
        place = inner
    last = next((one for one in place if str(one) == keys[-1]), keys[-1])
    place[last] = value


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


def settings_of(written: Written, problems: list[Mistake]) -> dict[str, Any]:
    """The typed settings of a file, only what is written; what is wrong is left out and told.

    >>> found = []
    >>> written = Written(plain={"sead": 7, "sources": {"a": {"store": "x", "epochs": "endless"}}})
    >>> settings_of(written, found)
    {'sources': {'a': {'store': 'x', 'epochs': None}}}
    >>> found[0].path, found[0].words[-21:]
    ('sead', " Did you mean 'seed'?")
    """
    plain = _plain(written.plain, "", problems)
    plain.pop("$schema", None)
    form: Any = run_form()
    for _ in range(4):  # a value that was refused may have hidden another problem
        try:
            bound = bind(form, plain)
        except BindError as error:
            found = told("", error)
            wrong = [one for one in found if not _as_text(plain, one.path, written.raw)]
            problems += wrong
            for one in reversed(wrong):  # the last of a list first
                _take_out(plain, one.path)
        else:
            return typing.cast(dict[str, Any], _given(bound, plain, "", problems))
    return {}


def _plain(value: Any, path: str, problems: list[Mistake]) -> Any:
    """A copy with text keys and without what no file may hold."""
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, one in value.items():
            here = below(path, str(key))
            if isinstance(key, bool) or not isinstance(key, str | int):
                words = f"found the key {key!r}, allowed: text. Put it in quotes."
                problems.append(Mistake(here, words))
            elif isinstance(key, int) and str(key) in value:
                words = f"found the keys {key!r} and {str(key)!r}, which are one. Remove one."
                problems.append(Mistake(here, words))
            elif _may_stay(here, one, problems):
                found[str(key)] = _plain(one, here, problems)
        return found
    if isinstance(value, list | tuple):
        kept = [(n, one) for n, one in enumerate(value) if _may_stay(below(path, n), one, problems)]
        return [_plain(one, below(path, n), problems) for n, one in kept]
    return value


def _may_stay(path: str, value: Any, problems: list[Mistake]) -> bool:
    """Whether a value, or what it holds, may be in a file."""
    words = _omitted(path) or _unfit(path, value)
    if words:
        problems.append(Mistake(path, words))
    return not words


def _omitted(path: str) -> str:
    """Why a parameter is not for files."""
    name = path.rsplit(".", 1)[-1]
    section = "store" if path.endswith(f".store.{name}") else path.partition(".")[0]
    why = OMITTED.get(f"{section}.{name}") if "." in path else None
    return f"not allowed: {why}." if why else ""


def _unfit(path: str, value: Any) -> str:
    if isinstance(value, Mapping | list | tuple | bool):
        return ""
    name = re.split(r"[.\[]", path)[-1]
    if value is None:
        word = NONE.get(name)
        instead = f"write {name}: {word}, or leave" if word else "leave"
        return f"found null, allowed: a value; {instead} the key out for the default."
    if isinstance(value, int):
        bits = 64 if name == "seed" else 63
        fits = -LARGEST < value < 1 << bits
        if fits:
            return ""
        size = value.bit_length()  # beyond 1,024 bits it is no float
        shown = f"{value:.3g}" if size < 1000 else f"a number of {size:,} bits"
        return f"found {shown}, allowed: integers below 2^{bits}."
    if isinstance(value, float):
        finite = value == value and abs(value) != float("inf")
        return "" if finite else f"found {value}, allowed: a finite number."
    if not isinstance(value, str):
        return f"found a {type(value).__name__} ({value}), allowed: text. Put it in quotes."
    if VARIABLE.search(value) and not PATHS.fullmatch(path):
        return (
            f"found {value!r}, but ${{NAME}} is only read in paths of stores, inputs and "
            f"tokenizers. Pass it as an override, {path}=..."
        )
    return "" if "\0" not in value else "found text with a NUL character."


def _holder(plain: Any, path: str) -> tuple[Any, Any] | None:
    """What holds the value at a path, and its key there; keys may have dots in them."""
    if isinstance(plain, dict):
        for key, inner in plain.items():
            if path == key:
                return plain, key
            if path.startswith((f"{key}.", f"{key}[")):
                found = _holder(inner, path[len(key) :].removeprefix("."))
                if found:
                    return found
    elif isinstance(plain, list) and (place := re.match(r"\[(\d+)\]\.?", path)):
        number, rest = int(place[1]), path[place.end() :]
        if number < len(plain):
            return _holder(plain[number], rest) if rest else (plain, number)
    return None


def _take_out(plain: Any, path: str) -> None:
    found = _holder(plain, path)
    if found:
        del found[0][found[1]]


def _as_text(plain: Any, path: str, raw: Mapping[str, str]) -> bool:
    """Whether an override that looked like a number was put back as the text it is."""
    found = _holder(plain, path)
    if not found or path not in raw or isinstance(found[0][found[1]], str):
        return False
    found[0][found[1]] = raw[path]
    return True


def _given(bound: Any, plain: Any, path: str, problems: list[Mistake]) -> Any:
    """Records as mappings of what was written, with typed values, and None for its words."""
    if dataclasses.is_dataclass(bound):
        found = {
            name: _given(getattr(bound, name), one, below(path, name), problems)
            for name, one in plain.items()
        }
        return {
            name: None if one == NONE.get(name) and name != "shuffle" else one
            for name, one in found.items()
            if _is_worded(below(path, name), name, one, problems)
        }
    if isinstance(bound, dict) and isinstance(plain, dict):
        return {n: _given(one, plain[n], below(path, n), problems) for n, one in bound.items()}
    if isinstance(bound, tuple) and isinstance(plain, list):
        pairs = zip(bound, plain, strict=True)
        return tuple(_given(a, b, below(path, n), problems) for n, (a, b) in enumerate(pairs))
    return bound


def _is_worded(path: str, name: str, value: Any, problems: list[Mistake]) -> bool:
    """Whether text where a number belongs is the word for None."""
    word = NONE.get(name)
    if name not in NUMBERS or not isinstance(value, str) or value == word:
        return True
    words = f"found {value!r}, allowed: {choices(value, ['an integer', word])}"
    problems.append(Mistake(path, words))
    return False
