"""One command of the command line: its name, its help with an example, and where its work is.

One idea: a command line is read, completed and refused before anything that computes is loaded.
So a command names its work as ``module:function`` below `tokenloom.cli`, which is imported when the
command runs; the modules of this folder import neither NumPy nor a room of the flow.

The library names what to pass as Python writes it (``on_error='skip'``); whoever typed a command
must type ``--on-error skip``. `as_typed` translates messages, so none is written twice.

What was typed becomes a plain value, or the command line says which option was wrong, what was
typed, and what is allowed.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tokenloom.errors import choices, near_miss, sentence

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS |= {"KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}


def _wrong(given: str, allowed: str) -> argparse.ArgumentTypeError:
    """What argparse prints after the name of the option."""
    return argparse.ArgumentTypeError(f"found {given!r}, allowed: {allowed}")


def whole(given: str) -> int:
    """An integer.

    >>> whole("8192"), whole("-1")
    (8192, -1)
    """
    try:
        return int(given)
    except ValueError:
        raise _wrong(given, "an integer") from None


def real(given: str) -> float:
    """A number.

    >>> real("0.4"), real("1e-9")
    (0.4, 1e-09)
    """
    try:
        return float(given)
    except ValueError:
        raise _wrong(given, "a number") from None


def json_of(given: str) -> Any:
    """A value written as JSON.

    >>> json_of('{"tools": null}')
    {'tools': None}
    """
    try:
        return json.loads(given)
    except ValueError as error:
        raise _wrong(given, f"JSON ({error})") from None


def document_number(way: str) -> Callable[[str], int]:
    """What reads the number of a document, and says what to do with an id instead.

    Args:
        way: what to type for an id, where {id} is put.

    >>> document_number("--id {id}")("17")
    17
    """

    def number(given: str) -> int:
        if re.fullmatch(r"-?\d+", given):
            return int(given)
        way_out = way.format(id=shlex.quote(given))
        raise _wrong(given, f"the number of a document, from 0. For that id: {way_out}")

    return number


def bytes_of(given: str) -> int:
    """A number of bytes, with a unit or without.

    Units are those of disks and networks (kB, MB, GB) and of memory (KiB, MiB, GiB).

    >>> bytes_of("640MiB"), bytes_of("1.5GB"), bytes_of("1e6")
    (671088640, 1500000000, 1000000)
    """
    found = re.fullmatch(r"(\d+\.?\d*(?:[eE]\d+)?)\s*([KMGTkmgt]?[iI]?)[bB]?", given.strip())
    if found is None or found[2].upper() not in UNITS:
        raise _wrong(given, "a number of bytes, such as 1000000, 500MB or 2GiB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def rows_of_steps(given: str) -> int | list[tuple[int, int]]:
    """A batch size, or a schedule of pairs EXAMPLES:ROWS.

    >>> rows_of_steps("64"), rows_of_steps("0:64,6400:128")
    (64, [(0, 64), (6400, 128)])
    """
    if re.fullmatch(r"-?\d+", given):
        return int(given)
    if not re.fullmatch(r"\d+:\d+(,\d+:\d+)*", given):
        raise _wrong(given, "rows of a step, or pairs EXAMPLES:ROWS, such as 64 or 0:64,6400:128")
    pairs = [one.split(":") for one in given.split(",")]
    return [(int(examples), int(rows)) for examples, rows in pairs]


POSITIONAL = frozenset({"inputs", "store", "stores", "command", "work", "json", "debug", "quiet"})

VALUE = r"('[^']*'|\"[^\"]*\"|\[[^\]]*\]|\{[^}]*\}|\.\.\.|…|[\w.+-]*\w)"

IN_A_FILE = re.compile(r"\bline \d+, column \d+: ")


def options_of(arguments: argparse.Namespace) -> frozenset[str]:
    """The options that a command has, as Python names them."""
    return frozenset(vars(arguments)) - POSITIONAL


def as_typed(message: str, options: frozenset[str]) -> str:
    """A message with every option as it is typed.

    >>> options = frozenset({"on_error", "text_key", "verify_all", "add_eos", "column"})
    >>> as_typed("Mend it, or pass on_error='skip' to go on.", options)
    'Mend it, or pass --on-error skip to go on.'
    >>> as_typed("add_eos: there is none; pass verify_all=True.", options)
    '--add-eos: there is none; pass --verify-all.'
    >>> as_typed("pass columns={'loss_mask': ...} to keep it", options)
    'pass --column loss_mask:DTYPE to keep it'
    >>> as_typed("found 'on_error' in text_key", options)
    "found 'on_error' in --text-key"
    >>> as_typed("line 3, column 2: loader.x: unknown key. Allowed: text_key", options)
    'line 3, column 2: loader.x: unknown key. Allowed: text_key'
    """
    if IN_A_FILE.search(message):
        return message  # a run file has keys, not options
    if "column" in options:
        message = re.sub(r"\bcolumns=\{'(\w+)': [^}]*\}", r"--column \1:DTYPE", message)
    if not options:
        return message
    names = "|".join(sorted(map(re.escape, options), key=len, reverse=True))
    message = re.sub(rf"(?<![\w'\"./-])({names})={VALUE}", _option, message)
    message = re.sub(rf"\A({names})(?=: )", lambda found: _flag(found[1]), message)
    # a name with an underscore is no word of a sentence
    snakes = "|".join(name for name in options if "_" in name) or r"(?!)"
    return re.sub(rf"(?<![\w'\"./-])({snakes})(?![\w'\"=/])", lambda f: _flag(f[1]), message)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _option(found: re.Match[str]) -> str:
    name, value = found[1], found[2]
    if value in ("True", "False"):
        return _flag(name) if value == "True" else f"--no-{name.replace('_', '-')}"
    if value[0] in "'\"":
        return f"{_flag(name)} {shlex.quote(value[1:-1])}"
    return f"{_flag(name)} {value.strip('[]')}"


class Parser(argparse.ArgumentParser):
    """Reads a command line; a wrong one is told what was found and what is allowed.

    >>> Parser(prog="tokenloom toy").error("argument --n: found 'x', allowed: an integer")
    Traceback (most recent call last):
        ...
    SystemExit: 2
    """

    _as_json = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """The values, and what is left; a command leaves nothing, since nobody else wants it."""
        self._as_json = "--json" in (sys.argv if args is None else args)
        found, left = super().parse_known_args(args, namespace)
        if left and self.get_default("work"):
            known = [one for action in self._actions for one in action.option_strings]
            what = "no such option" if left[0].startswith("-") else "nothing is expected there"
            self.error(f"{left[0]}: {what}.{near_miss(left[0].partition('=')[0], known)}")
        return found, left

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where the help is, and end with exit code 2."""
        message = re.sub(r"\Aargument ([^ /]+/)?", "", message)
        wrong = re.fullmatch(
            r"(.+): invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL
        )
        if wrong:
            allowed = [word.strip("' ") for word in wrong[3].split(",")]
            message = f"{wrong[1]}: found {wrong[2]!r}, allowed: {choices(wrong[2], allowed)}"
        message = f"{sentence(message)} Help: {self.prog} --help"
        if self._as_json:
            print(json.dumps({"error": "ConfigError", "message": message}))
        self.exit(2, f"tokenloom: {message}\n")


@functools.cache
def _common_options() -> argparse.ArgumentParser:
    """The options that every command has."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON object")
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    common.add_argument("--quiet", action="store_true", help="no progress bar and no log lines")
    return common


def add_verb(
    commands: Any,
    name: str,
    *,
    work: str,
    help: str,
    description: str,
    example: str,
) -> argparse.ArgumentParser:
    """The parser of a new command.

    Args:
        commands: what argparse gives for sub-commands.
        name: the command, as it is typed.
        work: module and function that do it, such as "show:info".
        help: one line for the list of commands.
        description: a paragraph for its own help.
        example: a command line that works, without the leading "tokenloom".
    """
    verb: argparse.ArgumentParser = commands.add_parser(
        name,
        parents=[_common_options()],
        allow_abbrev=False,  # a later option must not change what an old command means
        help=help,
        description=description,
        epilog=f"Example: tokenloom {example}",
    )
    verb.set_defaults(work=work)
    return verb


def add_overrides(verb: Any, of: str = "the run file") -> None:
    """Add `--set`, the one way of every command to change a value of a run file."""
    verb.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"another value of {of}, as in loader.batch_size=128; may be repeated",
    )


def add_executor(verb: Any) -> None:
    """Add `--executor`, where the work is done."""
    verb.add_argument(
        "--executor",
        metavar="WHERE",
        help="local (default), ray, or the address of a Ray cluster: ray:HOST:PORT, ray:auto",
    )


def add_flag(verb: Any, name: str, help: str) -> None:
    """Add an option that is given or not."""
    verb.add_argument(name, action="store_true", help=help)


def add_number(verb: Any, name: str, help: str, *, metavar: str = "N", **more: Any) -> None:
    """Add an option that takes an integer."""
    verb.add_argument(name, type=whole, metavar=metavar, help=help, **more)


def add_document(
    verb: Any, name: str, help: str, way: str = "tokenloom find STORE {id}", **more: Any
) -> None:
    """Add an option that takes the number of a document; `way` is what to type for an id."""
    verb.add_argument(name, type=document_number(way), help=help, **more)
