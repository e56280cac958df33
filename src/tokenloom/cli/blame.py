"""`tokenloom blame`: the documents that the losses of a run point at."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.cli.printing import write
from tokenloom.cli.run_files import batch_size_of, load_run
from tokenloom.inspect.suspects.blamed import blame

__all__ = ["add_commands"]

EXAMPLE = """example:
  tokenloom blame run.json --losses log.jsonl --step-key step --loss-key train/loss \\
      --batch-size 512"""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `blame`."""
    command = commands.add_parser(
        "blame",
        parents=[common],
        allow_abbrev=False,  # a later option must not change what an old command means
        help="the documents that the losses of a run point at",
        description="Steps that spike, documents, sources and positions whose losses are above the "
        "usual, and a quarantine ready to paste. Losses are JSON lines, CSV or TensorBoard events, "
        "one per step, or a list per step with one for each row.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=_blame)
    command.add_argument("run_file", metavar="RUN", help="JSON file with a described run")
    command.add_argument("--losses", required=True, metavar="FILE", help="what was logged")
    command.add_argument("--step-key", default="step", metavar="KEY", help="name of the step")
    command.add_argument("--loss-key", default="loss", metavar="KEY", help="name of the loss")
    command.add_argument(
        "--batch-size",
        type=batch_size_of,
        metavar="B",
        help="rows of a step over all ranks, or a schedule: 0:64,6400:128",
    )
    command.add_argument("--window", type=int, default=101, metavar="N", help="steps of the median")
    command.add_argument("--spike", type=float, default=6.0, metavar="X", help="deviations")
    command.add_argument("--most", type=int, default=20, metavar="N", help="documents to list")
    command.add_argument("--at", type=int, metavar="N", help="first example of the quarantine")


def _blame(arguments: argparse.Namespace) -> int:
    found = blame(
        load_run(arguments.run_file),
        arguments.losses,
        batch_size=arguments.batch_size,
        step_key=arguments.step_key,
        loss_key=arguments.loss_key,
        window=arguments.window,
        spike=arguments.spike,
        most=arguments.most,
        at=arguments.at,
    )
    write(arguments, found.to_dict(), repr(found).splitlines())
    return 0
