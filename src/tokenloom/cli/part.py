"""`tokenloom build --part 3/64`, and what a command line says about a build.

A part is one of many processes, so this module imports only what encodes text: no store, run or
loader, which the whole command `tokenloom build` needs.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from tokenloom.errors import ConfigError, plural
from tokenloom.ingest.cluster.drive import build_part

NO_SETTINGS = {  # of the command, or with another name or form in `tokenloom.build`
    *("command", "work", "json", "debug", "quiet", "inputs", "out"),
    *("part", "finish", "executor", "column"),
}


def part(arguments: argparse.Namespace) -> int:
    """Do one part: `tokenloom build --part 3/64`."""
    settings = settings_of(arguments)
    if arguments.executor is not None:
        raise ConfigError("--executor, --part: found both, allowed: one of them.")
    if arguments.finish or "stretches" in settings:
        other = "--finish" if arguments.finish else "--stretches"
        raise ConfigError(f"--part, {other}: found both, allowed: one of them.")
    began = time.perf_counter()
    quiet = False if arguments.quiet else None
    done = build_part(arguments.inputs, arguments.out, arguments.part, progress=quiet, **settings)
    seconds = time.perf_counter() - began
    told = f"{arguments.out}: part {arguments.part}: "
    if done:
        documents, tokens = plural(done["documents"], "document"), plural(done["tokens"], "token")
        told += f"{documents}, {tokens} in {plural(done['shards'], 'shard')}, {seconds:.1f} s"
    else:
        told += "not needed, the store is already published"
    about = {"part": arguments.part, **done, "seconds": round(seconds, 3)}
    print(json.dumps(about, indent=1, ensure_ascii=False) if arguments.json else told)
    return 0


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a command line says about a build, with the names of `tokenloom.build`."""
    given = {name: one for name, one in vars(arguments).items() if one is not None}
    settings = {name: one for name, one in given.items() if name not in NO_SETTINGS}
    for name in {"bos", "eos", "pad"} & given.keys():
        settings[name] = _special(given[name])
    if arguments.column:
        settings["columns"] = dict(item.partition(":")[::2] for item in arguments.column)
    return settings | {"tokenizer": arguments.tokenizer}


def _special(text: str) -> int | str | None:
    """`none` is absent, digits are an id, anything else is a token."""
    if text.lower() == "none":
        return None
    return int(text) if text.isascii() and text.isdigit() else text
