"""Pytest over this project in processes of their own, and what they tell while they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from mutation.cover import file_of
from mutation.kept import Told

ROOT = Path(__file__).resolve().parents[2]

EVERY = 20.0  # seconds from one word about the progress to the next


def say(text: str) -> None:
    """A word to those who wait."""
    print(text, file=sys.stderr, flush=True)


class Progress:
    """Says now and then how far the run is."""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what = total, what
        self.counts: Counter[str] = Counter()
        self.begin = self.last = time.monotonic()

    def add(self, verdict: str) -> None:
        """One more has this verdict."""
        self.counts[verdict] += 1
        done, now = self.counts.total(), time.monotonic()
        if now - self.last >= EVERY or done == self.total:
            self.last = now
            counts = ", ".join(f"{n} {word}" for word, n in self.counts.most_common())
            say(f"{self.what}: {done} of {self.total} in {now - self.begin:.0f} s: {counts}")


class Pytest:
    """Pytest over this project, running, its output kept."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
        paths = [str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.printed: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*command, *arguments],
            cwd=ROOT,
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(paths)},
            stdout=self.printed,
            stderr=subprocess.STDOUT,
        )

    def ended_well(self, what: str) -> None:
        """Wait for its end; the whole run ends unless it is a good one, or there were no tests."""
        code = self.process.wait()
        with self.printed:
            self.printed.seek(0)
            if code not in (0, 5):
                sys.exit(f"{what}: pytest ended with {code}:\n{self.printed.read()[-3000:]}")


def measured(tests: Sequence[str], out: Path, workers: int) -> None:
    """See which lines some tests run; all of them must pass.

    Each worker writes a part that speaks of all files. So the parts get their names when all of
    them are there: one of a run that was stopped would hide the tests of the others.
    """
    begin = last = time.monotonic()
    half = out.with_name(f"half-{out.name}")
    running = Pytest("-p", "mutation.cover", "-n", str(workers), *tests, MUTATION_COVER=str(half))
    while running.process.poll() is None:
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            say(f"to see which lines the tests run: {now - begin:.0f} s")
        time.sleep(0.2)
    running.ended_well("the tests without any mutant")
    for part in half.parent.glob(f"{half.name}.*"):
        part.rename(part.with_name(part.name.removeprefix("half-")))


def tried(work: list[Told], folder: Path, workers: int, seen: Callable[[Told], None]) -> list[Told]:
    """What became of each mutant; `seen` hears of it at once."""
    if not work:
        return []
    for old in folder.glob("plan*"):
        old.unlink()
    plan = folder / "plan.json"
    files = sorted({file_of(test) for one in work for test in one["tests"]})
    plan.write_text(json.dumps({"root": str(ROOT), "work": work}))
    paths = [folder / f"out.{number}" for number in range(min(workers, len(work)))]
    outs = [path.open("w+") for path in paths]
    running = [
        Pytest("-p", "mutation.kill", *files, MUTATION_PLAN=str(plan), MUTATION_OUT=str(path))
        for path in paths
    ]
    told: list[Told] = []
    ended = False
    while not ended:
        ended = all(one.process.poll() is not None for one in running)
        for one in (line for out in outs for line in _lines(out)):
            told.append(one)
            seen(one)
        time.sleep(0.2)
    for out, process in zip(outs, running, strict=True):
        out.close()
        process.ended_well("the tests of the mutants")
    return told


def _lines(out: IO[str]) -> Iterator[Told]:
    """The whole lines of a file from its place on."""
    place = out.tell()
    while (line := out.readline()).endswith("\n"):
        place = out.tell()
        yield json.loads(line)
    out.seek(place)
