"""Verdicts in a file: a run that was stopped goes on where it was.

One idea: a verdict is believed as long as nothing that it rests on has changed. A mutant that was
killed rests on its module and on the test that failed; one that survived rests on its module and on
all the tests it was given, so a new test for it is tried.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mutation.cover import digest, file_of

Told = dict[str, Any]  # name, verdict, tests that failed, seconds

ALIVE = ("survived", "not run by any test", "not applied")


class Kept:
    """What became of mutants, by what that rests on."""

    def __init__(self, path: Path | None, root: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        told = (json.loads(line) for line in lines)
        self.told: dict[str, Told] = {one["rests on"]: one for one in told}
        self._digest = functools.cache(lambda file: digest(root / file))  # of when the run began

    def of(self, name: str, work: Told) -> Told | None:
        """What became of the mutant, if that is known and nothing has changed since."""
        module = work["mutant"]["module"]
        dead = self.told.get(self._seal(name, module, ()))
        if dead and dead["by"] == self._digests(dead["failed"]):
            return dead
        return self.told.get(self._seal(name, module, work["tests"]))

    def add(self, work: Told, one: Told) -> None:
        """Keep what became of it."""
        tests = work["tests"] if one["verdict"] in ALIVE else ()
        seal = self._seal(one["name"], work["mutant"]["module"], tests)
        self.told[seal] = one | {"rests on": seal, "by": self._digests(one["failed"])}
        if self.path:
            with self.path.open("a") as out:
                out.write(json.dumps(self.told[seal]) + "\n")

    def _digests(self, tests: Sequence[str]) -> list[str]:
        return [self._digest(file) for file in sorted({file_of(test) for test in tests})]

    def _seal(self, name: str, module: str, tests: Sequence[str]) -> str:
        parts = [name, self._digest(module), *tests, *self._digests(tests)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
