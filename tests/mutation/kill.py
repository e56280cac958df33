"""A plugin of pytest: for every mutant a fork of this process, and the tests that run its lines.

Used as ``pytest -p mutation.kill`` with a plan in MUTATION_PLAN (see `mutation.__main__`). Tests
are collected once; a fork gets the mutant, runs its tests until one fails, and ends. Nothing
of a mutant remains: plans are remembered in a folder of its own, which is removed after it.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from mutation.mutants import Mutant, apply


class Kill:
    """Runs the plan instead of the tests."""

    def __init__(self, plan: Path) -> None:
        told = json.loads(plan.read_text())
        self.root, self.out = Path(told["root"]), Path(told["out"])
        self.work = told["work"]
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        with self.out.open("a") as out:
            for one in self.work:
                mutant = Mutant(**one["mutant"]) if one["mutant"] else None
                chosen = [items[name] for name in one["tests"] if name in items]
                begin = time.monotonic()
                verdict, failed = self._tried(mutant, chosen, one["limit"])
                told = {"name": mutant and mutant.name, "verdict": verdict, "failed": failed}
                out.write(json.dumps(told | {"seconds": time.monotonic() - begin}) + "\n")
                out.flush()
        return True

    def _tried(
        self, mutant: Mutant | None, items: list[pytest.Item], limit: float
    ) -> tuple[str, list[str]]:
        """What became of a fork with the mutant, and which tests failed in it.

        "killed", "survived", "hung", "crashed", "not applied", or "not run by any test".
        """
        if not items:
            return "not run by any test", []
        folder = Path(tempfile.mkdtemp(prefix="tokenloom-mutant-"))
        pid = os.fork()
        if pid == 0:
            self._child(mutant, items, folder)
        try:
            verdict = _ending(pid, limit)
            told = folder / "failed"
            return verdict, told.read_text().splitlines() if told.exists() else []
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _child(self, mutant: Mutant | None, items: list[pytest.Item], folder: Path) -> None:
        code = 3
        try:
            os.setsid()
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            os.environ["TOKENLOOM_CACHE_DIR"] = str(folder / "plans")
            if (
                mutant
                and apply(self.root, mutant, importlib.import_module(mutant.name_of_module)) == 0
            ):
                os._exit(4)
            for item, after in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if self.failed and mutant:
                    break
            (folder / "failed").write_text("\n".join(self.failed))
            code = 1 if self.failed else 0
        except BaseException:  # noqa: BLE001 - whatever a mutant does, it ends here
            code = 1
        os._exit(code)


def _ending(pid: int, limit: float) -> str:
    """How the fork ended, within `limit` seconds."""
    words = {0: "survived", 1: "killed", 4: "not applied"}
    until = time.monotonic() + limit
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return words.get(code, "crashed")
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


def pytest_configure(config: pytest.Config) -> None:
    if "MUTATION_PLAN" in os.environ:
        sys.setrecursionlimit(3000)
        config.pluginmanager.register(Kill(Path(os.environ["MUTATION_PLAN"])), "mutation-kill")
