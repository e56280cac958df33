"""A plugin of pytest: for every mutant a fork of this process, and the tests that run its lines.

Used as ``pytest -p mutation.kill`` with a plan in MUTATION_PLAN (see `mutation.forks`). Tests are
collected once; a fork gets the mutant, runs its tests until one fails, and ends. Nothing of a
mutant remains: plans are remembered in a folder of its own, which is removed after it. Several
such processes share a plan: who makes the file of a piece of work does it.
"""

from __future__ import annotations

import contextlib
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

WAITING = 60  # seconds that a test may wait for something


class Kill:
    """Runs the plan instead of the tests."""

    def __init__(self, plan: Path, out: Path) -> None:
        told = json.loads(plan.read_text())
        self.root, self.out = Path(told["root"]), out
        self.work, self.claims = told["work"], plan.with_suffix("")
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        with self.out.open("a") as out:
            for number, one in enumerate(self.work):
                if not self._claimed(number):
                    continue
                mutant = Mutant(**one["mutant"]) if one["mutant"] else None
                pairs = zip(one["tests"], one["limits"], strict=True)
                chosen = [(items[name], limit) for name, limit in pairs if name in items]
                begin = time.monotonic()
                verdict, failed = self._tried(mutant, chosen)
                told = {"name": mutant and mutant.name, "verdict": verdict, "failed": failed}
                out.write(json.dumps(told | {"seconds": time.monotonic() - begin}) + "\n")
                out.flush()
        return True

    def _claimed(self, number: int) -> bool:
        try:
            Path(f"{self.claims}.{number}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _tried(
        self, mutant: Mutant | None, items: list[tuple[pytest.Item, float]]
    ) -> tuple[str, list[str]]:
        """What became of a fork with the mutant, and which tests failed in it, or ended it.

        "killed", "survived", "hung", "crashed", "not applied", or "not run by any test".
        """
        if not items:
            return "not run by any test", []
        folder = Path(tempfile.mkdtemp(prefix="tokenloom-mutant-"))
        pid = os.fork()
        if pid == 0:
            self._child(mutant, items, folder)
        try:
            verdict = _ending(pid, sum(WAITING + 3 * limit for _, limit in items))
            told = folder / ("running" if verdict in ("hung", "crashed") else "failed")
            return verdict, told.read_text().splitlines() if told.exists() else []
        finally:
            with contextlib.suppress(ProcessLookupError):  # what it started, and itself if it hangs
                os.killpg(pid, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)

    def _child(
        self, mutant: Mutant | None, items: list[tuple[pytest.Item, float]], folder: Path
    ) -> None:
        code = 3
        try:
            os.setsid()
            quiet = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            os.environ["TOKENLOOM_CACHE_DIR"] = str(folder / "plans")
            if not self._applied(mutant):
                os._exit(4)
            for (item, limit), (after, _) in zip(items, [*items[1:], (None, 0)], strict=True):
                signal.setitimer(signal.ITIMER_PROF, limit)  # ends a test that computes endlessly
                signal.alarm(WAITING + 2 * round(limit))  # or waits; a busy machine is slow, too
                (folder / "running").write_text(item.nodeid)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                if self.failed and mutant:
                    break
            (folder / "failed").write_text("\n".join(self.failed))
            code = 1 if self.failed else 0
        except BaseException:  # noqa: BLE001 - whatever a mutant does, it ends here
            shutil.copy(folder / "running", folder / "failed")
            code = 1
        finally:
            os._exit(code)

    def _applied(self, mutant: Mutant | None) -> bool:
        try:
            module = importlib.import_module(mutant.name_of_module) if mutant else None
            return mutant is None or module is None or apply(self.root, mutant, module) > 0
        except Exception:  # noqa: BLE001 - a mistake of ours must not look like a test that fails
            return False


def _ending(pid: int, limit: float) -> str:
    """How the fork ended, within `limit` seconds."""
    words = {0: "survived", 1: "killed", 4: "not applied"}
    words |= {-signal.SIGALRM: "hung", -signal.SIGPROF: "hung"}
    until = time.monotonic() + limit
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return words.get(os.waitstatus_to_exitcode(status), "crashed")
        time.sleep(0.01)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


def pytest_configure(config: pytest.Config) -> None:
    if "MUTATION_PLAN" in os.environ:
        sys.setrecursionlimit(3000)
        kill = Kill(Path(os.environ["MUTATION_PLAN"]), Path(os.environ["MUTATION_OUT"]))
        config.pluginmanager.register(kill, "mutation-kill")
