"""`tokenloom blame`: the documents that the losses of a run point at."""

from __future__ import annotations

import argparse

from tokenloom.cli.printing import write
from tokenloom.cli.runs import batch_size_of, open_run
from tokenloom.inspect.suspects.blamed import blame as blamed

__all__ = ["blame"]


def blame(arguments: argparse.Namespace) -> int:
    """Find what losses point at: `tokenloom blame`."""
    run = open_run(arguments.run)
    found = blamed(
        run,
        arguments.losses,
        batch_size=batch_size_of(arguments, run),
        step_key=arguments.step_key,
        loss_key=arguments.loss_key,
        window=arguments.window,
        spike=arguments.spike,
        most=arguments.most,
        at=arguments.at,
    )
    write(arguments, found.to_dict(), repr(found).splitlines())
    return 0
