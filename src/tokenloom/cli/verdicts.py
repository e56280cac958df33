"""Judge a run: `tokenloom audit` and `simulate`."""

from __future__ import annotations

import argparse
import io
import json
import math
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tokenloom.cli.printing import write, write_whole
from tokenloom.cli.runs import batch_size_of, certificate_bytes, open_run
from tokenloom.errors import ConfigError, InputError, binary_size
from tokenloom.inspect.audit.batch_audit import audit_batches
from tokenloom.inspect.audit.recheck import check_certificate
from tokenloom.inspect.audit.run_audit import audit_run
from tokenloom.inspect.simulate.simulation import simulate_run
from tokenloom.store.files import LOCAL

HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


MOST_INDICES = 1 << 30  # bytes of an index file


def audit(arguments: argparse.Namespace) -> int:
    """Judge a run, a certificate or indices: `tokenloom audit`."""
    _refuse_mixtures(arguments)
    if arguments.indices:
        return _judge_indices(arguments)
    run = open_run(arguments.description, arguments.set)
    progress = False if arguments.quiet else None
    if arguments.check:
        options = {"full": arguments.full, "seed": arguments.seed}
        raw = certificate_bytes(arguments.check)
        report = check_certificate(raw, run, **options, progress=progress)
        names = ("ok", "differences", "stretches", "of", "missed", "made_with")
        found = {name: getattr(report, name) for name in names}
        write(arguments, found, str(report).splitlines())
        return 0 if report.ok else 1
    made = audit_run(
        run,
        arguments.first,
        arguments.last,
        arrays="all" if arguments.all else not arguments.plan_only,
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
    given = {name for name, value in vars(arguments).items() if value not in (None, False, [])}
    own = {"first", "last", "plan_only", "all", "sample", "output"}
    if arguments.indices:
        odd, what = given & {*own, "description", "check", "full", "set"}, "--indices"
    elif arguments.check:
        odd, what = given & {*own, "rows", "epochs"}, "--check"
    else:
        odd, what = given & {"full", "rows", "epochs"}, "a run alone"
    if odd:
        raise ConfigError(f"{min(odd)}: found with {what}, where it has no effect. Leave it out.")
    if not arguments.indices and arguments.description is None:
        raise ConfigError("RUN: missing; give a run file, or indices=[FILE].")


def _judge_indices(arguments: argparse.Namespace) -> int:
    streams = [read_indices(Path(path)) for path in arguments.indices]
    found = audit_batches(*streams, rows=arguments.rows, epochs=arguments.epochs)
    write(arguments, found.as_json(), found.lines())
    return 0 if found.ok else 1


def read_indices(path: Path) -> NDArray[np.int64]:
    """The indices of an .npy file: up to 1 GiB, and nothing in it is run.

    Raises:
        ConfigError: there is no such file.
        InputError: it is no array of integers.
    """
    raw = LOCAL.read(path, MOST_INDICES)
    if raw is None:
        raise ConfigError(
            f"{path}: there is no such file. Write it with numpy.save(path, indices)."
        )
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


def simulate(arguments: argparse.Namespace) -> int:
    """Tell what steps will read, show and wait for: `tokenloom simulate`."""
    run = open_run(arguments.run, arguments.set)
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
