"""Takes what was typed → gives the command and its options, before anything is computed.

Nothing here computes or loads NumPy, so help, completion and a refused command line take as long as
starting Python. See `tokenloom.cli.grammar.verbs`.
"""

from __future__ import annotations

import argparse

from tokenloom.cli.grammar.layouts import add_pack_plan, add_splice
from tokenloom.cli.grammar.runs import add_ask, add_compare, add_explore, add_files, add_plan
from tokenloom.cli.grammar.stores import add_build, add_exchange, add_look, add_tend
from tokenloom.cli.grammar.verbs import Parser
from tokenloom.cli.grammar.verdicts import add_audit, add_evaluate, add_report, add_simulate
from tokenloom.version import __version__

ADD = (
    add_files,
    add_build,
    add_exchange,
    add_look,
    add_plan,
    add_ask,
    add_compare,
    add_explore,
    add_audit,
    add_simulate,
    add_report,
    add_evaluate,
    add_pack_plan,
    add_splice,
    add_tend,
)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = Parser(
        prog="tokenloom",
        description="Text to training batches for language models.",
        epilog="Exit codes: 0 success; 1 store missing, damaged or full; 2 wrong usage; 3 unusable "
        "input or tokenizer; 4 a worker died; 130 interrupted.",
    )
    top.add_argument("--version", action="version", version=f"tokenloom {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in ADD:
        add(commands)
    return top
