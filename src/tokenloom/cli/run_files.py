"""`tokenloom init` and `tokenloom check`: a run file to start from, and what is wrong with one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.cli.printing import write, write_whole
from tokenloom.config import check
from tokenloom.errors import ConfigError, InputError, StoreExists, plural
from tokenloom.evaluate.evaluation_sets import content_hash
from tokenloom.loader.loader import Loader
from tokenloom.runfiles import json_schema, starter
from tokenloom.runfiles.make import FileCheck
from tokenloom.runfiles.reading import lines_of


def init(arguments: argparse.Namespace) -> int:
    """Write a run file to start from: `tokenloom init`."""
    text = starter(arguments.folder, seq_len=arguments.seq_len, batch_size=arguments.batch_size)
    target = Path(arguments.out or Path(arguments.folder, "run.yaml"))
    if target.exists():
        raise StoreExists(f"{target}: it is there already. Remove it, or name another with --out.")
    if target.parent.resolve() != Path(arguments.folder).resolve():
        raise InputError(f"{target}: paths in the file are relative to it. Put it into the folder.")
    write_whole(target, text, "run file")
    lines = [f"{target}: written. Next: tokenloom check {target}"]
    write(arguments, {"path": str(target), "text": text}, lines)
    return 0


def check_file(arguments: argparse.Namespace) -> int:
    """Print every problem of a run file, or its run: `tokenloom check`."""
    if arguments.schema:
        if arguments.file is not None or arguments.set:
            raise ConfigError(
                "schema: found with a file, but every run file has the same one. Leave one out."
            )
        print(json.dumps(json_schema(), indent=1, ensure_ascii=False))
        return 0
    if arguments.file is None:
        raise InputError("check: no file is given. Name one: tokenloom check run.yaml")
    try:
        found = check(arguments.file, arguments.set)
    except FileNotFoundError:
        raise InputError(
            f"{arguments.file}: no such file. `tokenloom init FOLDER` writes one."
        ) from None
    problems = lines_of(found.written, found.problems)
    write(arguments, _as_json(found, problems), _lines(found, problems))
    return 2 if problems else 0


def _as_json(found: FileCheck, problems: list[str]) -> dict[str, Any]:
    run = found.run
    file = run and run.file
    held = file.evaluate if file else {}
    return {
        "file": found.written.name,
        "problems": problems,
        "to_build": found.to_build,
        "fingerprint": run and run.fingerprint,
        "examples": run and run.run.n,
        "seq_len": run and run.seq_len,
        "dialect": file and file.dialect,
        "unused": list(file.unused) if file else [],
        "loader": dict(file.loader) if file else {},
        "evaluate": {name: one.run.n for name, one in held.items()},
        "evaluate_content": {name: content_hash(one) for name, one in held.items()},
    }


def _lines(found: FileCheck, problems: list[str]) -> Iterator[str]:
    name = found.written.name
    if problems:
        yield f"{name}: {plural(len(problems), 'problem')}"
        yield from (f"  {line}" for line in problems)
        return
    if found.run is None:
        yield f"{name}: no problem. To be built first, by tokenloom.load: "
        yield from (f"  {place}" for place in found.to_build)
        return
    run, file = found.run, found.run.file
    yield f"{name}: no problem; read as {file.dialect if file else 'a run'}"
    yield str(run)
    yield from _trained(run)
    for held, one in file.evaluate.items() if file else ():
        yield f"evaluate {held}: {str(one).partition(': ')[2]}"
        yield f"  content: {content_hash(one)}"
    yield from (f"note: {one}" for one in (file.unused if file else ()))


def _trained(run: Dataset) -> Iterator[str]:
    """The steps of the run, where the file says how large they are."""
    settings = dict(run.file.loader) if run.file else {}
    if "batch_size" not in settings:
        return
    told = ", ".join(f"{key}={value}" for key, value in settings.items())
    with Loader(run, rank=0, world_size=1, **{**settings, "prefetch": 0}) as loader:
        steps = "endless steps" if run.run.n is None else plural(len(loader), "step")
    yield f"loader: {told}: {steps}"
