"""The command that writes a page to look at: `report`."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.cli.grammar.runs import add_batch_size
from tokenloom.cli.grammar.stores import add_said
from tokenloom.cli.grammar.values import bytes_of, real, whole
from tokenloom.cli.grammar.verbs import add_overrides, add_verb

__all__ = ["add_report"]

OUTPUT = "report.html"


def add_report(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `report`."""
    report = add_verb(
        commands,
        common,
        "report",
        work="judging.report:report",
        example="report run.yaml --ranks 8 --latency 0.02 --step-seconds 0.4 -o report.html",
        help="a page about a run, a store, an audit or an evaluation",
        description="Write one HTML file that opens without a network: warnings and what to do "
        "about them, answers with numbers, and figures, each with its table and the code that "
        "makes it. No token is trained, and a run of any size takes seconds.",
    )
    report.add_argument(
        "target",
        metavar="RUN|STORE|AUDIT|EVAL",
        help="a run file; a store; what `audit -o` wrote; what `evaluate -o` wrote",
    )
    add_overrides(report)
    report.add_argument(
        "-o",
        "--output",
        default=OUTPUT,
        metavar="FILE",
        help=f"where to write it ({OUTPUT}); an earlier report is replaced",
    )
    run = report.add_argument_group("of a run")
    add_batch_size(run)
    run.add_argument("--ranks", type=whole, metavar="W", help="number of ranks (default: 1)")
    run.add_argument("--latency", type=real, metavar="S", help="seconds of a request")
    run.add_argument(
        "--bandwidth", type=bytes_of, metavar="SIZE", help="bytes a second of a rank's source"
    )
    run.add_argument("--step-seconds", type=real, metavar="S", help="seconds of a step")
    run.add_argument(
        "--cache", type=bytes_of, metavar="SIZE", help="cache of each store: bytes, or 2GiB"
    )
    run.add_argument("--state", metavar="FILE", help="where the run is: a state that was saved")
    run.add_argument("--audit", metavar="FILE", help="a certificate of this run")
    run.add_argument(
        "--eval", nargs="+", default=[], metavar="FILE", help="files or folders of `evaluate -o`"
    )
    add_said(report)
