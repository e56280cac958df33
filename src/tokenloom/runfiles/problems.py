"""What is wrong with a run file: every problem at once, each with its place.

One idea: the functions that take settings already refuse wrong ones, one at a time and in good
words. `asked` calls such a function again without the setting it complained of, until it is
content, so that all problems come out and no check is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from tokenloom.bind import BindError
from tokenloom.errors import ConfigError, TokenloomError, plural
from tokenloom.runfiles.schema import NONE
from tokenloom.runfiles.text import Written, below

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
        return [_of_path(line) for line in error.problems]
    names, found = set(known), list[Mistake]()
    last = re.split(r"[.\[]", path)[-1]
    for whole in str(error).split("\n"):
        line = re.sub(rf"^({re.escape(last)}|edit)[.:] ?", "", whole) if last else whole
        key = _key(line)
        if ": " in line and (key in names or line.startswith(f"{key}: missing")):
            where, _, words = line.partition(": ")
            found.append(Mistake(below(path, where), words))
        elif found and line.startswith("  "):  # more of the same
            found[-1] = Mistake(found[-1].path, f"{found[-1].words} {line.strip()}")
        else:
            found.append(Mistake(path, line))
    return found


def _of_path(line: str) -> Mistake:
    """A line of `bind`, which starts with a path from ``$``."""
    path, _, words = line.partition(": ")
    return Mistake(path.removeprefix("$").removeprefix("."), words)


def _key(line: str) -> str:
    return re.split(r"[:.,\[\s]", line, maxsplit=1)[0]


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
