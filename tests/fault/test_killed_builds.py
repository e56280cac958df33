"""D1, D2: a build killed at any instant is run again to the same bytes; half a store is none."""

import itertools
import threading
import time

import pytest
from crashdisk import mix
from kit import QUICK, SMALL, assert_same_tree, is_published, leftovers, tree, write_corpus

import tokenloom as tl
from tokenloom.testing import FaultFiles


@pytest.fixture
def corpus(scratch):
    """A small corpus, and what an uninterrupted build makes of it."""
    inputs = write_corpus(scratch / "in")
    store = tl.build(inputs, scratch / "whole", files=QUICK, **SMALL)
    assert len(store.reader.manifest.shards) >= 2
    return inputs, tree(scratch / "whole"), store.digest


@pytest.fixture
def long_corpus(scratch):
    """The same, long enough to be killed in the middle."""
    inputs = write_corpus(scratch / "in", count=400)
    store = tl.build(inputs, scratch / "whole", files=QUICK, **SMALL)
    assert len(store.reader.manifest.shards) >= 20
    return inputs, tree(scratch / "whole"), store.digest


class Watcher(threading.Thread):
    """A reader that opens a store again and again, and remembers what it must not have seen."""

    def __init__(self, digest):
        super().__init__()
        self.digest, self.target, self.over = digest, None, False
        self.looks, self.found, self.problems = 0, 0, []
        self.start()

    def run(self):
        while not self.over:
            if self.target is not None:
                self.look(self.target)
            time.sleep(0.005)

    def look(self, target):
        self.looks += 1
        try:
            store = tl.open(target, cache_bytes=0)
            if store.digest != self.digest or not store.check(progress=False).ok:
                self.problems.append(f"{target}: a store that is not whole")
            self.found += 1
        except tl.StoreNotFound:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it should not be
            self.problems.append(repr(error))


def kill_until(kills, nursery, scratch, inputs, expected, digest, *, seed, options, files):
    """Kill builders at random instants until that many died; gives how many finished between."""
    watcher, died, rounds = Watcher(digest), 0, 0
    for name in ("first", "second"):  # the first may have to wait for the nursery itself
        begin = time.monotonic()
        nursery.start("build", inputs=inputs, out=str(scratch / name), options=options).value()
    longest = time.monotonic() - begin
    try:
        while died < kills:
            target = watcher.target = scratch / f"round-{rounds}"
            rounds += 1
            for attempt in itertools.count():
                child = nursery.start(
                    "build", inputs=inputs, out=str(target), options=options, files=files
                )
                # short delays as well as long ones: a build near its end has few shards to go
                time.sleep(longest * (mix(seed, rounds, attempt) % 1000) / 2000)
                child.kill()
                code = child.wait()
                assert code in (0, -9), child.outcome()
                deadline = time.monotonic() + 900
                while child.group():  # workers end with the process that started them
                    assert time.monotonic() < deadline, "workers outlived their builder"
                    time.sleep(0.005)
                died += code == -9
                if code == 0:
                    break
                if died >= kills:
                    child = nursery.start(
                        "build", inputs=inputs, out=str(target), options=options, files=files
                    )
                    assert child.value() == digest
                    break
            assert_same_tree(target, expected, f"seed {seed}, round {rounds}")
            assert leftovers(target) == []
    finally:
        watcher.over = True
        watcher.join()
    assert watcher.problems == []
    assert watcher.looks > 0
    return rounds


@pytest.mark.parametrize(("kills", "seed"), [(6, 1), pytest.param(200, 2, marks=pytest.mark.slow)])
def test_d1_a_builder_killed_at_random_instants_ends_in_the_same_bytes(
    kills, seed, nursery, scratch, long_corpus
):
    kill_until(kills, nursery, scratch, *long_corpus, seed=seed, options=SMALL, files="local")


@pytest.mark.parametrize(("kills", "seed"), [(2, 3), pytest.param(30, 4, marks=pytest.mark.slow)])
def test_d1_a_killed_builder_takes_its_workers_along(kills, seed, nursery, scratch, long_corpus):
    options = {**SMALL, "workers": 2}
    kill_until(kills, nursery, scratch, *long_corpus, seed=seed, options=options, files="local")


@pytest.mark.slow
def test_d1_on_a_file_system_without_locks_only_temporary_names_stay(nursery, scratch, long_corpus):
    inputs, expected, digest = long_corpus
    target = scratch / "s"
    for attempt in range(40):
        child = nursery.start(
            "build", inputs=inputs, out=str(target), options=SMALL, files="nolocks"
        )
        time.sleep((mix(5, attempt) % 1000) / 20000)
        child.kill()
        if child.wait() == 0:
            break
    else:
        nursery.start(
            "build", inputs=inputs, out=str(target), options=SMALL, files="nolocks"
        ).value()
    # nobody may sweep without a lock, so what the killed left is still there
    assert {k: v for k, v in tree(target).items() if not k.startswith(".tmp-")} == expected
    assert is_published(target, digest)


def stop_at(number, scratch, inputs, expected, digest):
    """Build until the N-th call and no further, then again; False if there is no N-th call."""
    target = scratch / f"stop-{number}"
    files = FaultFiles(QUICK, at=number, action="stop")
    try:
        tl.build(inputs, target, files=files, **SMALL)
    except OSError:
        assert files.happened
    if target.exists():
        is_published(target, digest, f"after call {number}, {files.calls[-1]}")
    tl.build(inputs, target, files=QUICK, **SMALL)
    assert_same_tree(target, expected, f"stopped at call {number}, {files.calls[-1]}")
    return files.happened


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_d2_a_build_that_stops_at_the_nth_call_is_run_again_to_the_same_bytes(
    step, scratch, corpus
):
    for number in itertools.count(1, step):
        if not stop_at(number, scratch, *corpus):
            break
    assert number > 80


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_d2_a_process_that_exits_at_the_nth_call_is_run_again_to_the_same_bytes(
    step, nursery, scratch, corpus
):
    inputs, expected, digest = corpus
    for number in itertools.count(1, step):
        target = scratch / f"exit-{number}"
        job = {"inputs": inputs, "out": str(target), "options": SMALL}
        code = nursery.start("build", **job, fault={"at": number, "action": "exit"}).wait()
        assert code in (137, 0), f"call {number}: {code}"
        if target.exists():
            is_published(target, digest, f"after call {number}")
        assert nursery.start("build", **job).value() == digest
        assert_same_tree(target, expected, f"exit at call {number}")
        if code == 0:
            break
    assert number > 80


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_d2_an_append_that_stops_at_the_nth_call_keeps_the_old_snapshot_and_can_go_on(
    step, scratch, corpus
):
    inputs, _, digest = corpus
    more = write_corpus(scratch / "more", count=15, seed=9)
    (scratch / "both").mkdir()
    tl.build(inputs, scratch / "both", files=QUICK, **SMALL)
    both = tl.build(more, scratch / "both", append=True, files=QUICK, **SMALL)
    expected = tree(scratch / "both")
    for number in itertools.count(1, step):
        target = scratch / f"append-{number}"
        tl.build(inputs, target, files=QUICK, **SMALL)
        files = FaultFiles(QUICK, at=number, action="stop")
        try:
            tl.build(more, target, append=True, files=files, **SMALL)
        except OSError:
            assert files.happened
        old = tl.open(target, snapshot=1, cache_bytes=0)
        assert old.digest == digest
        assert old.verify(progress=False).ok
        assert tl.open(target).digest in (digest, both.digest)
        tl.build(more, target, append=True, files=QUICK, **SMALL)
        assert_same_tree(target, expected, f"stopped at call {number}")
        if not files.happened:
            break
    assert number > 40
