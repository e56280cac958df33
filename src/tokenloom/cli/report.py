"""Write a page to look at: `tokenloom report`.

One idea: what is named decides what the page is about. A folder is a store, unless an evaluation
wrote it; a JSON file says what it is; anything else is a run file or a store of another project.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Any

from tokenloom.api.dataset import Dataset
from tokenloom.api.store import Store, open_store
from tokenloom.arguments import place
from tokenloom.cli.printing import OF_STORE, said, write
from tokenloom.cli.runs import (
    MOST_BYTES,
    RUN_FILES,
    certificate_bytes,
    only_looking,
    open_run,
    refuse_ignored,
    refuse_overrides,
    saved_state,
)
from tokenloom.errors import binary_size, plural
from tokenloom.inspect.audit.certificate import Certificate
from tokenloom.loader.state import check_state
from tokenloom.report.assembled import report_on
from tokenloom.report.evaluations.read_back import Evaluated, is_evaluation, read_evaluations
from tokenloom.report.report_file import Report
from tokenloom.store.files import LOCAL

LONG = 2.0  # seconds after which the command says what it is doing

OF_RUN = ("batch_size", "ranks", "latency", "bandwidth", "step_seconds", "cache")
BESIDE = ("state", "audit", "eval")


@only_looking()
def report(arguments: argparse.Namespace) -> int:
    """Write a report: `tokenloom report`."""
    tell = _teller(arguments)
    tell("opening")
    target = _opened(arguments)
    name = PurePath(arguments.target.rstrip("/")).name or arguments.target  # never where it is
    about = {"name": name, "command": _typed(arguments)}
    if isinstance(target, Dataset):
        refuse_ignored(arguments, "a run", dict.fromkeys(OF_STORE))
        made = report_on(target, **about, **_settings(arguments, target), tell=tell)
    else:
        refuse_overrides(arguments.set, _kind(target))
        own = () if isinstance(target, Store) else OF_STORE
        usual = dict.fromkeys((*OF_RUN, *BESIDE, *own)) | {"eval": []}
        refuse_ignored(arguments, _kind(target), usual)
        made = report_on(target, **about)
    tell("writing")
    size = made.save(arguments.output)
    found = {"path": arguments.output, "bytes": size, **made.to_dict()}
    write(arguments, found, _lines(arguments.output, size, made))
    return 0


def _lines(path: str, size: int, made: Report) -> Iterator[str]:
    yield f"{path}: {binary_size(size)}, {plural(len(made.cautions), 'warning')}"
    yield from (f"  warning: {one.words} {one.remedy}" for one in made.cautions)
    yield from (f"  {one.question} {one.sentence}" for one in made.answers)


def _opened(arguments: argparse.Namespace) -> Any:
    """What the target is: a run, a store, a certificate, or evaluations by name."""
    target = arguments.target
    if "://" in target:
        place("store", target)  # a URL with a credential is refused before anybody repeats it
        if PurePath(target).suffix in RUN_FILES:
            return open_run(target, arguments.set)
        return open_store(target, **said(arguments))
    path = Path(target)
    if path.is_dir():
        if is_evaluation(path):
            return read_evaluations(path)
        return open_store(target, **said(arguments))
    if path.suffix in (".npz", ".jsonl"):
        return read_evaluations(path)
    if path.suffix == ".json" and path.is_file():
        kind = _kind_of_json(path)
        if kind == "certificate":
            return Certificate.read(certificate_bytes(target))
        if kind == "evaluation":
            return read_evaluations(path)
    if path.suffix in RUN_FILES or not path.exists():
        return open_run(target, arguments.set)
    return open_store(target, **said(arguments))


def _kind_of_json(path: Path) -> str:
    """What a JSON file says it is; "run" for all that is neither an audit nor an evaluation."""
    try:
        found = json.loads(LOCAL.read(path, MOST_BYTES) or b"")
    except (ValueError, RecursionError):
        return "run"  # whoever reads run files says what is wrong with it
    if not isinstance(found, dict):
        return "run"
    if str(found.get("format", "")).startswith("tokenloom-audit/"):
        return "certificate"
    return "evaluation" if {"losses", "windows"} <= found.keys() else "run"


def _kind(target: Any) -> str:
    if isinstance(target, Store):
        return "a store"
    return "a certificate" if isinstance(target, Certificate) else "an evaluation"


def _settings(arguments: argparse.Namespace, run: Dataset) -> dict[str, Any]:
    """What was said about a run, beside its file."""
    names = ("batch_size", "ranks", "latency", "bandwidth", "step_seconds")
    found = {name: getattr(arguments, name) for name in names}
    found = {name: value for name, value in found.items() if value is not None}
    if arguments.cache is not None:
        found["cache_bytes"] = arguments.cache
    if arguments.state is not None:
        saved = saved_state(arguments.state)  # which must be of this run, as for a loader
        found["examples"] = check_state(saved, run.describe(), run.run.n)
    if arguments.audit is not None:
        found["certificate"] = Certificate.read(certificate_bytes(arguments.audit))
    evaluations: dict[str, Evaluated] = {}
    for path in arguments.eval:
        for name, one in read_evaluations(Path(path)).items():
            evaluations[f"{name} ({path})" if name in evaluations else name] = one
    return {**found, "evaluations": evaluations}


def _typed(arguments: argparse.Namespace) -> str:
    """The command, as it could be typed again."""
    words = ["tokenloom", "report", arguments.target]
    words += [word for one in arguments.set for word in ("--set", one)]
    for name in (*OF_RUN, *BESIDE, *OF_STORE):
        value = getattr(arguments, name)
        if value in (None, []):
            continue
        words.append(f"--{name.replace('_', '-')}")
        pairs = name == "batch_size" and isinstance(value, list)
        if pairs:
            words.append(",".join(f"{examples}:{rows}" for examples, rows in value))
        else:
            words += map(str, value) if isinstance(value, list) else [str(value)]
    return shlex.join([*words, "-o", arguments.output])


def _teller(arguments: argparse.Namespace) -> Callable[[str], None]:
    """Says on a terminal what a long report is at."""
    start, shown = time.monotonic(), sys.stderr.isatty() and not arguments.quiet

    def tell(what: str) -> None:
        if shown and time.monotonic() - start > LONG:
            print(f"tokenloom: {what}", file=sys.stderr)

    return tell
