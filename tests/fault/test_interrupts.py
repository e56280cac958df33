"""A step is delivered and counted in one motion, whatever is raised inside next, and when."""

import _thread
import dis
import errno
import functools
import gc
import json
import logging
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from counted import CountedFiles
from toyruns import same, toy_run, toy_store

import tokenloom as tl
from tokenloom.testing import FaultSource

FILES = {str(path) for path in (Path(tl.__file__).parent / "loader").glob("*.py")}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """37 rows of 8 tokens an epoch."""
    return toy_store(tmp_path_factory.mktemp("toy"))


# -- real signals --------------------------------------------------------------------------


SIGNALS = """
import itertools, json, random, signal, sys, tempfile
import tokenloom as tl

class Interrupt(BaseException):
    pass

swallowed, armed = [0], [False]

def ignored(report):  # a signal that is handled inside a finaliser is swallowed by Python
    swallowed[0] += report.exc_type is Interrupt
    if report.exc_type is not Interrupt:
        sys.__unraisablehook__(report)

def on_signal(*_):
    if armed[0]:
        armed[0] = False
        raise Interrupt

sys.unraisablehook = ignored
signal.signal(signal.SIGALRM, on_signal)
rows = [{"text": "abcdefgh" * 1000 + str(i)} for i in range(20)]
store = tl.build(rows, tempfile.mkdtemp() + "/s", tokenizer="bytes", progress=False)
runs = [
    store.windows(64).shuffle(),
    store.windows(64).block_shuffle(lanes=2),
    store.pack(64).shuffle(),
    tl.mix({"a": store.windows(64).shuffle(), "b": store.pack(64).block_shuffle()}),
]

def take(loader, box):
    # no signal is handled between the return of a loader's next and the first call below, so a
    # batch that was returned is in the box; with next() the caller could lose it
    for batch in loader:
        box.append(batch)
        armed[0] = False
        return

wanted_count, rng = int(sys.argv[1]), random.Random(int(sys.argv[2]))
settings = list(itertools.product(runs, (0, 1, 4, 16), ("rows", "blocks")))
interrupts = loaders = delivered = 0
for run, prefetch, fetch in itertools.cycle(settings):
    run = run.take(200)
    known = [batch.tokens.tobytes() for batch in tl.Loader(run, 4, prefetch=0)]
    share = interrupts + -(-wanted_count // len(settings))
    while interrupts < share:
        loader, box = tl.Loader(run, 4, prefetch=prefetch, fetch=fetch), []
        loaders += 1
        while len(box) < len(known):
            span = rng.choice([3e-5, 1e-4, 3e-4, 1e-3, 3e-3])
            try:
                armed[0] = True
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + span * rng.random())
                take(loader, box)
            except Interrupt:
                interrupts += 1
            armed[0] = False
            stats = loader.stats()
            books = loader.step, stats.steps, stats.examples // 4, loader.examples // 4
            assert books == (len(box),) * 4, (books, len(box), prefetch, fetch)
            if box:
                assert box[-1].tokens.tobytes() == known[len(box) - 1], (len(box), prefetch, fetch)
        delivered += len(box)
        assert next(loader, None) is None
        again = tl.Loader(run, 4)
        again.load_state_dict(loader.state_dict())
        assert next(again, None) is None
    if interrupts >= wanted_count:
        break
signal.setitimer(signal.ITIMER_REAL, 0)  # or the last one ends the process while it is leaving
print(json.dumps({"interrupts": interrupts, "loaders": loaders, "delivered": delivered}))
"""


@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="needs setitimer")
@pytest.mark.parametrize(
    ("interrupts", "seed"), [(4_000, 1), pytest.param(100_000, 2, marks=pytest.mark.slow)]
)
def test_signals_at_random_instants_lose_no_step_and_repeat_none(interrupts, seed):
    command = [sys.executable, "-W", "ignore", "-X", "faulthandler", "-c", SIGNALS]
    command += [str(interrupts), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["interrupts"] >= interrupts
    assert report["delivered"] == 50 * report["loaders"]


# -- an exception at every line ------------------------------------------------------------


class Interrupt(BaseException):
    pass


ERRORS = (Interrupt, MemoryError, KeyboardInterrupt, OSError)


def raising_at(number, error, unit):
    """A tracer that raises at the n-th line (or instruction) of the loader's modules."""
    seen = [0]

    def trace(frame, event, _):
        code = frame.f_code
        if code.co_filename not in FILES or code.co_name == "__del__":
            return None
        frame.f_trace_opcodes = unit == "opcode"
        if event != unit:
            return trace
        returns = dis.opname[code.co_code[frame.f_lasti]] == "RETURN_VALUE"
        if code is tl.Loader.__next__.__code__ and unit == "opcode" and returns:
            return trace  # counted and as good as returned: nothing can raise here but a tracer
        seen[0] += 1
        if seen[0] == number:
            raise error
        return trace

    return trace, seen


def broken_calls(*given, **settings):
    """As `_broken_calls`, in a thread of its own.

    A tracer that raises while a handler ends leaves its exception behind as the one that the thread
    handles, and with it every frame and array that it knows. Here it ends with the thread.
    """
    with ThreadPoolExecutor(1) as thread:
        thread.submit(_broken_calls, *given, **settings).result()


def _broken_calls(run, wanted, unit, step, every, **settings):
    """One call of next at a step, broken at each line in turn; the rest must be as ever."""
    number, raised = 1, 0
    while True:
        loader = tl.Loader(run, 4, **settings)
        for _ in range(step):
            next(loader)
        state = loader.state_dict()
        trace, seen = raising_at(number, ERRORS[number // every % len(ERRORS)], unit)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            batch = next(loader)
        except ERRORS:
            batch = None
        finally:
            sys.settrace(before)
        if batch is None:
            raised += 1
            assert loader.state_dict() == state, (unit, number)
            assert loader.stats().steps == step
        else:
            assert batch.tokens.tobytes() == wanted[step], (unit, number)
        assert loader.step == step + (batch is not None)
        rest = [one.tokens.tobytes() for one in iter(functools.partial(next, loader, None), None)]
        assert rest == wanted[loader.step - len(rest) : loader.step]
        assert loader.step == len(wanted)
        if seen[0] < number:
            assert raised > 5
            return
        number += every


@pytest.mark.parametrize("fetch", ["rows", "blocks"])
@pytest.mark.parametrize("prefetch", [0, 1, 4])
@pytest.mark.parametrize(
    ("unit", "every", "steps"),
    [
        ("line", 1, (0, 3, 8)),
        ("opcode", 7, (0, 3)),
        pytest.param("opcode", 1, (0, 1, 2, 3, 8), marks=pytest.mark.slow),
    ],
)
def test_an_exception_at_every_line_leaves_the_loader_as_it_was(
    store, unit, every, steps, prefetch, fetch
):
    run = toy_run(store, "lanes 2", epochs=1)
    wanted = [batch.tokens.tobytes() for batch in tl.Loader(run, 4, prefetch=0)]
    for step in steps:
        broken_calls(run, wanted, unit, step, every, prefetch=prefetch, fetch=fetch)


# -- threads that do not start, sources that fail ------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["not started", "started"])
@pytest.mark.parametrize("failing", [1, 2, 3, 5])
def test_a_thread_that_cannot_be_started_is_an_error_and_no_step_is_lost(
    store, monkeypatch, failing, after
):
    """An interrupt may also come when the thread is already running."""
    really, starts = _thread.start_new_thread, []

    def start(*given):
        starts.append(given)
        if len(starts) == failing:
            if after:
                really(*given)
            raise RuntimeError("can't start new thread")
        return really(*given)

    monkeypatch.setattr(_thread, "start_new_thread", start)
    # rows of a local store are read in place, without a thread
    store = tl.open(store.path, source=FaultSource(CountedFiles(store.path)))
    loader = tl.Loader(toy_run(store, epochs=None), 4, prefetch=4, fetch="rows", patience=0.5)
    found, errors = [], 0
    while len(found) < 40:
        try:
            found.append(int(next(loader).index[0]))
        except RuntimeError:
            errors += 1
            assert loader.step == len(found)
    assert found == list(range(0, 160, 4))
    assert errors == 1
    loader.close()


@pytest.mark.parametrize("prefetch", [0, 1, 4, 16])
@pytest.mark.parametrize("fetch", ["rows", "blocks"])
def test_a_source_that_fails_now_and_then_only_delays(tmp_path, prefetch, fetch):
    toy_store(tmp_path)
    known = [b.tokens.tobytes() for b in tl.Loader(toy_run(tl.open(tmp_path)), 4, prefetch=0)]
    for at in range(1, 12):
        source = FaultSource(CountedFiles(tmp_path), at=at, error=errno.EIO, only="input_ids/c")
        run = toy_run(tl.open(tmp_path, source=source, cache_bytes=1 << 10, verify="never"))
        loader = tl.Loader(run, 4, prefetch=prefetch, fetch=fetch)
        found, errors = [], 0
        while len(found) < len(known):
            try:
                found.append(next(loader).tokens.tobytes())
            except OSError:
                errors += 1
                assert loader.step == len(found)
        assert found == known
        assert errors <= 1
        loader.close()


def test_a_state_can_be_loaded_after_a_first_step_that_failed(tmp_path):
    toy_store(tmp_path)
    other = tl.Loader(toy_run(tl.open(tmp_path)), 6)
    next(other)
    for depth in (0, 4):
        source = FaultSource(CountedFiles(tmp_path), at=1, only="input_ids/c")
        run = toy_run(tl.open(tmp_path, source=source, cache_bytes=0, verify="never"))
        loader = tl.Loader(run, 4, prefetch=depth, fetch="rows")
        with pytest.raises(OSError, match="Input/output"):
            next(loader)
        loader.load_state_dict(other.state_dict())
        assert next(loader).index.tolist() == [6, 7, 8, 9]
        loader.close()


def test_what_fails_on_delivery_is_not_counted_and_comes_again(tmp_path):
    """As the look-up of documents, which was once done after a step had been counted."""
    toy_store(tmp_path)
    for at in range(1, 6):
        source = FaultSource(CountedFiles(tmp_path), at=at, only="offsets/c")
        run = toy_run(tl.open(tmp_path, source=source, cache_bytes=0), "stored")
        with tl.Loader(run, 4, fields=("tokens", "segment_ids")) as loader:
            found, errors = [], 0
            while len(found) < 10:
                try:
                    found.append(int(next(loader).index[0]))
                except OSError:
                    errors += 1
                assert loader.examples == 4 * len(found)
            assert found == list(range(0, 40, 4))
            assert errors <= 1


# -- several threads -----------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 1, 8])
def test_several_threads_on_one_loader_get_every_step_once(store, prefetch):
    run = toy_run(store, "block", epochs=8)
    loader, found, switch = tl.Loader(run, 4, prefetch=prefetch, fetch="rows"), [], None

    def work():
        some = iter(functools.partial(next, loader, None), None)
        found.extend((int(batch.index[0]), batch) for batch in some)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(switch)
    assert sorted(first for first, _ in found) == list(range(0, len(run) // 4 * 4, 4))
    assert all(same(batch, run.batch(batch.index)) for _, batch in found)


def test_a_loader_that_another_thread_closes_is_not_at_its_end(tmp_path):
    """A stopped producer was once taken for one that has ended: the loop just stopped."""
    toy_store(tmp_path)
    source = FaultSource(CountedFiles(tmp_path), latency=0.005, only="input_ids/c")
    run = toy_run(tl.open(tmp_path, source=source, cache_bytes=0, verify="never"), epochs=2)
    loader, done = tl.Loader(run, 4, prefetch=4, fetch="rows"), threading.Event()

    def close():
        while not done.is_set():
            loader.close()
            time.sleep(0.001)

    closer = threading.Thread(target=close)
    closer.start()
    found = [int(batch.index[0]) for batch in loader]
    done.set()
    closer.join()
    assert found == list(range(0, len(run) // 4 * 4, 4))


# -- no waiting for a thread ---------------------------------------------------------------


def test_dropping_or_leaving_a_loader_does_not_wait_for_its_read(tmp_path, monkeypatch):
    """A read that never ends: next is interrupted, and the loader is left, sought and collected."""
    toy_store(tmp_path)
    gate, inner = threading.Event(), CountedFiles(tmp_path)

    class Stuck:
        stuck, waiting, ended = False, 0, 0

        def size(self, name):
            return inner.size(name)

        def read(self, ranges):
            if self.stuck and threading.current_thread() is not threading.main_thread():
                self.waiting += 1
                gate.wait(900)
                self.ended += 1
            return inner.read(ranges)

    source = Stuck()
    run = toy_run(tl.open(tmp_path, source=source, cache_bytes=0, verify="never"), epochs=None)
    run.batch(np.arange(37))
    loader = tl.Loader(run, 4, prefetch=4, fetch="rows", patience=0.01)
    source.stuck = True

    cut = []

    def cut_off(_record):  # at the warning that no batch comes
        if source.waiting > len(cut):  # the thread has come to its read, however busy the machine
            cut.append(True)
            raise Interrupt

    monkeypatch.setattr(logging.getLogger("tokenloom"), "filters", [cut_off])
    with pytest.raises(Interrupt):
        next(loader)
    with pytest.raises(Interrupt):
        next(loader.seek(3))
    loader.close()
    assert loader.step == 3
    del loader
    gc.collect()
    assert (source.waiting, source.ended) == (2, 0)  # still reading, and nobody cares
    gate.set()
    deadline = time.monotonic() + 900
    while source.ended < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert source.ended == 2
