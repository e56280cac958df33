"""Commands that judge a run: audit it, and simulate it."""

from __future__ import annotations

import argparse
from typing import Any

from tokenloom.cli.grammar.runs import add_batch_size
from tokenloom.cli.grammar.values import bytes_of, real, whole
from tokenloom.cli.grammar.verbs import add_overrides, add_verb

__all__ = ["add_audit", "add_simulate"]

NUMBER: dict[str, Any] = {"type": whole, "metavar": "N"}


def add_audit(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `audit`."""
    audit = add_verb(
        commands,
        common,
        "audit",
        work="judging.verdicts:audit",
        example="audit run.yaml -o certificate.json",
        help="judge every law of a run, and write a certificate",
        description="Look at the rows of a run and judge every law: exactly once, coverage, order, "
        "mixture, tokens, masks, labels. With --check, compute a certificate again; with "
        "--indices, judge the loader of somebody else. Exit code 1 if a law is broken, or a "
        "certificate differs.",
    )
    audit.add_argument("description", nargs="?", metavar="RUN", help="a run file")
    add_overrides(audit)
    look = audit.add_argument_group("what to look at")
    look.add_argument("--first", help="first row (default: 0)", **NUMBER)
    look.add_argument("--last", help="row after the last one (default: the end)", **NUMBER)
    look.add_argument("--plan-only", action="store_true", help="read no token, render no row")
    look.add_argument("--sample", help="only N rows, a keyed sample", **NUMBER)
    look.add_argument("--seed", default=0, help="names the sample (default: 0)", **NUMBER)
    look.add_argument("-o", "--output", metavar="FILE", help="write the certificate there")
    check = audit.add_argument_group("certificates of others")
    check.add_argument("--check", metavar="FILE", help="compute a keyed hundredth of it again")
    check.add_argument("--full", action="store_true", help="with --check: compute all of it again")
    other = audit.add_argument_group("loaders of others")
    other.add_argument("--indices", nargs="+", metavar="FILE", help=".npy of indices, one per rank")
    other.add_argument("--rows", help="with --indices: rows of an epoch", **NUMBER)
    other.add_argument("--epochs", help="with --indices: how many epochs these are", **NUMBER)


def add_simulate(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `simulate`."""
    simulate = add_verb(
        commands,
        common,
        "simulate",
        work="judging.verdicts:simulate",
        example="simulate run.yaml --steps 100000 --ranks 8 --batch-size 512 --cache 2GiB "
        "--latency 0.02 --bandwidth 500MB --step-seconds 0.4",
        help="what steps of a run will read, show and wait for",
        description="Tokens by source, repeats, reads, bytes, cache hits and stalls of steps that "
        "have not run yet, from metadata alone. Reads are those that loaders would count.",
    )
    simulate.add_argument("run", help="a run file")
    add_overrides(simulate)
    simulate.add_argument("--steps", help="steps (default: all that remain)", **NUMBER)
    simulate.add_argument("--first", default=0, help="the first step", **NUMBER)
    simulate.add_argument("--ranks", type=whole, default=1, metavar="W", help="number of ranks")
    add_batch_size(simulate)
    simulate.add_argument(
        "--cache", type=bytes_of, metavar="SIZE", help="cache of each store: bytes, or 2GiB"
    )
    simulate.add_argument("--latency", type=real, metavar="S", help="seconds of a request")
    simulate.add_argument(
        "--bandwidth", type=bytes_of, metavar="SIZE", help="bytes a second of a rank's source"
    )
    simulate.add_argument("--step-seconds", type=real, metavar="S", help="seconds of a step")
    simulate.add_argument("--parallel", default=1, help="requests answered at a time", **NUMBER)
