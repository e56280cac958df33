"""What the children of `nursery` run, and the hooks that their builds name."""

from __future__ import annotations

import encodings.utf_8_sig
import os
import resource
import signal
import sys
import time
from pathlib import Path

from kit import QUICK, Reading, read_everything, write_corpus

import tokenloom as tl
from tokenloom import cluster
from tokenloom.testing import FaultFiles

# "slow": each new file takes a moment, so that a build can be killed in the middle
KINDS = {
    "local": {"only": ()},
    "quick": {"only": (), "sync": False},
    "nolocks": {"only": (), "locks": False},
    "slow": {"only": ["create"], "sync": False, "before": lambda call: time.sleep(0.004)},
}


def files_of(kind):
    return FaultFiles(**KINDS[kind])


def build(inputs, out, options, *, files="local", fault=None, start_at=None):
    """Build; `start_at` is a wall-clock time at which many builders begin together."""
    seam = files_of(files)
    if fault:
        seam = FaultFiles(seam, **fault)
    if start_at is not None:
        time.sleep(max(0.0, start_at - time.time()))
    return tl.build(inputs, out, files=seam, progress=False, **options).digest


def build_part(inputs, out, part, options, *, files="quick"):
    """Do one part of a build."""
    seam = files_of(files) if files else None  # None: by where it goes
    return cluster.build_part(inputs, out, part, files=seam, progress=False, **options)


def finish_build(inputs, out, options, *, files="quick", start_at=None):
    """Finish a build in parts; `start_at` as in `build`."""
    if start_at is not None:
        time.sleep(max(0.0, start_at - time.time()))
    return cluster.finish_build(inputs, out, files=files_of(files), **options).manifest_sha256


def build_in_small_files(inputs, out, options, *, limit):
    """Build where no file may grow beyond `limit` bytes: a genuine short write, then EFBIG."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        return tl.build(inputs, out, progress=False, **options).digest
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def read_while_damaged(path, file, damage, verify):
    """Open a store, touch it, damage a file, read on; gives what was read and the errors seen."""
    store = tl.open(path, cache_bytes=0, verify=verify)
    store.tokens(0, 10)
    store.document(0)
    if damage == "remove":
        Path(path, file).unlink()
    else:
        os.truncate(Path(path, file), damage)
    right, wrong, errors = 0, 0, []
    for start in range(0, store.num_tokens - 100, 100):
        try:
            values = store.tokens(start, start + 100)
        except tl.StoreCorrupt as error:
            errors.append(str(error))
        else:
            same = values.tolist() == [i % 256 for i in range(start, start + 100)]
            right, wrong = right + same, wrong + (not same)
    return {"right": right, "wrong": wrong, "errors": errors}


def hold_lock(path):
    """Hold the lock of a directory until killed."""
    with FaultFiles().lock(Path(path)) as held:
        assert held
        Path(path + "-held").touch()
        time.sleep(600)


def append_often(folder, out, options, count):
    """Append one corpus after the other."""
    for number in range(count):
        inputs = write_corpus(Path(folder, f"append-{number}"), count=6, seed=100 + number)
        tl.build(inputs, out, append=True, files=QUICK, progress=False, **options)


def use_stores(good, paths, *, megabytes, seconds, endless=(), watch=()):
    """Ask every store everything, with little memory, a time limit, and an audit of what happens.

    Gives for each store the steps that worked, the errors, the errors that are not tokenloom's, and
    the events that reading a store must never cause.
    """
    events: list[str] = []
    armed = False

    def audit(event, arguments):
        if armed and (event in FORBIDDEN or event.startswith(("socket.", "ctypes."))):
            events.append(f"{event} {arguments!r:.200}")
        if armed and event == "open" and isinstance(arguments[0], str):
            place, _, flags = arguments
            writes = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            if writes or any(place.startswith(folder) for folder in watch):
                events.append(f"open {place} {flags:o}")

    def out_of_time(number, frame):
        raise OutOfTime

    sys.addaudithook(audit)
    signal.signal(signal.SIGALRM, out_of_time)
    signal.signal(signal.SIGPROF, out_of_time)
    assert read_everything(good).errors == {}  # imports what is imported late
    limit_memory(megabytes)
    reports = {}
    for path in paths:
        events.clear()
        signal.setitimer(signal.ITIMER_PROF, seconds)  # a busy machine does not count
        signal.setitimer(signal.ITIMER_REAL, 30 * seconds)  # waiting ends, too
        reading, strangers = Reading(), {}
        armed = True
        try:
            read_everything(path, check=path not in endless, reading=reading)
        except OutOfTime:
            strangers["time"] = f"still busy after {seconds} s"
        armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        reports[path] = {
            "worked": sorted(reading.values),
            "errors": {step: str(error)[:300] for step, error in reading.errors.items()},
            "strangers": strangers | reading.strangers(),
            "events": sorted(set(events)),
        }
    return reports


class OutOfTime(BaseException):
    """No handler of a question may take this for its answer."""


# code from data, other programs, other machines
FORBIDDEN = frozenset(
    {"exec", "compile", "pickle.find_class", "marshal.loads", "marshal.load", "os.system"}
    | {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen"}
    | {"urllib.Request", "webbrowser.open", "os.remove", "os.rename", "os.mkdir", "os.rmdir"}
    | {"os.truncate", "os.chmod", "os.link", "os.symlink", "shutil.rmtree", "os.putenv"}
)


def limit_memory(megabytes):
    """Allow that much more address space than is in use now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


assert encodings.utf_8_sig  # imported here, so that reading JSON need not


# -- hooks ---------------------------------------------------------------------------------


def die_on_marker(record):
    """A transform that is killed at the record that says so."""
    if "DIE" in record["text"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return record
