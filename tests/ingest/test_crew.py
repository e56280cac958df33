"""How many processes encode, whom a build takes over, and that no process is left over."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokenloom as tl
from tokenloom.ingest import pipeline
from tokenloom.ingest.crew import executors, worker
from tokenloom.ingest.crew.executors import PIPE, Crew, Effort, best_processes

SMALL = {"block_bytes": 600, "shard_tokens": 3000, "tokenizer": "bytes"}


@pytest.fixture(autouse=True)
def nobody_rests():
    worker.close_resting()
    yield
    worker.close_resting()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"text": "document {i} {"x" * 100}"}}\n' for i in range(200)))
    return path


@pytest.fixture
def started(monkeypatch):
    """The processes that were started, in order."""
    found = []
    start = worker._start

    def watched():
        found.append(start())
        return found[-1]

    monkeypatch.setattr(worker, "_start", watched)
    return found


def content(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(Path(root).rglob("*"))
        if path.is_file()
    }


def children():
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            found.update(map(int, (task / "children").read_text().split()))
    return found


# -- break-even ----------------------------------------------------------------------------


@given(st.floats(0, 1e6), st.floats(1, 64), st.floats(0.001, 100), st.integers(1, 256))
def test_workers_are_started_only_if_that_is_sooner_and_each_has_four_times_its_start_to_do(
    work, threads, start, most
):
    found = best_processes(work, threads=threads, start=start, most=most)
    assert 1 <= found <= most
    if found > 1:
        assert start + PIPE * (work - start) / found < work / threads
        assert (found - 1) * 4 * start <= work


@given(st.floats(0, 1e4), st.floats(0, 1e4), st.floats(0.001, 100), st.integers(1, 64))
def test_more_work_never_means_fewer_processes(work, more, start, most):
    few = best_processes(work, threads=1, start=start, most=most)
    assert best_processes(work + more, threads=1, start=start, most=most) >= few


def test_a_second_process_pays_from_a_work_of_four_times_the_start_on():
    assert best_processes(3.99, threads=1, start=1, most=2) == 1
    assert best_processes(4.01, threads=1, start=1, most=2) == 2
    assert best_processes(1000, threads=2, start=1, most=2) == 1  # its threads do it all


def test_what_is_left_is_estimated_from_the_cheapest_block_and_halved_after_a_cold_one():
    effort = Effort(left=1000)
    effort.add(100, cpu=1.0, wall=1.0)
    assert effort.work() == pytest.approx(1000 * 0.5 / 100)
    effort.add(100, cpu=0.3, wall=0.2)
    effort.add(100, cpu=0.7, wall=0.1)
    assert effort.work() == pytest.approx(1000 * 0.3 / 100)
    assert effort.threads() == pytest.approx(2.0 / 1.3)


def test_if_nobody_knows_the_size_as_much_is_expected_as_was_done():
    effort = Effort(left=None)
    for _ in range(3):
        effort.add(0, cpu=2.0, wall=4.0)
    assert (effort.work(), effort.threads()) == (6.0, 1.0)


# -- what a build chooses ------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "expected"), [(0.0001, 0), (5.0, 2)])
def test_the_default_starts_workers_where_they_pay_and_tells(
    seconds, expected, source, tmp_path, started, monkeypatch, caplog
):
    tl.build(source, tmp_path / "one", workers=1, **SMALL)
    monkeypatch.setattr(pipeline, "usable_cores", lambda: 3)
    monkeypatch.setattr(Effort, "add", dear(seconds))
    with caplog.at_level(logging.DEBUG, "tokenloom"):
        tl.build(source, tmp_path / "auto", **SMALL)
    assert len(started) == expected
    told = "3 processes" if expected else "1 process"
    assert f"encoded in {told}: about " in caplog.text
    assert "CPU-s to start" in caplog.text
    assert content(tmp_path / "auto") == content(tmp_path / "one")


def dear(seconds):
    """Every block here costs this many CPU-seconds on one core."""
    add = Effort.add
    return lambda self, weight, cpu, wall: add(self, weight, seconds, seconds)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_number_of_workers_is_obeyed(workers, source, tmp_path, started, caplog):
    with caplog.at_level(logging.DEBUG, "tokenloom"):
        tl.build(source, tmp_path / "s", workers=workers, **SMALL)
    assert len(started) == (workers if workers > 1 else 0)
    assert f"workers={workers} was given" in caplog.text


def test_this_process_and_its_workers_share_the_blocks(source, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "usable_cores", lambda: 2)
    monkeypatch.setattr(Effort, "add", dear(5.0))
    here, there = [], []
    encode_here, encode = Crew._encode_here, Crew._encode

    def slowly(self, task, slow):
        here.append(task[0])
        for start in self._starts:
            start.result()  # as long as a worker is not ready, all would be done here
        return encode_here(self, task, slow)

    def away(self, task, slow):
        there.append(task[0])
        return encode(self, task, slow)

    monkeypatch.setattr(Crew, "_encode_here", slowly)
    monkeypatch.setattr(Crew, "_encode", away)
    tl.build(source, tmp_path / "s", **SMALL)
    assert len(here) > 1
    assert len(there) > 1
    assert sorted(here + there) == list(range(len(here) + len(there)))


def test_a_worker_that_cannot_start_is_told_beside_a_process_that_can(
    source, tmp_path, monkeypatch
):
    monkeypatch.setattr(pipeline, "usable_cores", lambda: 2)
    monkeypatch.setattr(Effort, "add", dear(5.0))
    start = worker._start

    def dead():
        process = start()
        process.kill()
        process.wait()
        return process

    monkeypatch.setattr(worker, "_start", dead)
    ready = Crew._ready

    def patient(self):
        for one in self._starts:
            one.exception()
        return ready(self)

    monkeypatch.setattr(Crew, "_ready", patient)
    before = children()
    with pytest.raises(tl.WorkerError, match="killed by signal 9 while it opened the tokenizer"):
        tl.build(source, tmp_path / "s", **SMALL)
    assert children() == before


# -- workers of several builds -------------------------------------------------------------


def test_several_builds_share_their_workers_and_give_the_same_bytes(source, tmp_path, started):
    for name in "abc":
        tl.build(source, tmp_path / name, workers=2, **SMALL)
    assert len(started) == 2
    assert worker.resting() == 2
    assert content(tmp_path / "a") == content(tmp_path / "b") == content(tmp_path / "c")
    tl.build(source, tmp_path / "d", workers=3, **SMALL)
    assert len(started) == 3
    tl.build(source, tmp_path / "one", workers=1, **SMALL)
    assert content(tmp_path / "d") == content(tmp_path / "one")


def test_a_worker_that_rested_takes_another_tokenizer(source, tmp_path, started):
    import toys

    tl.build(source, tmp_path / "bytes", workers=2, **SMALL)
    options = {**SMALL, "tokenizer": toys.bpe()}
    tl.build(source, tmp_path / "two", workers=2, **options)
    assert len(started) == 2
    tl.build(source, tmp_path / "one", workers=1, **options)
    assert content(tmp_path / "two") == content(tmp_path / "one")


def test_the_default_counts_no_start_for_workers_that_rest(source, tmp_path, started, monkeypatch):
    monkeypatch.setattr(pipeline, "usable_cores", lambda: 2)
    monkeypatch.setattr(Effort, "add", dear(0.01))
    monkeypatch.setattr(executors, "INTERPRETER_SECONDS", 50.0)
    monkeypatch.setattr(executors, "_measured", {})
    tl.build(source, tmp_path / "a", **SMALL)
    assert started == []
    tl.build(source, tmp_path / "b", workers=2, **SMALL)
    hired = []
    hire = Crew._hire
    monkeypatch.setattr(Crew, "_hire", lambda self, n: (hired.append(n), hire(self, n)))
    tl.build(source, tmp_path / "c", **SMALL)
    assert (len(started), hired) == (2, [1])


def test_code_of_the_user_gets_workers_of_its_own(source, tmp_path, started):
    for name in "ab":
        tl.build(source, tmp_path / name, workers=2, filter="badhooks:keep_all", **SMALL)
        assert worker.resting() == 0
    assert len(started) == 4


def test_another_environment_gets_workers_of_its_own(source, tmp_path, started, monkeypatch):
    tl.build(source, tmp_path / "a", workers=2, **SMALL)
    monkeypatch.setenv("TOKENLOOM_TEST", "1")
    assert worker.resting() == 0
    tl.build(source, tmp_path / "b", workers=2, **SMALL)
    assert len(started) == 4


def test_a_build_that_fails_leaves_no_worker(source, tmp_path, started):
    before = children()
    source.write_text(source.read_text() + '{"text": 7}\n')
    with pytest.raises(tl.InputError):
        tl.build(source, tmp_path / "s", workers=2, **SMALL)
    assert worker.resting() == 0
    assert children() == before
    assert all(process.returncode is not None for process in started)


def test_a_worker_that_died_at_rest_is_replaced(source, tmp_path, started):
    tl.build(source, tmp_path / "a", workers=2, **SMALL)
    os.kill(started[0].pid, signal.SIGKILL)
    started[0].wait()
    tl.build(source, tmp_path / "b", workers=2, **SMALL)
    assert len(started) == 3


def test_a_worker_that_ends_in_the_moment_it_is_taken_over_is_replaced(
    source, tmp_path, started, monkeypatch
):
    tl.build(source, tmp_path / "a", workers=2, **SMALL)
    for process in started:
        os.kill(process.pid, signal.SIGKILL)
    monkeypatch.setattr(worker.Worker, "lives", lambda _: True)
    tl.build(source, tmp_path / "b", workers=2, **SMALL)
    assert len(started) == 4
    assert content(tmp_path / "a") == content(tmp_path / "b")


def test_workers_end_by_themselves_after_their_rest(source, tmp_path, started, monkeypatch):
    monkeypatch.setattr(worker, "REST_SECONDS", 0.05)
    tl.build(source, tmp_path / "s", workers=2, **SMALL)
    assert [process.wait(timeout=900) for process in started] == [0, 0]
    assert worker.resting() == 0


def test_closing_ends_the_workers_that_rest(source, tmp_path, started):
    before = children()
    tl.build(source, tmp_path / "s", workers=2, **SMALL)
    assert len(children() - before) == 2
    worker.close_resting()
    assert children() == before


SCRIPT = """
import os, sys
import tokenloom as tl
from tokenloom.ingest.crew import worker
start, pids = worker._start, []
def watched():
    process = start()
    pids.append(process.pid)
    return process
worker._start = watched
source, out, mode = sys.argv[1:]
options = dict(tokenizer="bytes", workers=2, block_bytes=600, shard_tokens=3000)
tl.build(source, out + "/a", **options)
if mode == "fork":
    child = os.fork()
    if child == 0:
        assert worker.resting() == 0
        tl.build(source, out + "/b", **options)
        assert len(pids) == 4
        worker.close_resting()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert worker.resting() == 2
    tl.build(source, out + "/c", **options)
    assert len(pids) == 2
print(*pids, flush=True)
if mode == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("mode", ["exit", "killed", "fork"])
def test_no_worker_outlives_its_parent_nor_is_shared_with_a_fork(mode, source, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(source), str(tmp_path), mode],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    assert done.returncode == (-9 if mode == "killed" else 0), done.stderr
    assert "Warning" not in done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    for _ in range(600):  # they end when their input ends
        if not any(runs(pid) for pid in pids):
            break
        time.sleep(0.1)
    assert not any(runs(pid) for pid in pids)


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except OSError:
        return False
