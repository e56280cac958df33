"""D8, D9: builders that race for one place, and readers that look on while stores grow."""

import contextlib
import functools
import os
import time

import pytest
from crashdisk import mix
from kit import (
    QUICK,
    SMALL,
    assert_same_tree,
    is_published,
    leftovers,
    read_everything,
    tree,
    write_corpus,
)

import tokenloom as tl
from tokenloom.ingest.target import collect
from tokenloom.testing import FaultFiles

BUILDERS = 8


@pytest.fixture
def corpus(scratch):
    inputs = write_corpus(scratch / "in", count=60)
    store = tl.build(inputs, scratch / "whole", files=QUICK, **SMALL)
    return inputs, tree(scratch / "whole"), store.digest


def race(nursery, target, inputs, files):
    """Eight builders begin at the same moment; gives how each ended."""
    job = {"inputs": inputs, "out": str(target), "options": SMALL, "files": files}
    start_at = time.time() + 0.25
    children = [nursery.start("build", **job, start_at=start_at) for _ in range(BUILDERS)]
    codes = [child.wait() for child in children]
    assert set(codes) <= {0, 3}, codes
    return [child.outcome() for child in children]


@pytest.mark.parametrize("files", ["local", "nolocks"])
@pytest.mark.parametrize("rounds", [2, pytest.param(40, marks=pytest.mark.slow)])
def test_d8_of_eight_builders_that_race_all_succeed_and_the_store_is_that_of_one(
    rounds, files, nursery, scratch, corpus
):
    inputs, expected, digest = corpus
    for number in range(rounds):
        target = scratch / f"race-{number}"
        outcomes = race(nursery, target, inputs, files)
        failed = [outcome["trace"] for outcome in outcomes if "error" in outcome]
        assert not failed, failed[0]
        assert {outcome["value"] for outcome in outcomes} == {digest}
        assert_same_tree(target, expected, f"round {number}")
        assert leftovers(target) == []
        assert is_published(target, digest)


def interrupted(number, other, **options):
    """A file system without locks, on which another builder strikes before the N-th call."""

    def before(call):
        if len(files.calls) == number:
            other()

    files = FaultFiles(locks=False, before=before, **options)
    return files


def test_d8_without_locks_another_builder_may_finish_between_any_two_looks(scratch, corpus):
    """What eight processes meet once in a thousand runs, met on purpose."""
    inputs, expected, _ = corpus
    problems = []
    for number in range(1, 8):
        target = scratch / f"s-{number}"
        other = functools.partial(tl.build, inputs, target, files=QUICK, **SMALL)
        files = interrupted(number, other, only=["list"])
        try:
            tl.build(inputs, target, files=files, **SMALL)
        except tl.TokenloomError as error:
            problems.append(f"listing {number}: {type(error).__name__}: {error}")
        if len(files.calls) < number:
            break
        assert_same_tree(target, expected, f"listing {number}")
    assert number > 2
    assert problems == []


def test_d8_without_locks_another_builder_may_be_ahead_at_any_call(scratch, corpus):
    """Every call of a build, with another build of the same store finished just before it."""
    inputs, expected, _ = corpus

    problems = []
    for number in range(1, 200, 5):
        target, unlocked = scratch / f"s-{number}", FaultFiles(locks=False)
        other = functools.partial(tl.build, inputs, target, files=unlocked, **SMALL)
        files = interrupted(number, other)
        try:
            tl.build(inputs, target, files=files, **SMALL)
        except tl.TokenloomError as error:
            call = files.calls[number - 1].name
            problems.append(f"call {number} ({call}): {type(error).__name__}: {error}")
        assert_same_tree(target, expected, f"call {number}")
        if len(files.calls) < number:
            break
    assert problems == []


def test_d8_two_builds_of_different_stores_in_one_place_never_mix(scratch, corpus):
    """Without locks the renames decide: one store is published, the other builder is refused."""
    inputs, expected, _ = corpus
    others = write_corpus(scratch / "others", count=60, seed=33)
    tl.build(others, scratch / "whole-others", files=QUICK, **SMALL)
    theirs = tree(scratch / "whole-others")

    def intrude(target):
        with contextlib.suppress(tl.StoreError):
            tl.build(others, target, files=FaultFiles(locks=False), **SMALL)

    refused = 0
    for number in range(1, 240, 7):
        target = scratch / f"s-{number}"
        files = interrupted(number, functools.partial(intrude, target))
        try:
            tl.build(inputs, target, files=files, **SMALL)
        except tl.StoreError:
            refused += 1
        try:
            store = tl.open(target, cache_bytes=0)
        except tl.StoreNotFound:
            continue  # each holds a part of the names: neither is published, which is clean
        assert store.verify(progress=False).ok
        published = {k: v for k, v in tree(target).items() if k in expected or k in theirs}
        assert published in (expected, theirs), f"call {number}: a mixture was published"
        if len(files.calls) < number:
            break
    assert refused


def test_d8_the_lock_of_a_dead_process_is_free_and_its_file_does_no_harm(nursery, scratch, corpus):
    inputs, expected, digest = corpus
    target = scratch / "s"
    target.mkdir()
    holder = nursery.start("hold_lock", path=str(target))
    while not (scratch / "s-held").exists():
        time.sleep(0.01)
    waiting = nursery.start("build", inputs=inputs, out=str(target), options=SMALL)
    time.sleep(0.3)
    assert waiting.poll() is None, "a build did not wait for the lock"
    with pytest.raises(tl.StoreBusy):
        collect(target)
    holder.kill()
    assert holder.wait() == -9
    assert waiting.value(10) == digest
    assert_same_tree(target, expected)
    (target / ".lock").write_text("12345 of some machine")
    assert tl.build(inputs, target, **SMALL).digest == digest


# -- D9 -------------------------------------------------------------------------------------


def test_d9_a_reader_keeps_its_snapshot_while_appends_publish_new_ones(nursery, scratch, corpus):
    inputs, _, digest = corpus
    target = scratch / "s"
    tl.build(inputs, target, files=QUICK, **SMALL)
    holders = {1: tl.open(target, cache_bytes=0)}
    truth = {1: holders[1].tokens(0, holders[1].num_tokens).tolist()}
    child = nursery.start(
        "append_often", folder=str(scratch), out=str(target), options=SMALL, count=6
    )
    looks = 0
    while child.poll() is None:
        newest = tl.open(target, cache_bytes=0)
        if newest.snapshot not in holders:
            holders[newest.snapshot] = newest
            truth[newest.snapshot] = newest.tokens(0, newest.num_tokens).tolist()
        for number, store in holders.items():
            a = mix(looks, number) % store.num_tokens
            b = a + mix(looks, number, 1) % (store.num_tokens - a)
            assert store.tokens(a, b).tolist() == truth[number][a:b]
        looks += 1
    child.value()
    assert looks > 3
    assert tl.open(target).snapshot == 7
    for number, store in holders.items():
        assert store.snapshot == number
        assert store.tokens(0, store.num_tokens).tolist() == truth[number]
        assert tl.open(target, snapshot=number).digest == store.digest
        assert truth[number][: len(truth[1])] == truth[1]
    assert holders[1].digest == digest
    assert not read_everything(target).errors


def test_d9_collecting_old_snapshots_takes_nothing_from_who_reads_the_newest(scratch, corpus):
    inputs, _, _ = corpus
    target = scratch / "s"
    tl.build(inputs, target, files=QUICK, **SMALL)
    old = tl.open(target, cache_bytes=0)
    whole = old.tokens(0, old.num_tokens).tolist()
    more = write_corpus(scratch / "more", count=5, seed=5)
    new = tl.build(more, target, append=True, files=QUICK, **SMALL)
    collect(target, old_snapshots=True)
    assert old.tokens(0, old.num_tokens).tolist() == whole  # its shards are the newest one's too
    assert new.verify(progress=False).ok
    with pytest.raises(tl.StoreNotFound):
        tl.open(target, snapshot=1)


class DyingRemoval:
    """Removes names in a known order and dies at the N-th."""

    def __init__(self, patch, at, backwards):
        self.at, self.backwards, self.count = at, backwards, 0
        self.listing = os.scandir
        patch.setattr(os, "scandir", self.scandir)
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, functools.partial(self.remove, getattr(os, name)))

    @contextlib.contextmanager
    def scandir(self, place):
        with self.listing(place) as found:
            yield sorted(found, key=lambda entry: entry.name, reverse=self.backwards)

    def remove(self, real, *args, **kwargs):
        self.count += 1
        if self.count >= self.at:
            raise KeyboardInterrupt
        return real(*args, **kwargs)


@pytest.mark.parametrize("backwards", [False, True])  # is the commit record the last or the first?
def test_d9_a_gc_that_dies_in_the_middle_never_makes_a_later_build_publish_a_broken_store(
    backwards, scratch, corpus, monkeypatch
):
    """Half a shard left by a dead gc must not be taken for a whole one, nor be in the way."""
    inputs, expected, _ = corpus
    problems = []
    for number in range(1, 40, 2):
        target = scratch / f"s-{number}"
        tl.build(inputs, target, files=QUICK, **SMALL)
        (target / "manifest-000001.json").unlink()
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            DyingRemoval(patch, number, backwards)
            collect(target, unfinished=True)
        try:
            tl.build(inputs, target, files=QUICK, **SMALL)
            assert_same_tree(target, expected)
        except (tl.StoreError, AssertionError) as error:
            problems.append(f"gc died at removal {number}: {type(error).__name__}: {error!s:.160}")
    assert not problems, "\n".join(problems)
