"""A plugin of pytest: which tests run which lines, and how long they take.

Used as ``pytest -p mutation.cover`` with the file to write in MUTATION_COVER; each worker of xdist
writes a file of its own beside it, and `read` joins them. One idea: what was measured stays true
while a file is as it was, so each part holds the digests of the files it speaks of. Of tests that
have changed `read` says nothing (`stale` lists them, to be measured again); in a module that
has changed, a test may run any line if it once ran one.
"""

from __future__ import annotations

import _thread
import hashlib
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import coverage
import pytest

Lines = dict[str, dict[int, list[str]]]  # module → line → tests; line 0: any line

ANY = 0


class Cover:
    """Notes lines while a test is set up, called and torn down."""

    def __init__(self, out: str, root: Path) -> None:
        self.out = f"{out}.{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
        self.root = root
        self.seconds: dict[str, float] = {}
        self.files: set[str] = set()
        import tokenloom

        source = str(Path(tokenloom.__file__).parent)
        self.measured = coverage.Coverage(data_file=None, source=[source], config_file=False)
        self.measured.start()
        start = _thread.start_new_thread
        _thread.start_new_thread = lambda run, *given: start(_traced, (run, *given))

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self.files.add(file_of(item.nodeid))  # slow tests, too: nothing is to be measured of them

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        begin = _busy()
        self.measured.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.measured.switch_context("")
            self.seconds[item.nodeid] = _busy() - begin

    def pytest_sessionfinish(self) -> None:
        self.measured.stop()
        data = self.measured.get_data()
        numbers = {test: number for number, test in enumerate(self.seconds)}  # a name is long
        lines = {
            str(Path(file).relative_to(self.root)): {
                line: [numbers[test] for test in tests if test]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        digests = {one: digest(self.root / one) for one in {*lines, *self.files}}
        told = {"lines": lines, "digests": digests}
        told |= {"tests": list(self.seconds), "seconds": list(self.seconds.values())}
        Path(self.out).write_text(json.dumps(told))


def _traced(run: Callable[..., object], given: tuple[object, ...] = ()) -> None:
    """A thread that does not come from `threading` is not traced by itself."""
    sys.settrace(threading.gettrace())
    run(*given)


def _busy() -> float:
    """Seconds that this process and those it started have computed: other work does not count."""
    return sum(os.times()[:4])


def pytest_configure(config: pytest.Config) -> None:
    is_controller = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if "MUTATION_COVER" in os.environ and not is_controller:
        cover = Cover(os.environ["MUTATION_COVER"], config.rootpath)
        config.pluginmanager.register(cover, "mutation-cover")


def file_of(test: str) -> str:
    """The file of a test."""
    return test.split("::")[0]


def digest(path: Path) -> str:
    """Tells whether a file is still the same; empty if it is gone."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def read(out: Path, root: Path) -> tuple[Lines, dict[str, float]]:
    """What all workers wrote: the tests of each line of each module, and their seconds."""
    lines: Lines = defaultdict(lambda: defaultdict(list))
    seconds: dict[str, float] = {}
    for told in _parts(out):
        same = {file for file, known in told["digests"].items() if digest(root / file) == known}
        names = [test if file_of(test) in same else "" for test in told["tests"]]
        seconds |= {t: s for t, s in zip(names, told["seconds"], strict=True) if t}
        for module, tests in told["lines"].items():
            for line, numbers in tests.items():
                place = int(line) if module in same else ANY
                lines[module][place] += [names[number] for number in numbers if names[number]]
    return lines, seconds


APART = "injax"  # tests that need a process of their own


def stale(out: Path, root: Path, tests: Sequence[str]) -> list[str]:
    """The files of some tests that nothing was measured of as they are now."""
    known = {(f, d) for told in _parts(out) for f, d in told["digests"].items()}
    files = sorted(
        str(file.relative_to(root))
        for one in tests
        for file in ([root / one] if one.endswith(".py") else (root / one).rglob("test_*.py"))
        if file.parent.name != APART
    )
    return [file for file in files if (file, digest(root / file)) not in known]


def _parts(out: Path) -> Iterable[dict[str, Any]]:
    return (json.loads(part.read_text()) for part in sorted(out.parent.glob(f"{out.name}.*")))
