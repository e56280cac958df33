"""Takes what was typed → gives the command and its options, before anything is computed.

Nothing here computes or loads NumPy, so help, completion and a refused command line take as long as
starting Python. See `tokenloom.cli.grammar.verbs`.
"""

from __future__ import annotations

import argparse

from tokenloom.cli.grammar import runs, stores, verdicts
from tokenloom.cli.grammar.verbs import Parser
from tokenloom.version import __version__

ADD = (
    runs.add_files,
    stores.add_build,
    stores.add_exchange,
    stores.add_look,
    runs.add_plan,
    runs.add_ask,
    runs.add_compare,
    runs.add_explore,
    verdicts.add_audit,
    verdicts.add_simulate,
    verdicts.add_report,
    verdicts.add_evaluate,
    stores.add_pack_plan,
    stores.add_splice,
    stores.add_tend,
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
