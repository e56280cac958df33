"""Who encodes the blocks: this process, or worker processes. The results are the same.

One idea: tasks go out in order, results come back in order, and only a few are under way, so
memory stays bounded and nothing depends on who finishes first. A worker is a fresh interpreter
that speaks `tokenloom.ingest.wire` over its standard input and output; when one dies, its pipe
ends and the build stops at once with its exit code.
"""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from tokenloom import errors
from tokenloom.errors import WorkerError
from tokenloom.ingest.cuts import Block
from tokenloom.ingest.encode import EncodedBlock, Kitchen, encode_block
from tokenloom.ingest.wire import Setup, pack_block, pack_setup, receive, send, unpack_encoded

__all__ = ["Executor", "InProcess", "Processes"]

Task = tuple[int, Block]


class Executor(Protocol):
    """Encodes numbered blocks in order."""

    def run(self, tasks: Iterator[Task], *, slow: bool) -> Iterator[tuple[Task, EncodedBlock]]:
        """Each task with its result, in the order of the tasks."""

    def close(self) -> None:
        """Let go of everything; no process or thread is left over."""


class InProcess:
    """Encodes in this process, one block at a time."""

    def __init__(self, setup: Setup, kitchen: Kitchen) -> None:
        self._setup, self._kitchen = setup, kitchen

    def run(self, tasks: Iterator[Task], *, slow: bool) -> Iterator[tuple[Task, EncodedBlock]]:
        """See `Executor`."""
        for number, block in tasks:
            encoded = encode_block(
                self._setup.job, self._kitchen, self._setup.inputs, number, block, slow=slow
            )
            yield (number, block), encoded

    def close(self) -> None:
        """See `Executor`."""


class Processes:
    """Encodes in `workers` processes; at most ``2 * workers + 1`` blocks are under way."""

    def __init__(self, setup: Setup, workers: int) -> None:
        self._window = 2 * workers + 1
        first = pack_setup(setup)
        self._workers = [_Worker(first) for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="tokenloom-build")

    def run(self, tasks: Iterator[Task], *, slow: bool) -> Iterator[tuple[Task, EncodedBlock]]:
        """See `Executor`."""
        under_way: deque[tuple[Task, Future[EncodedBlock]]] = deque()
        try:
            for task in tasks:
                under_way.append((task, self._threads.submit(self._encode, task, slow)))
                if len(under_way) >= self._window:
                    done, future = under_way.popleft()
                    yield done, future.result()
            while under_way:
                done, future = under_way.popleft()
                yield done, future.result()
        finally:
            for _, future in under_way:
                future.cancel()

    def close(self) -> None:
        """See `Executor`."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.kill()
        self._threads.shutdown(wait=True)

    def _encode(self, task: Task, slow: bool) -> EncodedBlock:
        worker = self._idle.get()
        try:
            return worker.encode(task, slow)
        finally:
            self._idle.put(worker)


class _Worker:
    """One worker process and its two pipes."""

    def __init__(self, setup: tuple[dict[str, object], list[object]]) -> None:
        environment = {
            **os.environ,
            # what this process can import, a worker can; -P keeps the working directory out
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "TOKENIZERS_PARALLELISM": "false",
            "RAYON_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from tokenloom.ingest.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._setup: tuple[dict[str, object], list[object]] | None = setup

    def encode(self, task: Task, slow: bool) -> EncodedBlock:
        assert self._process.stdin is not None  # both are pipes
        assert self._process.stdout is not None
        number, block = task
        try:
            if self._setup is not None:
                send(self._process.stdin, *self._setup)
                self._setup = None
            send(self._process.stdin, *pack_block(number, block, slow=slow))
            answer = receive(self._process.stdout)
        except (BrokenPipeError, ValueError):  # it died, or was closed
            answer = receive(self._process.stdout) if not self._process.stdout.closed else None
        if answer is None:
            raise self._died(number)
        header, buffers = answer
        if "error" in header:
            raise getattr(errors, header["error"])(header["message"])
        return unpack_encoded(header, buffers)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _died(self, number: int) -> WorkerError:
        code = self._process.wait(timeout=10)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return WorkerError(
            f"worker process {self._process.pid} {how} while it encoded block {number}. Nothing "
            "was published; run the same build again to go on after the last finished shard "
            "(with fewer workers, if memory ran out)."
        )
