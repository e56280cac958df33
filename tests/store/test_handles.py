"""Locks after a fork, values computed once, memory of one process; copies of what owns them."""

import copy
import gc
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.loader.prefetch import Prefetcher
from tokenloom.store.byte_source import LocalSource
from tokenloom.store.cache import BlockCache, process_cache
from tokenloom.store.handles import Single, lazy
from tokenloom.store.slabs import SlabPool
from tokenloom.testing import FaultSource

HOWS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),
}


def run_python(code, *arguments, timeout=600):
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


# -- forks ---------------------------------------------------------------------------------


FORKED = """
import os, threading
import numpy as np
from tokenloom.store.cache import BlockCache
from tokenloom.store.handles import lock_of

def in_child(work):
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:
            import traceback; traceback.print_exc(); os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_lock_is_new_in_the_child_and_its_owner_is_told_whether_it_was_held():
    code = """
class Owner:
    def __init__(self):
        self._lock, self.told = lock_of(self), []
    def _forked(self, torn):
        self.told.append(torn)
free, held, before = Owner(), Owner(), Owner()
held._lock.acquire()
del before
def look():
    assert (free.told, held.told) == ([False], [True])
    assert held._lock.acquire(blocking=False) and free._lock.acquire(blocking=False)
    in_child(lambda: (held._lock.acquire(blocking=False), 1 / int(held.told == [True, True])))
in_child(look)
assert free.told == held.told == [] and held._lock.locked()
print("done")
"""
    assert run_python(FORKED + code) == ["done"]


def test_a_cache_that_was_being_changed_starts_empty_in_the_child_and_loads_are_not_waited_for():
    """A thread stands still in the middle of an eviction, another in the middle of a load."""
    code = """
cache = BlockCache(30)
for key in "abc":
    cache.get(key, lambda: np.zeros(10, np.uint8))
inside, go_on = threading.Event(), threading.Event()

class Stops(dict):
    def __delitem__(self, key):
        inside.set(); go_on.wait(); super().__delitem__(key)
    def move_to_end(self, key): pass

cache._blocks = Stops(cache._blocks)
evicts = threading.Thread(target=lambda: cache.get("d", lambda: np.ones(10, np.uint8)), daemon=True)
evicts.start(); inside.wait()
other, loading = BlockCache(1 << 20), threading.Event()
def slow():
    loading.set(); go_on.wait(); return np.full(4, 9, np.uint8)
loads = threading.Thread(target=lambda: other.get("k", slow), daemon=True)
loads.start(); loading.wait()
other.get("x", lambda: np.full(4, 3, np.uint8))

def look():
    assert (cache.stats().bytes, cache.stats().blocks) == (0, 0)
    for key in "aeiouy":
        assert cache.get(key, lambda: np.full(10, 7, np.uint8))[0] == 7
        assert cache.stats().bytes == 10 * cache.stats().blocks <= 30
    assert other.get("k", lambda: np.full(4, 5, np.uint8))[0] == 5  # not the parent's load
    assert other.get("x", lambda: 1 / 0)[0] == 3  # its blocks were whole, so they are kept
in_child(look)
go_on.set(); evicts.join(); loads.join()
assert cache.stats().bytes == 30 and other.get("k", lambda: 1 / 0)[0] == 9
print("done")
"""
    assert run_python(FORKED + code) == ["done"]


def test_plans_that_were_being_changed_are_computed_again_in_the_child(tmp_path):
    code = """
import sys, tokenloom as tl
tl.build([{"text": "abcdefg" * (1 + i % 9)} for i in range(400)], sys.argv[1], tokenizer="bytes")
run = tl.open(sys.argv[1]).pack(64).shuffle()
wanted = run.batch(range(20)).tokens
packed, reader = run.sources["main"].layout, run.sources["main"].reader
kept = packed._kept
kept._lock.acquire(); kept._table.has[:] = True; kept._table._count[:] = 1
reader._lock.acquire(); reader.source._lock.acquire()
def look():
    assert (run.batch(range(20)).tokens == wanted).all()
    assert kept._table.pieces > 0
    assert run.counters().bytes == run.counters().useful_bytes  # counted from here on
in_child(look)
print("done")
"""
    assert run_python(FORKED + code, tmp_path / "s") == ["done"]


def test_parent_and_child_do_not_see_each_others_batches():
    """Idle memory of the pool is used by both after a fork."""
    code = """
from tokenloom.batch.cells import new_array
from tokenloom.store.byte_source import new_buffer
for make in (lambda: new_array((64, 4096), np.int32), lambda: new_buffer(1 << 20)):
    kept = make(); kept[:] = 1
    del_me = make(); del del_me
    to_parent, to_child = os.pipe(), os.pipe()
    child = os.fork()
    mine = make()
    if not child:
        mine[:], kept[:] = 7, 7
        os.write(to_parent[1], b"x"); os.read(to_child[0], 1)
        os._exit(0 if (mine == 7).all() and (kept == 7).all() else 1)
    mine[:] = 9
    os.read(to_parent[0], 1)
    print(int((mine == 9).all()), int((kept == 1).all()))
    mine[:] = kept[:] = 5
    os.write(to_child[1], b"x")
    print(os.waitpid(child, 0)[1])
"""
    assert run_python(FORKED + code) == ["1", "1", "0"] * 2


# -- loads that are interrupted ------------------------------------------------------------


class Interrupt(BaseException):
    pass


def interrupted():
    raise Interrupt


@pytest.mark.parametrize("keys", [["k"], ["k", "l", "m"]])
def test_a_load_that_is_interrupted_keeps_nobody_waiting(keys):
    cache, loading, go_on = BlockCache(1000), threading.Event(), threading.Event()
    found, gone = [], []

    def cut_off(places):
        loading.set()
        go_on.wait(60)
        raise Interrupt

    def first():
        try:
            cache.get_many(keys, cut_off)
        except Interrupt:
            gone.append(True)

    def second():
        found.extend(cache.get_many(keys, lambda places: [np.full(3, 4)] * len(places)))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    loading.wait(60)
    threads[1].start()
    while not any(flight.waiters for flight in cache._flights.values()):
        pass
    go_on.set()
    for thread in threads:
        thread.join(900)
    assert gone == [True]
    assert [int(one[0]) for one in found] == [4] * len(keys)
    assert cache._flights == {}


SAFE = ("with self._lock", "except BaseException", "flight.error, flight.is_over")


def raising_at(number):
    """A tracer that raises at the n-th line of the cache that is run."""
    file, seen = sys.modules["tokenloom.store.cache"].__file__, [0]
    lines = ["", *Path(file).read_text().splitlines()]

    def trace(frame, event, _):
        if frame.f_code.co_filename != file:
            return None
        # the line of a `with` comes again when it ends; there, and at the start of a handler, no
        # signal is handled, so only a tracer could raise
        if event == "line" and not any(words in lines[frame.f_lineno] for words in SAFE):
            seen[0] += 1
            if seen[0] == number:
                raise Interrupt
        return trace

    return trace, seen


def interrupted_cache(number, load):
    """A cache after a request that was interrupted, and how many lines were run."""
    cache = BlockCache(50)
    for key in "abcd":
        cache.get(key, lambda: np.zeros(10, np.uint8))
    before, (trace, seen) = sys.gettrace(), raising_at(number)
    sys.settrace(trace)
    try:
        cache.get_many(["a", "x", "y", "z"], load)
    except (Interrupt, OSError):
        pass
    finally:
        sys.settrace(before)
    return cache, seen[0]


def test_an_interrupt_at_any_line_of_the_cache_leaves_it_consistent():
    """And no flight that is not over: whoever comes next would wait for it endlessly."""
    for number in range(1, 500):
        cache, seen = interrupted_cache(number, lambda p: [np.ones(10, np.uint8)] * len(p))
        assert all(flight.is_over for flight in cache._flights.values()), number
        assert cache.stats().bytes == sum(one.nbytes for one in cache._blocks.values()) <= 50
        assert cache.get("x", lambda: np.ones(10, np.uint8))[0] == 1
        if seen < number:
            break
    assert 20 < seen < number


def test_an_interrupt_while_a_failed_load_is_cleared_away_keeps_nobody_waiting():
    def fails(_):
        raise OSError("no")

    for number in range(1, 500):
        cache, seen = interrupted_cache(number, fails)
        assert all(flight.is_over for flight in cache._flights.values()), number
        assert cache.get("x", lambda: np.ones(10, np.uint8))[0] == 1
        if seen < number:
            break
    assert 20 < seen < number


# -- values computed once ------------------------------------------------------------------


def test_all_threads_get_the_value_that_was_ready_first():
    barrier = threading.Barrier(8)

    class Slow:
        @lazy
        def value(self):
            """What it is."""
            barrier.wait(60)  # all eight are inside at once: there is no lock
            return object()

    one, found = Slow(), []
    threads = [threading.Thread(target=lambda: found.append(one.value)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(900)
    assert len(found) == 8
    assert {id(value) for value in found} == {id(one.value)}
    assert Slow.value.__doc__ == "What it is."


# -- copies --------------------------------------------------------------------------------


class Thing(Single):
    pass


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("make", [Thing, SlabPool, lambda: SlabPool(region_bytes=1 << 20).region])
def test_what_there_is_one_of_is_not_copied(make, how):
    with pytest.raises(TypeError, match="never copied or pickled"):
        HOWS[how](make())


@pytest.mark.parametrize("how", HOWS)
def test_an_open_file_is_neither_copied_nor_closed(tmp_path, how):
    (tmp_path / "a").write_bytes(b"abc")
    source = LocalSource(tmp_path)
    source.read([("a", 0, 3)])
    (handle,) = source._handles.values()
    with pytest.raises(TypeError, match="_Handle: it owns"):
        HOWS[how](handle)
    gc.collect()
    assert bytes(source.read([("a", 0, 3)])[0]) == b"abc"
    again = HOWS[how](source)
    assert bytes(again.read([("a", 1, 2)])[0]) == b"bc"
    assert again._handles["a"].fd != handle.fd
    del again
    gc.collect()
    assert bytes(source.read([("a", 0, 3)])[0]) == b"abc"


@pytest.mark.parametrize("how", HOWS)
def test_a_copied_cache_is_empty_and_that_of_the_process_stays_one(how):
    cache = BlockCache(1000)
    cache.get("a", lambda: np.zeros(3))
    again = HOWS[how](cache)
    assert (again.capacity, again.stats().blocks, cache.stats().blocks) == (1000, 0, 1)
    assert HOWS[how](process_cache()) is process_cache()


@pytest.mark.parametrize("how", HOWS)
def test_a_store_with_a_source_of_its_own_is_copied_with_it(tmp_path, how):
    tl.build([{"text": "abcdef"}], tmp_path / "s", tokenizer="bytes")
    source = FaultSource(LocalSource(tmp_path / "s"), latency=0.25, only="nothing")
    store = tl.open(tmp_path / "s", source=source, verify="always")
    again = HOWS[how](store)
    assert isinstance(again.reader.source, FaultSource)
    assert again.reader.source.latency == 0.25
    assert again.tokens(0, 3).tolist() == [97, 98, 99]


def test_metadata_of_several_threads_is_that_of_their_documents(tmp_path):
    """Two groups of rows were once mixed up: the rows of one under the number of the other."""
    from tokenloom.store.metadata import GROUP

    count = 2 * GROUP + 5
    rows = [{"text": "a", "id": str(i)} for i in range(count)]
    store = tl.build(rows, tmp_path / "s", tokenizer="bytes", id_key="id", progress=False)
    wrong, switch = [], sys.getswitchinterval()

    def read(offset):
        for turn in range(60):
            document = (offset + turn * GROUP) % count
            if store.metadata(document)["id"] != str(document):
                wrong.append(document)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=read, args=(7 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert wrong == []


# -- the end of a process ------------------------------------------------------------------


ENDING = """
import _thread, atexit, sys, time
busy = {}
atexit.register(lambda: print(*[f"{name}:{one()}" for name, one in busy.items()]))  # runs last
import tokenloom.store.handles as handles
from tokenloom.loader.prefetch import Prefetcher
from tokenloom.store.cache import Fetchers

if sys.argv[1] == "not told":
    atexit.unregister(handles._end_threads)

def slow(first=1, *_):
    time.sleep(float(sys.argv[2]) if first else 0)
    return [1]

ahead = Prefetcher(slow, 8)
ahead.take(0)  # the next group is under way
fetchers = Fetchers(2)
fetchers.put([slow] * 50)
while fetchers.waiting > 48:
    time.sleep(0.001)
busy |= {"prefetcher": lambda: ahead._busy, "fetchers": lambda: fetchers._busy}
"""


def test_threads_end_before_the_interpreter_does():
    """A thread that is unwound by force inside compiled code aborts a process that is done."""
    assert run_python(ENDING, "told", 0.3) == ["prefetcher:False", "fetchers:False"]


def test_threads_that_nobody_told_are_at_work_when_the_interpreter_ends():
    """The control: without the call at exit they are."""
    assert run_python(ENDING, "not told", 0.3) == ["prefetcher:True", "fetchers:True"]


def test_a_thread_that_hangs_does_not_keep_a_process_from_ending():
    code = ENDING + "\nhandles.LEAVE_SECONDS = 0.1\n"
    assert run_python(code, "told", 1e6) == ["prefetcher:True", "fetchers:True"]


def test_what_was_told_to_leave_still_answers_without_a_thread():
    ahead = Prefetcher(lambda first, count: list(range(first, first + count)), 8)
    assert ahead.take(0) == 0
    ahead._leave()
    assert [ahead.take(n) for n in range(40)] == list(range(40))
