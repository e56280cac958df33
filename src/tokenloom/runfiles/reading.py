"""From what a file says to typed settings, and every problem of a file at once, with its place.

Whatever can be known to be wrong without opening a store is found in one walk over plain data: keys
that do not exist, values of another type, nulls, dates, ``${NAME}`` where no path is.

The functions that take settings refuse wrong ones themselves, one at a time and in good words.
`asked` calls such a function again without the setting it complained of, until it is content, so
that all problems come out and no check is written twice.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from tokenloom.bind import BindError, bind
from tokenloom.errors import ConfigError, TokenloomError, choices, plural
from tokenloom.runfiles.schema import NONE, OMITTED, run_form
from tokenloom.runfiles.text import Written, below, read_value

T = TypeVar("T")

MOST = 200  # problems listed; a file with more is of another kind


class Mistake(NamedTuple):
    """One mistake.

    Attributes:
        path: the key, as in ``sources.wiki.pack.seq_len``; empty for the whole file.
        words: what is wrong, what is allowed, what to do.
    """

    path: str
    words: str

    def __str__(self) -> str:
        return f"{self.path}: {self.words}" if self.path else self.words


def lines_of(written: Written, problems: Iterable[Mistake]) -> list[str]:
    """The problems as lines, in the order of the file."""
    found = [(written.mark(one.path), one) for one in dict.fromkeys(problems)]
    found.sort(key=lambda pair: pair[0] or (0, 0))
    lines = []
    for mark, one in found:
        place = f"line {mark[0]}, column {mark[1]}: " if mark else ""
        lines.append(f"{'override: ' if _overridden(written, one.path) else place}{_worded(one)}")
    return lines


PYTHON = re.compile(r"\b([a-z_]+)=(True|False|'[^']*'|\"[^\"]*\"|[\d.]*\d)")


def _worded(one: Mistake) -> str:
    """A problem in the words of a file: `name: value` for `name=value`, and its word for None.

    >>> _worded(Mistake("a.overlap", "found 1, allowed: 0, or 1 with lookahead=True."))
    'a.overlap: found 1, allowed: 0, or 1 with lookahead: true.'
    """
    name = re.split(r"[.\[]", one.path)[-1]
    words = PYTHON.sub(lambda found: f"{found[1]}: {found[2].strip(QUOTES)}", one.words)
    words = re.sub(r": (True|False)\b", lambda found: found[0].lower(), words)
    words = words.replace("or None ", f"or {NONE[name]} ") if name in NONE else words
    return f"{one.path}: {words}" if one.path else words


QUOTES = "'\""


def _overridden(written: Written, path: str) -> bool:
    """Whether a value was given as an override, not in the file."""
    return any(
        path == known or path.startswith((f"{known}.", f"{known}[")) for known in written.raw
    )


def refuse(written: Written, problems: Iterable[Mistake]) -> None:
    """Raise one ConfigError that lists all problems, if there are any."""
    lines = lines_of(written, problems)
    if not lines:
        return
    name = f"{written.name}: " if written.name else ""
    if len(lines) == 1:
        raise ConfigError(f"{name}{lines[0]}")
    more = [f"… and {len(lines) - MOST:,} more"] if len(lines) > MOST else []
    listed = "\n".join(f"  {line}" for line in [*lines[:MOST], *more])
    raise ConfigError(f"{name}{plural(len(lines), 'problem')}\n{listed}")


def told(path: str, error: Exception, known: Iterable[str] = ()) -> list[Mistake]:
    """The problems that an error tells; lines that start with a known key get its path."""
    if isinstance(error, BindError):
        pairs = [line.partition(": ") for line in error.problems]
        return [Mistake(at.removeprefix("$").removeprefix("."), words) for at, _, words in pairs]
    names, found = set(known), list[Mistake]()
    last = re.split(r"[.\[]", path)[-1]
    for whole in str(error).split("\n"):
        line = re.sub(rf"^({re.escape(last)}|edit)[.:] ?", "", whole) if last else whole
        key = re.split(r"[:.,\[\s]", line, maxsplit=1)[0]
        if ": " in line and (key in names or line.startswith(f"{key}: missing")):
            where, _, words = line.partition(": ")
            found.append(Mistake(below(path, where), words))
        elif found and line.startswith("  "):  # more of the same
            found[-1] = Mistake(found[-1].path, f"{found[-1].words} {line.strip()}")
        else:
            found.append(Mistake(path, line))
    return found


def asked(
    path: str,
    function: Callable[[dict[str, Any]], T],
    given: Mapping[str, Any],
    problems: list[Mistake],
) -> T | None:
    """What a function makes of settings, or None and every problem it has with them.

    Args:
        path: where the settings are.
        function: takes the settings; raises an error whose message starts with a key.
        given: the settings.
        problems: gets what is wrong.

    >>> found = []
    >>> def halved(given):
    ...     for name, value in given.items():
    ...         if value % 2:
    ...             raise ConfigError(f"{name}: found {value}, allowed: an even number.")
    >>> asked("a", halved, {"x": 1, "y": 2, "z": 3}, found), [str(one) for one in found]
    (None, ['a.x: found 1, allowed: an even number.', 'a.z: found 3, allowed: an even number.'])
    """
    left = dict(given)
    for _ in range(len(left) + 1):
        try:
            made = function(left)
        except REFUSALS as error:
            if not isinstance(error, TokenloomError | BindError) and len(left) < len(given):
                return None  # what it needs was refused and is not there
            found = told(path, error, given)
            problems += [one for one in found if not is_known(one.path, problems)]
            complained = {one for one in left if any(_is_at(path, one, bad) for bad in found)}
            for name in complained:
                del left[name]
            if not complained:
                return None
        else:
            return made if len(left) == len(given) else None
    return None


REFUSALS = (TokenloomError, BindError, TypeError, IndexError)


def _is_at(path: str, name: str, found: Mistake) -> bool:
    here = below(path, name)
    return found.path == here or found.path.startswith((f"{here}.", f"{here}["))


def is_known(path: str, problems: Iterable[Mistake]) -> bool:
    """Whether something is already said about a path or what is below it."""
    inside = (f"{path}.", f"{path}[")
    return any(one.path == path or one.path.startswith(inside) for one in problems if path)


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
