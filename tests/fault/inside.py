"""What the children of `nursery` run, and the hooks that their builds name."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from pathlib import Path

from kit import QuickFiles

import tokenloom as tl
from tokenloom.store.files import LocalFiles
from tokenloom.testing import FaultFiles


class NoLocks(LocalFiles):
    """A file system without locks."""

    @contextlib.contextmanager
    def lock(self, path):
        yield None


KINDS = {"local": LocalFiles, "quick": QuickFiles, "nolocks": NoLocks}


def build(inputs, out, options, *, files="local", fault=None, start_at=None):
    """Build; `start_at` is a wall-clock time at which many builders begin together."""
    seam = KINDS[files]()
    if fault:
        seam = FaultFiles(seam, **fault)
    if start_at is not None:
        time.sleep(max(0.0, start_at - time.time()))
    return tl.build(inputs, out, files=seam, progress=False, **options).digest


# -- hooks ---------------------------------------------------------------------------------


def die_on_marker(record):
    """A transform that is killed at the record that says so."""
    if "DIE" in record["text"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return record
