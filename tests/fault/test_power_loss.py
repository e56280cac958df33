"""D3: whatever a power loss leaves, nothing published is lost or wrong, and the build can go on."""

import hashlib
import itertools
import shutil

import pytest
from crashdisk import CrashFiles, mix
from kit import QUICK, SMALL, assert_same_tree, is_published, tree, write_corpus

import tokenloom as tl
from tokenloom.testing import FaultFiles

EXTREMES = (0, 1, 2)  # nothing unsafe survives; all names; everything


class Survey:
    """Crash states of one recorded build, each looked at once; `problems` is what was wrong."""

    def __init__(self, scratch, files, inputs, expected, *, append=None, digests):
        self.scratch, self.files, self.inputs, self.expected = scratch, files, inputs, expected
        self.append, self.digests = append, digests
        self.seen, self.states, self.problems = set(), 0, []

    def look(self, at, seed):
        """Make one state and judge it; the same state is not judged twice."""
        state = self.scratch / "state"
        self.files.crash(state, at=at, seed=seed)
        done = at == len(self.files.log)  # the builder had returned: its store may not be lost
        found = tree(state)
        fingerprint = hashlib.sha256(repr((done, sorted(found.items()))).encode()).digest()
        if fingerprint not in self.seen:
            self.seen.add(fingerprint)
            self.states += 1
            try:
                self.judge(state / "s", done)
            except (AssertionError, OSError) as error:
                before = self.files.log[at - 1] if at else None
                kind = type(error).__name__
                self.problems.append(f"at={at} seed={seed} after {before!r:.80}: {kind} {error}")
        shutil.rmtree(state)

    def judge(self, store, done):
        published = is_published(store, self.digests[-1]) if not self.append else None
        if self.append:
            old = tl.open(store, snapshot=1, cache_bytes=0)
            assert old.digest == self.digests[0]
            assert old.verify(progress=False).ok
            now = tl.open(store, cache_bytes=0)
            published = now.snapshot == 2
            assert now.digest == self.digests[published]
            assert now.verify(progress=False).ok
        assert published or not done, "a finished build is gone"
        tl.build(self.inputs, store, append=bool(self.append), files=QUICK, **SMALL)
        assert_same_tree(store, self.expected)

    def all_points(self, seeds):
        for at in range(len(self.files.log) + 1):
            for seed in (*EXTREMES, *(mix(at, i) | 4 for i in range(seeds))):
                self.look(at, seed)
        return self


@pytest.fixture
def corpus(scratch):
    inputs = write_corpus(scratch / "in")
    store = tl.build(inputs, scratch / "whole/s", files=QUICK, **SMALL)
    return inputs, tree(scratch / "whole/s"), store.digest


def record(scratch, inputs, **options):
    files = CrashFiles(scratch / "disk", QUICK, **options)
    tl.build(inputs, scratch / "disk/s", files=files, **SMALL)
    return files


@pytest.mark.parametrize("seeds", [1, pytest.param(40, marks=pytest.mark.slow)])
def test_d3_a_power_loss_at_any_point_of_a_build_leaves_nothing_wrong(seeds, scratch, corpus):
    inputs, expected, digest = corpus
    files = record(scratch, inputs)
    survey = Survey(scratch, files, inputs, expected, digests=[digest]).all_points(seeds)
    assert survey.problems == []
    assert survey.states > 60


@pytest.mark.parametrize("seeds", [1, pytest.param(40, marks=pytest.mark.slow)])
def test_d3_a_power_loss_at_any_point_of_an_append_keeps_the_snapshot_before(
    seeds, scratch, corpus
):
    inputs, _, digest = corpus
    more = write_corpus(scratch / "more", count=10, seed=9)
    both = tl.build(more, scratch / "whole/s", append=True, files=QUICK, **SMALL)
    tl.build(inputs, scratch / "disk/s", files=QUICK, **SMALL)
    files = CrashFiles(scratch / "disk", QUICK)
    tl.build(more, scratch / "disk/s", append=True, files=files, **SMALL)
    survey = Survey(
        scratch,
        files,
        more,
        tree(scratch / "whole/s"),
        append=True,
        digests=[digest, both.digest],
    ).all_points(seeds)
    assert survey.problems == []
    assert survey.states > 30


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_d3_a_store_finished_after_a_kill_survives_a_power_loss(step, scratch, corpus):
    """The second run must make safe what the first one only began."""
    inputs, expected, digest = corpus
    problems = []
    for number in itertools.count(1):
        if number > 12 and number % step:  # the first calls make the directory: look at all
            continue
        disk = scratch / f"disk-{number}"
        files = CrashFiles(disk, QUICK)
        killed = FaultFiles(files, at=number, action="stop")
        try:
            tl.build(inputs, disk / "new/s", files=killed, **SMALL)
        except OSError:
            assert killed.happened
        tl.build(inputs, disk / "new/s", files=files, **SMALL)
        for seed in (0, 1, mix(number) | 4):
            after = scratch / f"after-{number}-{seed}"
            files.crash(after, at=len(files.log), seed=seed)
            if not is_published(after / "new/s", digest, f"killed at call {number}"):
                problems.append((number, killed.calls[-1].name, seed))
            else:
                assert_same_tree(after / "new/s", expected)
        if not killed.happened:
            break
    assert problems == []


@pytest.mark.parametrize(
    "forgotten", [("close", "sync_directory"), ("close",), ("sync_directory",)]
)
def test_d3_the_harness_catches_a_writer_that_does_not_sync(forgotten, scratch, corpus):
    inputs, expected, digest = corpus
    files = record(scratch, inputs, forget=forgotten)
    survey = Survey(scratch, files, inputs, expected, digests=[digest])
    for seed in range(40):
        survey.look(len(files.log), seed)
        survey.look(len(files.log) - 4, seed)
        if survey.problems:
            break
    assert survey.problems, f"nothing found in {survey.states} states without {forgotten}"
