"""`tokenloom audit`: judge a run, check a certificate, or judge the indices of any loader.

A run is given as a file with its description: what `run.describe()` returned, written as JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset
from tokenloom.cli.printing import write, write_whole
from tokenloom.config import from_config
from tokenloom.errors import ConfigError, InputError, binary_size
from tokenloom.inspect.audit.batch_audit import audit_batches
from tokenloom.inspect.audit.recheck import check_certificate
from tokenloom.inspect.audit.run_audit import audit_run
from tokenloom.store.files import LOCAL

__all__ = ["add_commands", "open_run", "read_indices"]

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}

MOST_BYTES = 64 << 20  # of a description or a certificate

MOST_INDICES = 1 << 30  # bytes of an index file


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `audit`."""
    audit = commands.add_parser(
        "audit",
        parents=[common],
        allow_abbrev=False,  # a later option must not change what an old command means
        help="judge every law of a run, and write a certificate",
        description="Look at the rows of a run and judge every law: exactly once, coverage, order, "
        "mixture, tokens, masks, labels. Exit code 1 if one is broken, or a certificate differs.",
        epilog="Examples: tokenloom audit run.json -o certificate.json; "
        "tokenloom audit run.json --check certificate.json; "
        "tokenloom audit --indices rank0.npy rank1.npy --rows 5000 --epochs 2.",
    )
    audit.set_defaults(run=_audit)
    audit.add_argument("description", nargs="?", metavar="RUN", help="JSON of run.describe()")
    look = audit.add_argument_group("what to look at")
    number: dict[str, Any] = {"type": int, "metavar": "N"}
    look.add_argument("--first", help="first row (default: 0)", **number)
    look.add_argument("--last", help="row after the last one (default: the end)", **number)
    look.add_argument("--plan-only", action="store_true", help="read no token, render no row")
    look.add_argument("--sample", help="only this many rows, a keyed sample", **number)
    look.add_argument("--seed", default=0, help="names the sample (default: 0)", **number)
    look.add_argument("-o", "--output", metavar="FILE", help="write the certificate there")
    check = audit.add_argument_group("certificates of others")
    check.add_argument("--check", metavar="FILE", help="compute a keyed hundredth of it again")
    check.add_argument("--full", action="store_true", help="with --check: compute all of it again")
    other = audit.add_argument_group("loaders of others")
    other.add_argument("--indices", nargs="+", metavar="FILE", help=".npy of indices, one per rank")
    other.add_argument("--rows", help="with --indices: rows of an epoch", **number)
    other.add_argument("--epochs", help="with --indices: how many epochs these are", **number)


def _audit(arguments: argparse.Namespace) -> int:
    _refuse_mixtures(arguments)
    if arguments.indices:
        return _judge_indices(arguments)
    run = open_run(arguments.description)
    progress = False if arguments.quiet else None
    if arguments.check:
        report = check_certificate(
            _read(arguments.check),
            run,
            full=arguments.full,
            seed=arguments.seed,
            progress=progress,
        )
        names = ("ok", "differences", "stretches", "of", "missed", "made_with")
        found = {name: getattr(report, name) for name in names}
        write(arguments, found, str(report).splitlines())
        return 0 if report.ok else 1
    made = audit_run(
        run,
        arguments.first,
        arguments.last,
        arrays=not arguments.plan_only,
        sample=arguments.sample,
        seed=arguments.seed,
        progress=progress,
    )
    if arguments.output:
        text = json.dumps(made.as_json(), indent=1) + "\n"
        write_whole(Path(arguments.output), text, "certificate")
    write(arguments, made.as_json(), made.lines())
    return 0 if made.ok else 1


def _refuse_mixtures(arguments: argparse.Namespace) -> None:
    """Refuse options that would be ignored silently."""
    given = {name for name, value in vars(arguments).items() if value not in (None, False)}
    own = {"first", "last", "plan_only", "sample", "output"}
    if arguments.indices:
        odd, what = given & {*own, "description", "check", "full"}, "--indices"
    elif arguments.check:
        odd, what = given & {*own, "rows", "epochs"}, "--check"
    else:
        odd, what = given & {"full", "rows", "epochs"}, "a run alone"
    if odd:
        raise ConfigError(f"{min(odd)}: found with {what}, where it has no effect. Leave it out.")
    if not arguments.indices and arguments.description is None:
        raise ConfigError("RUN: missing; give the JSON of run.describe(), or indices=[FILE].")


def _judge_indices(arguments: argparse.Namespace) -> int:
    streams = [read_indices(Path(path)) for path in arguments.indices]
    found = audit_batches(*streams, rows=arguments.rows, epochs=arguments.epochs)
    write(arguments, found.as_json(), found.lines())
    return 0 if found.ok else 1


def open_run(path: str) -> Dataset:
    """The run that a file describes.

    Args:
        path: a JSON file with what `Dataset.describe` returned.

    Raises:
        ConfigError: there is no such file, or it describes no run.
        InputError: it is not JSON.
    """
    raw = _read(path)
    try:
        plain = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: it is not JSON ({error}). Write run.describe() to it.") from None
    return from_config(plain)


def _read(path: str) -> bytes:
    raw = LOCAL.read(Path(path), MOST_BYTES)
    if raw is None:
        raise ConfigError(f"{path}: there is no such file.")
    return raw


def read_indices(path: Path) -> NDArray[np.int64]:
    """The indices of an .npy file: up to 1 GiB, and nothing in it is run.

    Raises:
        ConfigError: there is no such file.
        InputError: it is no array of integers.
    """
    raw = LOCAL.read(path, MOST_INDICES)
    if raw is None:
        raise ConfigError(f"{path}: there is no such file.")
    try:
        return _indices_in(raw)
    except (ValueError, EOFError, SyntaxError, OverflowError) as error:
        raise InputError(
            f"{path}: it is no .npy file of integers ({error}), {binary_size(len(raw))}. Write it "
            "with numpy.save(path, indices)."
        ) from None


def _indices_in(raw: bytes) -> NDArray[np.int64]:
    """The indices of the bytes of an .npy file, whose header is compared with its length."""
    stream = io.BytesIO(raw)
    version = npy.read_magic(stream)
    if version not in HEADERS:
        raise ValueError(f"version {version}, allowed: 1.0 and 2.0")
    shape, by_columns, dtype = HEADERS[version](stream)
    if dtype.kind not in "iu":
        raise ValueError(f"an array of {dtype}, allowed: integers")
    count, first = math.prod(shape), stream.tell()
    if count * dtype.itemsize != len(raw) - first:
        raise ValueError(f"{count:,} numbers of {dtype}, but {len(raw) - first:,} bytes of them")
    found = np.frombuffer(raw, dtype, count, first)
    ordered = found.reshape(shape[::-1]).T if by_columns else found
    flat: NDArray[np.int64] = ordered.reshape(-1).astype(np.int64)
    return flat
