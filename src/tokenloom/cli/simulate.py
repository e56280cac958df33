"""`tokenloom simulate`: what steps of a run will show, read and wait for, before they run."""

from __future__ import annotations

import argparse
import re
from typing import Any

from tokenloom.cli.printing import write
from tokenloom.cli.run_files import batch_size_of, load_run
from tokenloom.inspect.simulate.simulation import simulate_run

__all__ = ["add_commands"]

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
UNITS |= {"KI": 1 << 10, "MI": 1 << 20, "GI": 1 << 30, "TI": 1 << 40}

EXAMPLE = """example:
  tokenloom simulate run.json --steps 100000 --ranks 8 --batch-size 512 \\
      --cache 2GiB --latency 0.02 --bandwidth 500MB --step-seconds 0.4"""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `simulate`."""
    simulate = commands.add_parser(
        "simulate",
        parents=[common],
        allow_abbrev=False,  # a later option must not change what an old command means
        help="what steps of a run will read, show and wait for",
        description="Tokens by source, repeats, reads, bytes, cache hits and stalls of steps that "
        "have not run yet, from metadata alone. Reads are those that loaders would count.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    simulate.set_defaults(run=_simulate)
    simulate.add_argument("run_file", metavar="RUN", help="JSON file with a described run")
    simulate.add_argument("--steps", type=int, metavar="N", help="steps (default: all that remain)")
    simulate.add_argument("--first", type=int, default=0, metavar="N", help="the first step")
    simulate.add_argument("--ranks", type=int, default=1, metavar="W", help="number of ranks")
    simulate.add_argument(
        "--batch-size",
        type=batch_size_of,
        required=True,
        metavar="B",
        help="rows of a step over all ranks, or a schedule: 0:64,6400:128",
    )
    simulate.add_argument(
        "--cache", type=bytes_of, metavar="SIZE", help="cache of each store: bytes, or 2GiB"
    )
    simulate.add_argument("--latency", type=float, metavar="S", help="seconds of a request")
    simulate.add_argument(
        "--bandwidth", type=bytes_of, metavar="SIZE", help="bytes a second of a rank's source"
    )
    simulate.add_argument("--step-seconds", type=float, metavar="S", help="seconds of a step")
    simulate.add_argument(
        "--parallel", type=int, default=1, metavar="N", help="requests answered at a time"
    )


def bytes_of(given: str) -> int:
    """A number of bytes, with a unit or without.

    >>> bytes_of("640MiB"), bytes_of("1.5GB"), bytes_of("1e6")
    (671088640, 1500000000, 1000000)
    """
    found = re.fullmatch(r"([\d.]+(?:[eE]\d+)?)\s*([KMGTkmgt]?[iI]?)[bB]?", given.strip())
    if found is None or found[2].upper() not in UNITS:
        raise ValueError(given)
    return int(float(found[1]) * UNITS[found[2].upper()])


def _simulate(arguments: argparse.Namespace) -> int:
    found = simulate_run(
        load_run(arguments.run_file),
        arguments.steps,
        batch_size=arguments.batch_size,
        ranks=arguments.ranks,
        first=arguments.first,
        cache_bytes=arguments.cache,
        latency=arguments.latency,
        bandwidth=arguments.bandwidth,
        step_seconds=arguments.step_seconds,
        parallel=arguments.parallel,
    )
    write(arguments, found.to_dict(), repr(found).splitlines())
    return 0
