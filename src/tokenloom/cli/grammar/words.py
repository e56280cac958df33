"""Messages in the words of the command line.

One idea: the library names what to pass as Python writes it (``on_error='skip'``); whoever typed a
command must type ``--on-error skip``. The options of a command are known, so its messages are
translated in one place, and no message is written twice.
"""

from __future__ import annotations

import argparse
import re
import shlex

__all__ = ["as_typed", "options_of"]

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
