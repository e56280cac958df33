"""A worker process: read a task from standard input, encode it, write the result.

Started by `tokenloom.ingest.executors` as ``python -c "…worker.main()"``. It never imports the
user's script, so a script needs no ``if __name__ == "__main__"``. It ends when its input ends,
which is also what happens when its parent dies.
"""

from __future__ import annotations

import contextlib
import os
import traceback
from typing import IO

from tokenloom import errors
from tokenloom.ingest.encode import encode_block
from tokenloom.ingest.wire import (
    open_kitchen,
    pack_encoded,
    receive,
    send,
    unpack_block,
    unpack_setup,
)

__all__ = ["main"]


def main() -> None:
    """Serve until standard input ends, or nobody reads the results any more."""
    with contextlib.suppress(BrokenPipeError):
        _serve()


def _serve() -> None:
    tasks = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not talk into the pipe
    first = receive(tasks)
    if first is None:
        return
    try:
        setup = unpack_setup(*first)
        kitchen = open_kitchen(setup)
    except Exception as error:  # noqa: BLE001 - the parent raises it
        _send_error(results, error)
        return
    while (task := receive(tasks)) is not None:
        header, buffers = task
        try:
            block = unpack_block(header, buffers)
            encoded = encode_block(
                setup.job, kitchen, setup.inputs, header["number"], block, slow=header["slow"]
            )
        except Exception as error:  # noqa: BLE001 - the parent raises it
            _send_error(results, error)
        else:
            send(results, *pack_encoded(encoded))


def _send_error(results: IO[bytes], error: Exception) -> None:
    kind = type(error).__name__
    known = kind in errors.__all__ and kind != "MissingExtra"
    message = str(error) if known else traceback.format_exc()
    send(results, {"error": kind if known else "WorkerError", "message": message})
