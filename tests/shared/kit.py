"""What the fault tests share: a small corpus, trees of bytes, everything a store can be asked.

Every choice that looks random comes from `crashdisk.mix`, so a failure names the numbers
that replay it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crashdisk import mix
from quickfolder import quick_folder as quick_folder

import tokenloom as tl
from tokenloom.testing import FaultFiles

FAULT = Path(__file__).parents[1] / "fault"
# what a child process needs to import the helpers of the fault tests
CHILD_PATH = os.pathsep.join(
    [str(FAULT), str(FAULT.parent / "shared"), *filter(None, [os.environ.get("PYTHONPATH")])]
)
WORDS = ["a", "loom", "weaves", "tokens", "into", "batches", "über", "東京", "and\n\tback"]

# many blocks, several shards, chunks of 64 elements: every border of the format in a few KB
SMALL: dict[str, Any] = {
    "tokenizer": "bytes",
    "inner": 64,
    "block_bytes": 600,
    "shard_tokens": 500,
    "chunk_tokens": 128,
}


def texts(count: int, seed: int = 0, longest: int = 12) -> list[str]:
    """Documents of 0 to `longest` words."""
    return [
        " ".join(WORDS[mix(seed, i, j) % len(WORDS)] for j in range(mix(seed, i) % (longest + 1)))
        for i in range(count)
    ]


def write_corpus(folder: Path, count: int = 24, seed: int = 0, files: int = 1) -> list[str]:
    """Write jsonl files of `count` documents each; gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(files):
        lines = [
            json.dumps({"text": text, "n": i, "tag": f"t{i % 3}"})
            for i, text in enumerate(texts(count, seed + number))
        ]
        paths.append(folder / f"part-{number}.jsonl")
        paths[-1].write_text("\n".join(lines) + "\n")
    return [str(path) for path in paths]


# without syncing directories: for builds whose durability is not the question
QUICK = FaultFiles(sync=False, only=())


def tree(path: Path) -> dict[str, bytes | None]:
    """Every name below a directory with its bytes (None for a directory); the lock is left out."""
    found: dict[str, bytes | None] = {}
    for place in sorted(path.rglob("*")):
        name = str(place.relative_to(path))
        if name != ".lock":
            found[name] = None if place.is_dir() else place.read_bytes()
    return found


def assert_same_tree(found: Path, expected: dict[str, bytes | None], context: str = "") -> None:
    have = tree(found)
    if have != expected:
        missing = sorted(expected.keys() - have.keys())
        extra = sorted(have.keys() - expected.keys())
        changed = sorted(k for k in have.keys() & expected.keys() if have[k] != expected[k])
        first = "".join(f"\n{_difference(have[k], expected[k])}" for k in changed[:1])
        raise AssertionError(
            f"{context} {found}: missing {missing}, extra {extra}, changed {changed}{first}"
        )


def _difference(found: bytes | None, expected: bytes | None) -> str:
    """Where two files part."""
    if found is None or expected is None:
        return "one of them is a directory"
    place = next(
        (i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b),
        min(len(found), len(expected)),
    )
    near = slice(max(0, place - 40), place + 40)
    return f"byte {place}: {found[near]!r} ({len(found)}), not {expected[near]!r} ({len(expected)})"


def leftovers(path: Path) -> list[str]:
    """Temporary names in a store's directory."""
    return sorted(name for name in os.listdir(path) if name.startswith(".tmp-"))


def is_published(path: Path, digest: str, context: str = "") -> bool:
    """Whether a store is there; if it is, it must be whole and have this digest."""
    try:
        store = tl.open(path, cache_bytes=0)
    except tl.StoreNotFound:
        return False
    assert store.digest == digest, f"{context}: another store"
    report = store.check(progress=False)
    assert report.ok, f"{context}: {report.problems}"
    return True


# -- everything a store can be asked -------------------------------------------------------


@dataclass
class Reading:
    """Answers and errors of a store, by the name of the question."""

    values: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)

    def ask(self, name: str, question: Callable[[], Any]) -> Any:
        try:
            self.values[name] = question()
        except Exception as error:  # noqa: BLE001 - the test decides which are allowed
            self.errors[name] = error
        return self.values.get(name)

    def strangers(self) -> dict[str, str]:
        """Errors that tokenloom did not raise on purpose."""
        return {
            name: f"{type(error).__name__}: {error!s:.200}"
            for name, error in self.errors.items()
            if not isinstance(error, tl.TokenloomError)
        }


def read_everything(
    path: Path | str, *, check: bool = True, reading: Reading | None = None, **hints: Any
) -> Reading:
    """Ask a store everything (of a large one, its ends); with `check` also whether it is whole."""
    reading = reading or Reading()
    store = reading.ask("open", lambda: tl.open(path, **{"cache_bytes": 0, **hints}))
    if store is None:
        return reading
    count, tokens = store.num_documents, store.num_tokens
    some = list(range(min(count, 40))) + list(range(max(40, count - 3), count))
    if count < 1 << 20:
        reading.ask("lengths", lambda: store.lengths.tolist())
    columns = [None, *store.columns]
    for column in columns:
        suffix = f" {column}" if column else ""
        for i in some:
            reading.ask(
                f"document {i}{suffix}", lambda i=i, c=column: store.document(i, c).tolist()
            )
        reading.ask(
            f"documents{suffix}",
            lambda c=column: [part.tolist() for part in store.documents(some, c)],
        )
        for a, b in ((0, min(tokens, 5000)), (max(0, tokens - 70), tokens)):
            reading.ask(
                f"tokens {a} {b}{suffix}", lambda a=a, b=b, c=column: store.tokens(a, b, c).tolist()
            )
    for i in some:
        reading.ask(f"metadata {i}", lambda i=i: store.metadata(i))
    _ask_derived(reading, store, some)
    reading.ask("inputs", lambda: store.inputs)
    reading.ask("decode", lambda: store.tokenizer and store.tokenizer.decode([65]))
    reading.ask("strings", lambda: store.tokenizer and store.tokenizer.token_strings([65]))
    reading.ask("encode", lambda: store.tokenizer and store.tokenizer.encode("1").tolist())
    if check:
        reading.ask("verify", lambda: store.verify(progress=False).ok)
    reading.values.pop("open")
    return reading


def _ask_derived(reading: Reading, store: Any, some: list[int]) -> None:
    """What a store answers from what it keeps about its tokens and ids."""
    count, tokens = store.num_documents, store.num_tokens
    for wanted in ("doc-0", "doc-3", "nobody", 7):
        reading.ask(f"find {wanted}", lambda wanted=wanted: store.find(wanted).tolist())
    reading.ask("hashes", lambda: store.document_hashes(some))
    if count < 1 << 20:
        reading.ask("duplicates", lambda: [group.tolist() for group in store.duplicates()])
    if not tokens:
        return
    reading.ask(
        "rows", lambda: _windows(store).batch([0, max(0, tokens // 40 - 1)]).tokens.tolist()
    )
    if {"loss_mask", "loss_weights"} & set(store.columns):
        reading.ask("mixed by loss", lambda: _mixed_by_loss(store))


def _windows(store: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rows that end apart from io blocks
        return store.windows(40, tail="keep")


def _mixed_by_loss(store: Any) -> Any:
    """The first examples of a mix whose order follows from the loss columns."""
    rows = _windows(store)
    run = tl.mix({"a": rows, "b": rows.shuffle()}, cost="loss_tokens")
    names, items = run.picked(range(min(len(run), 99)))
    return names, items.tolist()


# -- children ------------------------------------------------------------------------------


@dataclass
class Child:
    """A forked process that runs one function of `inside`."""

    nursery: Nursery
    pid: int
    result_path: Path
    code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            self.code = self.nursery.say({"poll": self.pid})["code"]
        return self.code

    def wait(self, timeout: float = 300.0) -> int:
        """The exit code; negative for a signal. A child that hangs is killed and fails the test."""
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                self.kill()
                raise AssertionError(f"a child was still running after {timeout} s")
            time.sleep(0.002)
        assert self.code is not None
        return self.code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def outcome(self) -> dict[str, Any]:
        return json.loads(self.result_path.read_text())

    def value(self, timeout: float = 60.0) -> Any:
        """What the function gave; fails if it raised."""
        assert self.wait(timeout) == 0, self.outcome() if self.result_path.exists() else self.code
        return self.outcome()["value"]

    def group(self) -> list[int]:
        """Living processes of the child's session: itself and its workers."""
        members = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[2]) == self.pid and fields[0] != "Z":
                        members.append(int(folder.name))
        return members


class Nursery:
    """Starts children; see `nursery`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, str(FAULT / "nursery.py")],
            env={**os.environ, "PYTHONPATH": CHILD_PATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def say(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        return json.loads(self._process.stdout.readline())

    def start(self, function: str, **arguments: Any) -> Child:
        self._count += 1
        path = self._folder / f"result-{self._count}"
        request = {"run": function, "arguments": arguments, "result": str(path)}
        return Child(self, self.say(request)["pid"], path)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
