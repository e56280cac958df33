"""Builds in stretches: what parts and Ray add to one process, and what they gain on the wall.

Three tables. In the first, local is `tokenloom.build(..., stretches=n)` in one process, and parts
are `build_part` for each of n parts and `finish_build`, one after the other in that process, with
the tokenizer "bytes": it is the cheapest to open and the fastest to run, so what parts add is
largest beside it. The second is what a cluster without an engine runs: a process of `tokenloom
build --part` for each part and one of `--finish`, beside one process of `tokenloom build`, with a
trained BPE; each of them starts Python, imports, and opens the tokenizer, and the share of that is
told. In the third the stretches are tasks of a local Ray cluster that runs already, with one CPU
and with two.

CPU is that of all processes that this one started, and of theirs: it is read from /proc while they
live, since a daemon's children are nobody's afterwards. Ray's own daemons are in it. Of the second
table it is what the system counted for processes that have ended.

`--size huge` has 1 GB of text.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenloom as tl
from benchmarks.build import SIZES as TEXTS
from benchmarks.clock import (
    Case,
    Table,
    absent,
    against,
    amount,
    cost,
    interleave,
    typical,
    want,
)
from benchmarks.corpus import find_text, train_tokenizer, write_jsonl
from tokenloom import cluster

__all__ = ["SIZES", "run"]

MARK = "TOKENLOOM_BENCH"  # in the environment of all processes that are counted
SECOND = 0.2  # between two looks at them
FILES = 16  # of the corpus
QUIET = subprocess.DEVNULL
GOALS = {"parts": 1.05, "ray": 1.15, "gain": 1.5}


@dataclass(frozen=True, kw_only=True, slots=True)
class Amount:
    """Bytes of text, stretches, rounds, and how many processes share a build."""

    bytes: int
    stretches: int
    rounds: int
    processes: tuple[int, ...] = (2, 16)


SIZES = {
    "tiny": Amount(bytes=100_000, stretches=2, rounds=1, processes=(2,)),
    "small": Amount(bytes=30_000_000, stretches=4, rounds=3),
    "default": Amount(bytes=200_000_000, stretches=8, rounds=3),
    "full": Amount(bytes=240_000_000, stretches=8, rounds=5),
    "huge": Amount(bytes=1_000_000_000, stretches=16, rounds=3),
}


class Counted:
    """CPU-seconds of all processes with a mark in their environment, dead ones as last seen."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{MARK}={mark}".encode()
        self._known: dict[str, bool] = {}
        self._seen: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def seconds(self) -> float:
        """So far, this process included."""
        self._look()
        return sum(self._seen.values()) + time.process_time()

    def close(self) -> None:
        """Stop looking."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SECOND):
            self._look()

    def _look(self) -> None:
        tick, own = os.sysconf("SC_CLK_TCK"), str(os.getpid())
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if name not in self._known:
                    environment = Path("/proc", name, "environ").read_bytes()
                    self._known[name] = self._mark in environment and name != own
                if self._known[name]:
                    fields = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
                    self._seen[name] = (int(fields[11]) + int(fields[12])) / tick


@contextlib.contextmanager
def _marked() -> Iterator[Counted]:
    """Processes that start inside are counted, and leave nothing in the user's home."""
    home = Path(tempfile.mkdtemp(prefix="tlb-", dir="/tmp"))  # sockets need a short path
    own = {
        MARK: uuid.uuid4().hex,
        "HOME": str(home),
        "RAY_TMPDIR": str(home),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAYON_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own)
    counted = Counted(own[MARK])
    try:
        yield counted
    finally:
        counted.close()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        shutil.rmtree(home, ignore_errors=True)


class _Builds:
    """The same corpus, built in every way."""

    def __init__(self, folder: Path, how: Amount, tokenizer: Path) -> None:
        self.folder, self.how = folder, how
        engine = "fast" if importlib.util.find_spec("fastokens") else "auto"
        self.settings: dict[str, Any] = {"tokenizer": tokenizer, "id_key": "id", "engine": engine}
        self.digests: set[str] = set()

    def place(self) -> Path:
        """A new folder; what was made in the one before is removed."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        return self.folder / "out"

    def local(self, source: Path, **other: str) -> Case:
        """All stretches in this process."""
        settings = {**self.settings, **other}
        return self._case(
            lambda out: tl.build(
                source,
                out,
                stretches=self.how.stretches,
                workers=1,
                progress=False,
                **settings,
            )
        )

    def parts(self, source: Path, **other: str) -> Case:
        """One part after the other, and the finish."""
        settings = {**self.settings, **other}

        def make(out: Path) -> tl.Store:
            for part in range(1, self.how.stretches + 1):
                cluster.build_part(
                    source,
                    out,
                    f"{part}/{self.how.stretches}",
                    workers=1,
                    progress=False,
                    **settings,
                )
            return cluster.finish_build(source, out, **settings)

        return self._case(make)

    def processes(self, source: Path, count: int) -> Case:
        """A process for each of `count` parts, one after the other, and one that finishes."""

        def make(out: Path) -> tl.Store:
            for part in range(1, count + 1):
                self._command(source, out, "--workers", "1", "--part", f"{part}/{count}")
            self._command(source, out, "--finish")
            return tl.open(out)

        return self._case(make)

    def process(self, source: Path, count: int) -> Case:
        """One process that does all stretches."""

        def make(out: Path) -> tl.Store:
            self._command(source, out, "--workers", "1", "--stretches", str(count))
            return tl.open(out)

        return self._case(make)

    def start(self, source: Path) -> Case:
        """One process of `--part` whose part is as good as empty."""
        return Case(
            prepare=self.place,
            run=lambda out: self._command(source, out, "--workers", "1", "--part", "1/2"),
        )

    def _command(self, source: Path, out: Path, *more: str) -> None:
        own = ["-t", str(self.settings["tokenizer"]), "--engine", self.settings["engine"]]
        command = [sys.executable, "-m", "tokenloom", "build", str(source), "-o", str(out), *own]
        subprocess.run([*command, "--id-key", "id", "--quiet", *more], check=True, stdout=QUIET)

    def on_ray(self, source: Path, workers: int) -> Case:
        """Stretches as tasks, `workers` at once."""
        return self._case(
            lambda out: tl.build(
                source,
                out,
                stretches=self.how.stretches,
                executor="ray",
                workers=workers,
                progress=False,
                **self.settings,
            )
        )

    def _case(self, make: Callable[[Path], tl.Store]) -> Case:
        return Case(prepare=self.place, run=lambda out: self.digests.add(make(out).manifest_sha256))


def run(folder: Path, size: str, command: str) -> list[Table]:
    """The tables of parts, and that of Ray; one row that fails where it is not installed."""
    how, texts = SIZES[size], TEXTS[size]
    corpus = find_text(how.bytes, texts.roots)
    tokenizer, source, empty = (folder / name for name in ("t.json", "text", "empty.jsonl"))
    train_tokenizer(tokenizer, corpus.texts[-max(200, len(corpus.texts) // 10) :], texts.vocab_size)
    source.mkdir()
    megabytes = sum(
        write_jsonl(source / f"{number:02d}.jsonl", corpus.texts[number::FILES]) / 1e6
        for number in range(FILES)
    )
    write_jsonl(empty, ["almost nothing"])
    builds = _Builds(folder, how, tokenizer)
    with _marked() as counted:
        tables = [_parts_table(builds, source, empty, megabytes, command, counted)]
        tables.append(_processes_table(builds, source, empty, megabytes, command))
        return [*tables, _ray_table(builds, source, megabytes, command, counted)]


def _parts_table(
    builds: _Builds, source: Path, empty: Path, megabytes: float, command: str, counted: Counted
) -> Table:
    timing = interleave(
        {
            "local": builds.local(source, tokenizer="bytes", engine="auto"),
            "parts": builds.parts(source, tokenizer="bytes", engine="auto"),
            "opening": builds.local(empty),
        },
        builds.how.rounds,
        cpu=counted.seconds,
    )
    one = cost("one process, CPU", timing["local"], 1, "s")
    rows = [
        one,
        want(
            against(cost("parts and finish, CPU", timing["parts"], 1, "s"), one, "local"),
            "<=",
            GOALS["parts"],
            of_ratio=True,
        ),
        cost("one record with the tokenizer of the next table", timing["opening"], 1, "s"),
    ]
    title = f"cluster 1: {megabytes:.1f} MB in {builds.how.stretches} parts, in one process"
    return Table(title=title, command=command, rows=rows)


def _processes_table(
    builds: _Builds, source: Path, empty: Path, megabytes: float, command: str
) -> Table:
    """`tokenloom build --part` beside `tokenloom build`, with all that starting costs."""
    builds.digests.clear()
    cases = {"start": builds.start(empty)}
    for count in builds.how.processes:
        cases |= {f"local {count}": builds.process(source, count)}
        cases |= {f"parts {count}": builds.processes(source, count)}
    timing = interleave(cases, builds.how.rounds, warm_up=False)
    rows, start = [], cost("starting: --part of one record", timing["start"], 1, "s")
    for count in builds.how.processes:
        local, parts = timing[f"local {count}"], timing[f"parts {count}"]
        one = cost(f"one process, {count} stretches", local, 1, "s")
        shared = against(cost(f"{count} of --part and --finish", parts, 1, "s"), one, "local")
        # the finish and one process start as well, with more to import
        starts = (count + 1) * typical(start) / typical(shared)
        rows += [
            one,
            want(shared, "<=", GOALS["parts"], of_ratio=True),
            amount(f"  of it, starting {count + 1} processes", starts, "of its CPU"),
        ]
    same = "the same manifest" if len(builds.digests) == len(builds.how.processes) else "DIFFERENT"
    title = f"cluster 2: {megabytes:.1f} MB by processes of `tokenloom build --part`"
    notes = [f"Builds with the same number of stretches gave {same}."]
    return Table(title=title, command=command, rows=[start, *rows], notes=notes)


def _ray_table(
    builds: _Builds, source: Path, megabytes: float, command: str, counted: Counted
) -> Table:
    title = f"cluster 3: {megabytes:.1f} MB in {builds.how.stretches} stretches on a local Ray"
    try:
        import ray
    except ImportError as error:
        goals = f"at most {GOALS['ray']}x CPU, {round(1 / GOALS['gain'], 3)}x wall"
        row = absent("Ray, two at a time", f"cannot be imported ({error})", goals)
        return Table(title=title, command=command, rows=[row])

    builds.digests.clear()
    with tempfile.TemporaryDirectory(prefix="tlr-", dir="/tmp") as place:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=place)
        try:
            timing = interleave(
                {
                    "local": builds.local(source),
                    "ray 1": builds.on_ray(source, 1),
                    "ray 2": builds.on_ray(source, 2),
                },
                builds.how.rounds,
                cpu=counted.seconds,
            )
        finally:
            ray.shutdown()
    local = cost("one process, CPU", timing["local"], 1, "s")
    one = cost("Ray, one at a time, wall", timing["ray 1"].by_wall(), 1, "s")
    rows = [
        local,
        against(cost("Ray, one at a time, CPU", timing["ray 1"], 1, "s"), local, "local"),
        want(
            against(cost("Ray, two at a time, CPU", timing["ray 2"], 1, "s"), local, "local"),
            "<=",
            GOALS["ray"],
            of_ratio=True,
        ),
        one,
        want(
            against(
                cost("Ray, two at a time, wall", timing["ray 2"].by_wall(), 1, "s"), one, "one"
            ),
            "<=",
            round(1 / GOALS["gain"], 3),
            of_ratio=True,
        ),
    ]
    same = "the same manifest" if len(builds.digests) == 1 else "DIFFERENT manifests"
    return Table(title=title, command=command, rows=rows, notes=[f"All builds gave {same}."])
