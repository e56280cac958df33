"""A worker process, from both ends of its pipe, and the workers that rest between two builds.

A worker is a fresh interpreter, started as ``python -c "…worker.main()"``. It never imports the
user's script, so a script needs no ``if __name__ == "__main__"``. It reads setups and tasks from
standard input, and ends when its input ends, which is also what happens when its parent dies.

When a build has ended well, its workers rest: the next build in this process takes them over, and
a setup with the same tokenizer and engine opens nothing again. A worker ends itself after
`REST_SECONDS` of rest. Workers that ran the user's own code never rest: that code may change.
A forked child does not know the workers of its parent.

Cost: the interpreter, its imports and the construction of the engine (`tokenizer.accelerate`);
0.7 CPU-s in all, once measured with fastokens, 32,000 tokens and no compiled bytecode.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import IO, Any, Final

from tokenloom.errors import WorkerError
from tokenloom.ingest.crew.wire import (
    Message,
    Setup,
    open_kitchen,
    pack_block,
    pack_encoded,
    pack_error,
    raise_told,
    receive,
    send,
    unpack_block,
    unpack_encoded,
    unpack_setup,
)
from tokenloom.ingest.cuts import Block
from tokenloom.ingest.encode import EncodedBlock, Kitchen, encode_block
from tokenloom.store.handles import Single, lock_of

REST_SECONDS: Final = 20.0


# -- inside the worker ---------------------------------------------------------------------
def main() -> None:
    """Serve until standard input ends, or nobody reads the results any more."""
    with contextlib.suppress(BrokenPipeError):
        _serve()


def _serve() -> None:
    tasks = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not talk into the pipe
    setup: Setup | None = None
    kitchen, known = Kitchen(), list[Any]()
    alarm: threading.Timer | None = None
    while (message := receive(tasks)) is not None:
        header, buffers = message
        if alarm is not None:
            alarm.cancel()
        if "rest" in header:
            alarm = threading.Timer(header["rest"], os._exit, [0])
            alarm.daemon = True
            alarm.start()
        elif "job" in header:
            try:
                setup = unpack_setup(header, buffers)
                key = _kitchen_key(header, buffers)
                if key != known:
                    kitchen, known = open_kitchen(setup), key
            except Exception as error:  # noqa: BLE001 - the parent raises it
                send(results, pack_error(error))
                return
            send(results, {"ready": time.process_time()})
        else:
            assert setup is not None  # a setup comes first
            _answer(results, setup, kitchen, header, buffers)


def _kitchen_key(header: dict[str, Any], buffers: list[Any]) -> list[Any]:
    """What decides the encoders and hooks of a setup."""
    names = ("spec", "engine", "parse_special", "filter", "transform")
    job = header["job"]
    return [
        *(header[name] for name in names),
        job["text_key"],
        job["chat"],
        job["sample_rate"],
        bytes(buffers[0]),
    ]


def _answer(
    results: IO[bytes], setup: Setup, kitchen: Kitchen, header: dict[str, Any], buffers: list[Any]
) -> None:
    try:
        block = unpack_block(header, buffers)
        encoded = encode_block(setup.job, kitchen, setup.inputs, header["number"], block)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        send(results, pack_error(error))
    else:
        send(results, *pack_encoded(encoded))


# -- the parent's end ----------------------------------------------------------------------
class Worker:
    """One worker process and its two pipes."""

    def __init__(self) -> None:
        self._process = _start()
        self._setup: Message | None = None
        self._rested = False

    def prepare(self, setup: Message) -> float | None:
        """Make it ready for a build; gives the CPU-seconds since its start if it is a new one."""
        if self._setup is setup:
            return None
        new = not self._rested
        answer = self._ask(setup)
        if answer is None and self._rested:  # it ended itself in this very moment
            self.kill()
            self._process = _start()
            answer = self._ask(setup)
        self._rested = False
        header, _ = self._checked(answer, "opened the tokenizer")
        self._setup = setup
        return float(header["ready"]) if new else None

    def encode(self, number: int, block: Block) -> EncodedBlock:
        """The documents of a block."""
        answer = self._ask(pack_block(number, block))
        return unpack_encoded(*self._checked(answer, f"encoded block {number}"))

    def rest(self) -> None:
        """Wait for another build, but not for long."""
        assert self._process.stdin is not None
        self._setup, self._rested = None, True
        send(self._process.stdin, {"rest": REST_SECONDS})

    def lives(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process; nothing of it is left."""
        self._process.kill()
        self._process.wait()
        self._close_pipes()

    def forget(self) -> None:
        """In a forked child: let go of the pipes of a process that belongs to the parent."""
        self._process.returncode = 0  # else it would be waited for
        self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _ask(self, message: Message) -> Message | None:
        """The answer to a message, or None if the process is gone."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # both are pipes
        assert stdout is not None
        try:
            send(stdin, *message)
            return receive(stdout)
        except (BrokenPipeError, ValueError):  # it died, or was closed
            return receive(stdout) if not stdout.closed else None

    def _checked(self, answer: Message | None, doing: str) -> Message:
        if answer is None:
            raise self._died(doing)
        raise_told(answer[0])
        return answer

    def _died(self, doing: str) -> WorkerError:
        code = self._process.wait(timeout=10)
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return WorkerError(
            f"build: worker process {self._process.pid} {how} while it {doing}. Nothing "
            "was published; run the same build again to go on after the last finished shard "
            "(with fewer workers, if memory ran out)."
        )


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        # what this process can import, a worker can; -P keeps the working directory out
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TOKENIZERS_PARALLELISM": "false",
        "RAYON_NUM_THREADS": "1",
    }


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from tokenloom.ingest.crew.worker import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
    )


# -- workers that rest ---------------------------------------------------------------------
class _Rest(Single):
    """Workers that rest, each with where it started."""

    def __init__(self) -> None:
        self._lock = lock_of(self)
        self.workers: list[tuple[Any, Worker]] = []

    def _forked(self, torn: bool) -> None:
        """In the child of a fork: they belong to the parent."""
        for _, worker in self.workers:
            worker.forget()
        self.workers = []


_rest = _Rest()


def _place() -> Any:
    """What a process inherits when it starts; a worker that began elsewhere is not taken over."""
    return sys.executable, os.getcwd(), _environment()


def resting() -> int:
    """How many workers could be taken over by a build that starts now."""
    here = _place()
    with _rest._lock:
        return sum(place == here and worker.lives() for place, worker in _rest.workers)


def lease(count: int, *, shared: bool) -> list[Worker]:
    """`count` workers: rested ones first if `shared`, then new ones."""
    taken: list[Worker] = []
    if shared:
        here = _place()
        with _rest._lock:
            for entry in list(_rest.workers):
                place, worker = entry
                if not worker.lives():
                    _rest.workers.remove(entry)
                    worker.kill()
                elif place == here and len(taken) < count:
                    _rest.workers.remove(entry)
                    taken.append(worker)
    return taken + [Worker() for _ in range(count - len(taken))]


def return_to_rest(workers: list[Worker]) -> None:
    """Keep workers that have nothing to do for the next build of this process."""
    here = _place()
    for worker in workers:
        try:
            worker.rest()
        except (BrokenPipeError, ValueError):
            worker.kill()
            continue
        with _rest._lock:
            _rest.workers.append((here, worker))


def close_resting() -> None:
    """End all workers that rest."""
    with _rest._lock:
        ended = [worker for _, worker in _rest.workers]
        _rest.workers.clear()
    for worker in ended:
        worker.kill()


atexit.register(close_resting)
