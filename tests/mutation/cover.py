"""A plugin of pytest: which tests run which lines, and how long they take.

Used as ``pytest -p mutation.cover`` with the file to write in MUTATION_COVER; each worker of xdist
writes a file of its own beside it, and `read` joins them.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import coverage
import pytest

Lines = dict[str, dict[int, list[str]]]  # module → line → tests


class Cover:
    """Notes lines while a test is set up, called and torn down."""

    def __init__(self, out: str) -> None:
        self.out = f"{out}.{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
        self.seconds: dict[str, float] = {}
        import tokenloom

        source = str(Path(tokenloom.__file__).parent)
        self.measured = coverage.Coverage(data_file=None, source=[source], config_file=False)
        self.measured.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        begin = time.perf_counter()
        self.measured.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self.measured.switch_context("")
            self.seconds[item.nodeid] = time.perf_counter() - begin

    def pytest_sessionfinish(self) -> None:
        self.measured.stop()
        data = self.measured.get_data()
        lines = {file: dict(data.contexts_by_lineno(file)) for file in data.measured_files()}
        Path(self.out).write_text(json.dumps({"lines": lines, "seconds": self.seconds}))


def pytest_configure(config: pytest.Config) -> None:
    is_controller = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if "MUTATION_COVER" in os.environ and not is_controller:
        config.pluginmanager.register(Cover(os.environ["MUTATION_COVER"]), "mutation-cover")


def read(out: Path, root: Path) -> tuple[Lines, dict[str, float]]:
    """What all workers wrote: the tests of each line of each module, and their seconds."""
    lines: Lines = defaultdict(lambda: defaultdict(list))
    seconds: dict[str, float] = {}
    for part in sorted(out.parent.glob(f"{out.name}.*")):
        told = json.loads(part.read_text())
        seconds |= told["seconds"]
        for file, tests in told["lines"].items():
            module = str(Path(file).relative_to(root))
            for line, names in tests.items():
                lines[module][int(line)] += [name for name in names if name]
    return lines, seconds
