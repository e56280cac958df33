"""A filter of a build that keeps every record, and kills its process at one of them if asked to."""

import os
import signal


def keep(record):
    if record["text"] == os.environ.get("KILL_AT"):
        os.kill(os.getpid(), signal.SIGKILL)
    return True
