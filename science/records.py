"""Results as JSON lines, each with the fingerprint of what it depends on.

One idea: a result is kept if, and only if, the same code would be asked for it again. The key of a
record is a hash of experiment, arm, seed, steps, the code that measures (judges, pictures,
comments and docstrings left out), the run file and the order version of tokenloom. What is there
is skipped, so a killed `make science` resumes; files are replaced as a whole, so they are never
half-written.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from science.plan import RUNS, Arm, Experiment
from tokenloom.errors import InputError
from tokenloom.store.files import replace_file
from tokenloom.version import ORDER_VERSION

__all__ = ["Shelf", "code_lines", "measuring_code", "record_key"]

HERE = Path(__file__).parent

APART = {"pictures", "verdicts"}  # modules that measure nothing

DRAWING = {*(f"science.{name}" for name in APART), "tokenloom.evaluate.periodic"}

# top-level names that measure nothing
REPORTING = frozenset({"EXPERIMENT", "judge", "picture", "__all__"})


def record_key(experiment: Experiment, arm: Arm, seed: int, steps: int) -> str:
    """The fingerprint of one result, 16 hex digits."""
    parts: list[Any] = [experiment.name, asdict(arm), seed, steps, ORDER_VERSION]
    parts += measuring_code(experiment.measure.__module__.rpartition(".")[2])
    run = RUNS / f"{experiment.name}.yaml"
    parts.append(_plain_yaml(run.read_text()) if run.exists() else "")
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def measuring_code(name: str) -> list[tuple[str, ...]]:
    """The code of a module of this folder and of all that it imports from here, by name."""
    sources: dict[str, str] = {}
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in sources and one not in APART:
            sources[one] = (HERE / f"{one}.py").read_text()
            waiting += re.findall(r"^from science\.(\w+) import", sources[one], re.MULTILINE)
    return [(one, *code_lines(sources[one], REPORTING)) for one in sorted(sources)]


@functools.lru_cache(maxsize=64)
def code_lines(source: str, leave_out: frozenset[str] = frozenset()) -> tuple[str, ...]:
    r"""The lines of a module that decide what it computes.

    Args:
        source: the module.
        leave_out: functions and names that do not count.

    >>> code_lines('"Words."\nimport math  # why\n\ndef f():\n    "Says."\n    return 1\n')
    ('import math', 'def f():', '    return 1')
    """
    tree = ast.parse(source)
    lines = source.splitlines()
    gone: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            gone.update(range(body[0].lineno, body[0].end_lineno + 1))
    for node in tree.body:
        if _names(node) & leave_out or _is_for_the_page(node):
            gone.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    kept = [line for number, line in enumerate(lines, 1) if number not in gone]
    bare = (line.partition("  # ")[0].rstrip() for line in kept)
    return tuple(line for line in bare if _says(line))


def _is_text(node: Any) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {one.id for one in targets if isinstance(one, ast.Name)}


def _is_for_the_page(node: ast.stmt) -> bool:
    """Whether a statement imports what draws or judges, which decides no figure."""
    return isinstance(node, ast.ImportFrom) and node.module in DRAWING


def _says(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _plain_yaml(text: str) -> list[str]:
    return [one for one in (line.partition("#")[0].rstrip() for line in text.splitlines()) if one]


class Shelf:
    """The records of a folder, one file for each experiment.

    Args:
        folder: where the files are; it need not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, experiment: Experiment) -> Path:
        """The file of an experiment."""
        return self.folder / f"{experiment.name}.json"

    def read(self, experiment: Experiment, *, quick: bool = False) -> list[dict[str, Any]]:
        """Records that the code of today would give, in order of arms and seeds."""
        known = {one["key"]: one for one in self._lines(experiment)}
        return [known[key] for key in self._keys(experiment, quick=quick) if key in known]

    def missing(
        self, experiment: Experiment, *, quick: bool = False
    ) -> Sequence[tuple[Arm, int, int]]:
        """(arm, seed, steps) of what must still be measured."""
        known = {one["key"] for one in self._lines(experiment)}
        keys = self._keys(experiment, quick=quick)
        return [one for key, one in keys.items() if key not in known]

    def add(
        self, experiment: Experiment, record: Mapping[str, Any], *, quick: bool = False
    ) -> None:
        """Keep one more record; those that the code would no longer give are dropped."""
        known = {one["key"]: one for one in self._lines(experiment)} | {record["key"]: record}
        keys = self._keys(experiment, quick=quick)
        lines = [json.dumps(known[key], sort_keys=True) + "\n" for key in keys if key in known]
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self.path(experiment), "".join(lines).encode())

    def _keys(self, experiment: Experiment, *, quick: bool) -> dict[str, tuple[Arm, int, int]]:
        trials = experiment.trials(quick=quick)
        return {record_key(experiment, *one): one for one in trials}

    def _lines(self, experiment: Experiment) -> list[dict[str, Any]]:
        path = self.path(experiment)
        if not path.exists():
            return []
        found = []
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            try:
                record = json.loads(line)
                record["key"], record["arm"], record["seed"], record["figures"]
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{path}, line {number}: not a record ({error!r}); allowed: one JSON object a "
                    "line with key, arm, seed and figures. Delete the line to measure it again"
                ) from None
            found.append(record)
        return found
