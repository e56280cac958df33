"""D4: a disk that fails at any call gives a clear error, and nothing that was there is lost."""

import contextlib
import errno
import itertools
import os
import shutil
import subprocess

import pytest
from kit import (
    QUICK,
    SMALL,
    assert_same_tree,
    is_published,
    leftovers,
    tree,
    write_corpus,
)

import tokenloom as tl
from tokenloom.testing import FaultFiles

ERRORS = [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.EINTR]


@pytest.fixture
def corpus(scratch):
    inputs = write_corpus(scratch / "in")
    store = tl.build(inputs, scratch / "whole", files=QUICK, **SMALL)
    return inputs, tree(scratch / "whole"), store.digest


def fail_at(number, error, action, scratch, corpus):
    """Build with an error at the N-th call, then again; gives what was wrong, None at the end."""
    inputs, expected, digest = corpus
    target = scratch / f"s-{number}-{error}-{action}"
    files = FaultFiles(QUICK, at=number, action=action, error=error)
    problems = []
    try:
        tl.build(inputs, target, files=files, **SMALL)
    except OSError as failure:
        last = files.calls[number - 1]
        context = f"call {number} ({last.name} {last.path.name}), {errno.errorcode[error]}"
        if str(last.path) not in str(failure) and str(target) not in str(failure):
            problems.append(f"{context}: the message names no path: {failure}")
        if failure.errno != error:
            problems.append(f"{context}: errno {failure.errno}")
        if target.exists():
            is_published(target, digest, context)
            if leftovers(target) and last.name != "remove":
                problems.append(f"{context}: left {leftovers(target)}")
    else:
        assert not files.happened, f"call {number}: the error was swallowed"
    tl.build(inputs, target, files=QUICK, **SMALL)
    assert_same_tree(target, expected, f"call {number}")
    return problems if files.happened else None


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("action", ["raise", "short"])
def test_d4_an_error_at_any_call_is_clear_and_leaves_nothing_behind(action, every, scratch, corpus):
    problems = []
    for number in itertools.count(1):
        # in the quick run every call fails once in three, each time with another error
        if number % every and every > 1:
            continue
        errors = ERRORS if every == 1 else [ERRORS[number // every % len(ERRORS)]]
        found = [fail_at(number, error, action, scratch, corpus) for error in errors]
        if found[0] is None:
            break
        problems += itertools.chain(*found)
    assert number > 80
    assert problems == []


def test_d4_a_failed_append_keeps_the_snapshot_before(scratch, corpus):
    inputs, expected, digest = corpus
    more = write_corpus(scratch / "more", count=10, seed=9)
    target = scratch / "s"
    tl.build(inputs, target, files=QUICK, **SMALL)
    for number in itertools.count(1, 3):
        files = FaultFiles(QUICK, at=number, error=ERRORS[number % len(ERRORS)])
        try:
            tl.build(more, target, append=True, files=files, **SMALL)
        except OSError:
            if tl.open(target).snapshot == 2:
                break  # it failed behind the publication
            assert is_published(target, digest)
            have = tree(target)
            assert {k: v for k, v in have.items() if k in expected} == expected
        else:
            break
    assert number > 40
    assert tl.build(more, target, append=True, files=QUICK, **SMALL).snapshot == 2
    old = tl.open(target, snapshot=1)
    assert old.digest == digest


# -- the system calls themselves -----------------------------------------------------------


class SystemFaults:
    """Makes the N-th system call that changes something below `root` fail."""

    NAMES = ("open", "write", "fsync", "mkdir", "rename", "link", "chmod")

    def __init__(self, monkeypatch, root, *, at=0, error=errno.EIO, names=NAMES):
        self.root, self.at, self.error, self.calls = str(root), at, error, []
        for name in names:
            monkeypatch.setattr(os, name, self.wrap(name, getattr(os, name)))

    def wrap(self, name, real):
        def call(first, *rest, **options):
            if self.concerns(name, first, rest):
                self.calls.append(name)
                if len(self.calls) == self.at:
                    raise self.failure(name, first)
            return real(first, *rest, **options)

        return call

    def concerns(self, name, first, rest):
        if name == "open" and not (rest and rest[0] & os.O_CREAT):
            return False
        place = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)
        return place.startswith(self.root)

    def failure(self, name, first):
        # as the interpreter does: calls on a descriptor know no name
        named = () if isinstance(first, int) else (str(first),)
        return OSError(self.error, os.strerror(self.error), *named)


def test_d4_system_calls_that_fail_are_reported_with_the_path(scratch, corpus, monkeypatch):
    inputs, expected, digest = corpus
    problems = []
    for number in itertools.count(1):
        target = scratch / f"s-{number}"
        with monkeypatch.context() as patch:
            faults = SystemFaults(patch, target, at=number)
            try:
                tl.build(inputs, target, **SMALL)
            except OSError as failure:
                context = f"system call {number} ({faults.calls[-1]})"
                if str(target) not in str(failure):
                    problems.append(f"{context}: the message names no path: {failure!r}")
        if target.exists():
            is_published(target, digest, f"call {number}")
        tl.build(inputs, target, files=QUICK, **SMALL)
        assert_same_tree(target, expected, f"call {number}")
        if len(faults.calls) < number:
            break
    assert number > 60
    assert not problems, "\n".join(problems)


def test_d4_writes_that_the_kernel_cuts_short_are_completed(scratch, corpus, monkeypatch):
    inputs, expected, _ = corpus
    real, cut = os.write, []

    def write(fd, data):
        if len(data) > 1:
            cut.append(len(data))
        return real(fd, bytes(data[: max(1, len(data) // 2)]))

    monkeypatch.setattr(os, "write", write)
    tl.build(inputs, scratch / "s", **SMALL)
    assert len(cut) > 100
    assert_same_tree(scratch / "s", expected)


def test_d4_a_file_system_without_hard_links_gets_the_same_store(scratch, corpus, monkeypatch):
    inputs, expected, digest = corpus

    def no_links(*_arguments, **_options):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    for _ in range(2):  # the second time everything is there already
        assert tl.build(inputs, scratch / "s", **SMALL).digest == digest
        assert_same_tree(scratch / "s", expected)


def test_d4_a_full_file_gets_a_genuine_short_write_and_an_error_with_the_bytes(
    nursery, scratch, tmp_path
):
    inputs = write_corpus(scratch / "in", count=4000)
    options = {"tokenizer": "bytes", "shard_tokens": 50_000}
    job = {"inputs": inputs, "out": str(tmp_path / "s"), "options": options}
    child = nursery.start("build_in_small_files", **job, limit=70_001)
    assert child.wait() == 3
    outcome = child.outcome()
    assert outcome["error"][0] == "StoreError", outcome["trace"]
    assert str(tmp_path / "s") in outcome["message"]
    assert "after 70,001 bytes" in outcome["message"]
    assert "File too large" in outcome["message"]
    assert leftovers(tmp_path / "s") == []
    with pytest.raises(tl.StoreNotFound):
        tl.open(tmp_path / "s")
    tl.build(inputs, tmp_path / "s", **options)
    tl.build(inputs, scratch / "whole", **options)
    assert_same_tree(tmp_path / "s", tree(scratch / "whole"))


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of its own, if this process may mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        yield folder
    finally:  # lazily: a failed test may still hold a file open
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def test_d4_a_full_disk_is_reported_and_the_build_goes_on_when_there_is_room(scratch, tmp_path):
    options = {"tokenizer": "bytes", "shard_tokens": 50_000, "inner": 1024}
    first = write_corpus(scratch / "first", count=3000)
    more = write_corpus(scratch / "more", count=30_000, seed=1)
    before = tl.build(first, scratch / "whole", **options).digest
    tl.build(more, scratch / "whole", append=True, **options)
    with small_disk(tmp_path / "disk", "2m") as disk:
        tl.build(first, disk / "s", **options)
        with pytest.raises(
            tl.StoreError, match=r"bytes.*No space left on device.*Free some space"
        ) as full:
            tl.build(more, disk / "s", append=True, **options)
        assert full.value.errno == errno.ENOSPC
        assert str(disk) in str(full.value)
        assert leftovers(disk / "s") == []
        assert is_published(disk / "s", before)
        grow = ["mount", "-o", "remount,size=64m", str(disk)]
        subprocess.run(grow, check=True, capture_output=True)
        finished = sorted(name for name in os.listdir(disk / "s") if name.startswith("shard"))
        assert len(finished) > 2, "the shards before the full disk are kept"
        tl.build(more, disk / "s", append=True, **options)
        assert_same_tree(disk / "s", tree(scratch / "whole"))


def test_d4_a_lock_that_cannot_be_had_is_waited_for_and_says_so(scratch, corpus, caplog):
    """Another builder holds the lock for a moment."""
    inputs, expected, _ = corpus

    files, locked = FaultFiles(), contextlib.ExitStack()
    (scratch / "s").mkdir()
    assert locked.enter_context(FaultFiles().lock(scratch / "s"))

    def release(call):
        if [one.name for one in files.calls].count("lock") == 3:
            locked.close()

    files.before = release
    with caplog.at_level("WARNING", logger="tokenloom"):
        tl.build(inputs, scratch / "s", files=files, **SMALL)
    assert_same_tree(scratch / "s", expected)
    assert [r.message for r in caplog.records if "another process is building" in r.message]
