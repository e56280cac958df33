"""Are two runs the same, and up to where: `tokenloom digest`, `diff` and `edit`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store
from tokenloom.cli.printing import write
from tokenloom.cli.runs import open_run, open_target
from tokenloom.errors import ConfigError
from tokenloom.inspect.diff import diff as compared
from tokenloom.runfiles.written import save


def digest(arguments: argparse.Namespace) -> int:
    """Print an identity: `tokenloom digest`."""
    target = open_target(arguments.target, arguments.set)
    if isinstance(target, Store):
        for name in ("first", "last"):
            if getattr(arguments, name) is not None:
                raise ConfigError(
                    f"{name}: found with a store, which has no examples. Leave it out."
                )
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
    found = compared(open_run(arguments.run), open_run(arguments.other, arguments.set))
    write(arguments, found.to_dict(), repr(found).splitlines())
    return 1 if found else 0


PROVED = 1 << 20  # examples whose plans are compared, at most


def edit(arguments: argparse.Namespace) -> int:
    """Write an edited run: `tokenloom edit`."""
    run = open_run(arguments.run, arguments.set)
    changed = run.edit(
        at=arguments.at,
        weights=dict(_weight(one) for one in arguments.weights) or None,
        remove=tuple(arguments.remove),
        quarantine=tuple(_document(one) for one in arguments.quarantine),
    )
    proof = prove(run, changed, arguments.at)
    save(changed, arguments.out)
    write(arguments, {"out": arguments.out, **proof}, _proof_lines(arguments.out, proof))
    return 0


def prove(run: Dataset, changed: Dataset, at: int) -> dict[str, Any]:
    """The plan digests of both runs before the edit; of the last examples if there are many."""
    first = max(0, at - PROVED)
    before, after = (one.plan_digest(first, at) for one in (run, changed))
    if before != after:  # would be a bug of ours: nothing is written
        raise ConfigError(
            f"edit: examples {first:,} to {at:,} would change; this must not happen."
            " Nothing was written; report it with the run file and the command."
        )
    return {
        "at": at,
        "first": first,
        "plan_digest": before,
        "fingerprints": [run.fingerprint, changed.fingerprint],
    }


def _proof_lines(out: str, proof: dict[str, Any]) -> Iterator[str]:
    old, new = (one[:16] for one in proof["fingerprints"])
    which = "all" if not proof["first"] else f"the last {proof['at'] - proof['first']:,}"
    yield f"{out}: run {old} up to example {proof['at']:,}, run {new} from there on"
    yield f"plan digest of {which} examples before it, in both: {proof['plan_digest']}"
    yield "a state of the old run from before that example resumes in the new one"


def _weight(text: str) -> tuple[str, float]:
    """A name and its weight.

    >>> _weight("code=4")
    ('code', 4.0)
    """
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ConfigError(f"--weights: found {text!r}, allowed: NAME=NUMBER.") from None


def _document(text: str) -> tuple[str, int]:
    """A source and the number of a document.

    >>> _document("wiki:123")
    ('wiki', 123)
    """
    name, _, number = text.rpartition(":")
    if not number.isdigit():
        raise ConfigError(f"--quarantine: found {text!r}, allowed: SOURCE:DOCUMENT.")
    return name or "main", int(number)
