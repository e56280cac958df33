"""Who encodes the blocks: this process alone, or worker processes too. The results are the same.

One idea: tasks go out in order, results come back in order, and only a few are under way, so
memory stays bounded and nothing depends on who finishes first. A worker speaks
`tokenloom.ingest.crew.wire` over its standard input and output; when one dies, its pipe ends and
the build stops at once with its exit code.

How many workers: a number that was asked for is obeyed, and the workers do all the encoding.
Otherwise this process starts to encode, measures what a byte costs it, and starts workers as soon
as they will pay for their own start (`best_processes`). It goes on encoding while they start and
beside them, so nobody waits for a start, and a build that ends sooner starts none.
"""

from __future__ import annotations

import logging
import queue
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tokenloom.errors import plural
from tokenloom.ingest.crew.wire import Message, Setup, pack_setup
from tokenloom.ingest.crew.worker import Worker, lease, resting, return_to_rest
from tokenloom.ingest.cuts import Block
from tokenloom.ingest.encode import EncodedBlock, Kitchen, encode_block
from tokenloom.tokenizer.spec import TokenizerSpec

log = logging.getLogger("tokenloom")

Task = tuple[int, Block]

# Assumed, not measured; the first of them only until a worker has reported its own start.
INTERPRETER_SECONDS: Final = 0.4  # CPU-s until a worker has its imports
RESTED_SECONDS: Final = 0.02  # CPU-s until a worker that rested is ready
COLD: Final = 0.5  # share of the cost of a first block that later ones have: words are remembered
PIPE: Final = 1.05  # what encoding costs in another process, its results sent through a pipe
GAIN: Final = 0.9  # share of the time alone that workers must stay below, as estimates err

# what workers of this process took until they were ready, in CPU-seconds
_measured: dict[tuple[str, TokenizerSpec | None], float] = {}


def best_processes(work: float, *, threads: float, start: float, most: int) -> int:
    """How many processes, this one included, end a piece of work first.

    Args:
        work: CPU-seconds of encoding that are left.
        threads: cores that this process keeps busy by itself, 1 or more.
        start: CPU-seconds until a worker is ready.
        most: no more than this.

    A worker is started only for four times its start in work. Alone, the work takes work / threads;
    with n processes, this one works alone until the others are ready, and then each does an n-th.

    >>> best_processes(10, threads=1, start=1, most=2)
    2
    >>> best_processes(1.5, threads=1, start=1, most=2)
    1
    >>> best_processes(10, threads=2, start=1, most=2)
    1
    >>> best_processes(10, threads=1, start=1, most=64)
    3
    """
    processes = min(most, 1 + int(work / (4 * start)))
    together = start + PIPE * max(0.0, work - start) / processes
    return processes if processes > 1 and together < GAIN * work / threads else 1


@dataclass(kw_only=True, slots=True)
class Effort:
    """What encoding in this process has cost so far, and what is left.

    Attributes:
        left: bytes of input, as stored, that are not encoded yet; None if that is unknown.
        blocks: blocks encoded here.
        cpu: their CPU-seconds, of all threads.
        wall: their seconds.
        per_byte: the least that a byte of any block cost, in CPU-seconds.
    """

    left: int | None
    blocks: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    per_byte: float = float("inf")

    def add(self, weight: int, cpu: float, wall: float) -> None:
        """One more block."""
        self.blocks += 1
        self.cpu += cpu
        self.wall += wall
        # the first block is slow: caches are cold
        self.per_byte = min(self.per_byte, cpu * (COLD if self.blocks == 1 else 1) / max(1, weight))

    def work(self) -> float:
        """CPU-seconds that are probably left: as many as were spent, if nobody knows the size."""
        return self.cpu if self.left is None else self.left * self.per_byte

    def threads(self) -> float:
        """Cores that were busy: a library may have threads of its own."""
        return max(1.0, self.cpu / self.wall) if self.wall else 1.0


class Crew:
    """Encodes in this process, in workers, or in both; `why` says why it is that many.

    Args:
        setup: what is done.
        kitchen: with what, in this process.
        workers: how many worker processes do all the work; 1 for this process alone; None to
            find out.
        most: how many processes may encode when nobody gave a number.
        left: bytes of input that are to be encoded; None if unknown.
        opened: CPU-seconds that the construction of the encoder took here.
        reason: why no other process can do the work, or None.
    """

    def __init__(
        self,
        setup: Setup,
        kitchen: Kitchen,
        workers: int | None,
        *,
        most: int,
        left: int | None,
        opened: float,
        reason: str | None = None,
    ) -> None:
        self._setup, self._kitchen, self._opened = setup, kitchen, opened
        self._most = 1 if workers is not None else most
        self._here = workers is None or workers == 1
        self._effort, self._most_work = Effort(left=left), -1.0
        self._shared = not setup.own_code()
        self._message: Message | None = None
        self._workers: list[Worker] = []
        self._threads: ThreadPoolExecutor | None = None
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._starts: list[Future[None]] = []
        given = f"workers={workers} was given" if workers is not None else "there was no block"
        self.why = reason or given
        if workers is not None and workers > 1:
            self._hire(workers)

    @property
    def processes(self) -> int:
        """How many processes encode now."""
        return len(self._workers) + self._here

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[Task, EncodedBlock]]:
        """Each numbered block with its documents, in the order of the blocks."""
        under_way: deque[tuple[Task, Future[EncodedBlock]]] = deque()
        try:
            for task in tasks:
                waiting = sum(not future.done() for _, future in under_way)
                if self._here and waiting >= 2 * self._ready():
                    future: Future[EncodedBlock] = Future()
                    future.set_result(self._encode_here(task))
                else:
                    assert self._threads is not None  # there are workers
                    future = self._threads.submit(self._encode, task)
                under_way.append((task, future))
                window = 2 * self.processes + 1
                while under_way and (len(under_way) >= window or under_way[0][1].done()):
                    done, first = under_way.popleft()
                    yield done, first.result()
            while under_way:
                done, first = under_way.popleft()
                yield done, first.result()
        finally:
            for _, future in under_way:
                future.cancel()

    def close(self, *, well: bool) -> None:
        """Let go of everything; after a build that went `well`, workers may rest."""
        if self._threads is None:
            return
        self._threads.shutdown(wait=False, cancel_futures=True)
        rested: list[Worker] = []
        while well and self._shared and not self._idle.empty():
            rested.append(self._idle.get())
        for worker in self._workers:
            if worker not in rested:
                worker.kill()
        self._threads.shutdown(wait=True)
        return_to_rest(rested)
        self._workers, self._threads = [], None

    def _ready(self) -> int:
        """How many workers are ready for tasks; raises if one could not start."""
        for start in self._starts:
            if start.done():
                start.result()
        return sum(start.done() for start in self._starts)

    def _hire(self, workers: int) -> None:
        self._message = pack_setup(self._setup)
        self._workers = lease(workers, shared=self._shared)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="tokenloom-build")
        if self._here:
            self._starts = [self._threads.submit(self._prepare, one) for one in self._workers]
        else:
            for worker in self._workers:
                self._idle.put(worker)

    def _prepare(self, worker: Worker) -> None:
        self._open(worker)
        self._idle.put(worker)

    def _open(self, worker: Worker) -> None:
        assert self._message is not None
        seconds = worker.prepare(self._message)
        if seconds is not None:
            _measured[self._setup.engine, self._setup.spec] = seconds

    def _encode(self, task: Task) -> EncodedBlock:
        worker = self._idle.get()
        try:
            self._open(worker)
            return worker.encode(*task)
        finally:
            self._idle.put(worker)

    def _encode_here(self, task: Task) -> EncodedBlock:
        number, block = task
        cpu, wall = time.process_time(), time.perf_counter()
        encoded = encode_block(self._setup.job, self._kitchen, self._setup.inputs, number, block)
        weight = sum(piece.weight for piece in block)
        effort = self._effort
        if effort.left is not None:
            effort.left -= weight
        if not self._workers and self._most > 1:
            effort.add(weight, time.process_time() - cpu, time.perf_counter() - wall)
            self._consider()
        return encoded

    def _consider(self) -> None:
        """Start workers if that pays now, and say why or why not."""
        effort, start = self._effort, self._start_seconds()
        work, threads = effort.work(), effort.threads()
        found = best_processes(work, threads=threads, start=start, most=self._most)
        if found == 1 and work <= self._most_work:
            return  # the message of when more was left still holds
        self._most_work = work
        self.why = (
            f"about {work:.1f} CPU-s of encoding were left after "
            f"{plural(effort.blocks, 'block')}, this process kept {threads:.1f} cores busy, and a "
            f"worker takes {start:.2f} CPU-s to start"
        )
        if found > 1:
            self._hire(found - 1)
            log.info("encoding in %s: %s", f"{self.processes} processes", self.why)

    def _start_seconds(self) -> float:
        """CPU-seconds until a worker is ready, by what is known."""
        if self._shared and resting() >= self._most - 1:
            return RESTED_SECONDS
        known = _measured.get((self._setup.engine, self._setup.spec))
        return INTERPRETER_SECONDS + self._opened if known is None else known
