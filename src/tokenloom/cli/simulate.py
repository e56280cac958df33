"""`tokenloom simulate`: what steps of a run will show, read and wait for, before they run."""

from __future__ import annotations

import argparse

from tokenloom.cli.printing import write
from tokenloom.cli.runs import batch_size_of, open_run
from tokenloom.inspect.simulate.simulation import simulate_run

__all__ = ["simulate"]


def simulate(arguments: argparse.Namespace) -> int:
    """Tell what steps will read, show and wait for: `tokenloom simulate`."""
    run = open_run(arguments.run)
    found = simulate_run(
        run,
        arguments.steps,
        batch_size=batch_size_of(arguments, run, needed=True),
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
