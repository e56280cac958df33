"""`tokenloom digest` and `tokenloom diff`: are two runs, or two stores, the same?"""

from __future__ import annotations

import argparse

from tokenloom.api.store import Store
from tokenloom.cli.printing import write
from tokenloom.cli.runs import open_run, open_target
from tokenloom.errors import ConfigError
from tokenloom.inspect.diff import diff as compared

__all__ = ["diff", "digest"]


def digest(arguments: argparse.Namespace) -> int:
    """Print an identity: `tokenloom digest`."""
    target = open_target(arguments.target)
    if isinstance(target, Store):
        for name in ("first", "last"):
            if getattr(arguments, name) is not None:
                raise ConfigError(f"{name}: it is for examples of a run; a store has none.")
        write(arguments, {"digest": target.digest}, [target.digest])
        return 0
    first, last = arguments.first or 0, arguments.last
    if last is None and target.run.n is None:
        raise ConfigError("last: the run is endless; say where to stop.")
    last = target.run.n if last is None else last
    assert last is not None  # of a finite run
    made = (target.plan_digest if arguments.plan else target.digest)(first, last)
    about = {"first": first, "last": last, "plan": arguments.plan, "digest": made}
    write(arguments, about, [made])
    return 0


def diff(arguments: argparse.Namespace) -> int:
    """Compare two runs: `tokenloom diff`."""
    found = compared(open_run(arguments.run), open_run(arguments.other))
    write(arguments, found.to_dict(), repr(found).splitlines())
    return 1 if found else 0
