"""Takes a command line → gives what the library answers, as lines or as JSON.

Exit codes: 0 success; 1 the store is missing, damaged, busy or full; 2 the command is invalid;
3 an input, a tokenizer or an optional package cannot be used; 4 a worker process died;
130 interrupted.

`tokenloom.cli.grammar` has the commands and their options; the module that does the work of a
command is imported when it runs. `parser` is public, for tools that read it, such as shtab.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import logging
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from tokenloom import errors
from tokenloom.cli.grammar import parser
from tokenloom.cli.grammar.verbs import as_typed, options_of

__all__ = ["main", "parser"]

EXIT_CODES: dict[type[Exception], int] = {
    errors.StoreError: 1,
    errors.ConfigError: 2,
    errors.InputError: 3,
    errors.TokenizerError: 3,
    errors.MissingExtra: 3,
    errors.WorkerError: 4,
    IndexError: 2,
    KeyError: 2,
    errors.TokenloomError: 2,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = parser().parse_args(argv)
    _set_up_messages(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show █ shows ?
            stream.reconfigure(errors="replace")
    try:
        module, function = arguments.work.split(":")
        code: int = getattr(importlib.import_module(f"tokenloom.cli.{module}"), function)(arguments)
        return code
    except KeyboardInterrupt:
        print("tokenloom: interrupted; finished shards are kept.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has closed it, as `head` does
        sys.stderr.close()
        return 0
    except tuple(EXIT_CODES) as error:
        if arguments.debug:
            raise
        _print_error(error, arguments)
        return next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind))


def _print_error(error: Exception, arguments: argparse.Namespace) -> None:
    message = str(error.args[0]) if isinstance(error, KeyError) else str(error)
    message = as_typed(message, options_of(arguments))
    if arguments.json:
        print(json.dumps({"error": type(error).__name__, "message": message}))
    print(f"tokenloom: {message}", file=sys.stderr)


class _Typed(logging.Formatter):
    """Log lines in the words of the command that runs."""

    options: frozenset[str] = frozenset()

    def format(self, record: logging.LogRecord) -> str:
        return as_typed(super().format(record), self.options)


_TYPED = _Typed("tokenloom: %(message)s")


def _set_up_messages(arguments: argparse.Namespace) -> None:
    quiet, _TYPED.options = arguments.quiet, options_of(arguments)
    handler = logging.StreamHandler()
    handler.setFormatter(_TYPED)
    logging.basicConfig(level=logging.ERROR if quiet else logging.INFO, handlers=[handler])

    def show(message: Any, *_: Any, **__: Any) -> None:
        if not quiet:
            print(as_typed(f"tokenloom: {message}", _TYPED.options), file=sys.stderr)

    warnings.showwarning = show
