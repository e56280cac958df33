"""A process that has imported everything and forks a child for every request.

Starting Python and importing the library costs half a second; forking costs milliseconds, so the
kill loops can be long. Run as a script by `kit.Nursery`; it speaks JSON lines: ``{"run": name,
"arguments": {...}, "result": path}`` forks a child that calls ``inside.name(**arguments)`` and
writes what came of it to `result`; ``{"poll": pid}`` says how it ended.
"""

import json
import os
import sys
import threading
import traceback
import warnings


def main() -> None:
    import inside

    _warm_up()
    answer = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if pid else None
            print(json.dumps({"code": code}), file=answer)
            continue
        pid = os.fork()
        if pid == 0:
            _child(inside, request)
        print(json.dumps({"pid": pid}), file=answer)


def _warm_up() -> None:
    """Import all that a build imports when it is first needed, but leave no thread behind: a fork
    keeps only one."""
    import pandas  # noqa: F401 - pyarrow looks for it
    import pyarrow.parquet  # noqa: F401
    from kit import quick_folder

    import tokenloom as tl
    from tokenloom.store import metadata

    have_pyarrow, metadata.have_pyarrow = metadata.have_pyarrow, lambda: False
    with quick_folder() as folder:
        path = folder / "a.jsonl"
        path.write_text('{"text": "a"}')
        tl.build(path, folder / "s", tokenizer="bytes").metadata(0)
    metadata.have_pyarrow = have_pyarrow
    assert threading.active_count() == 1


def _child(inside, request) -> None:
    os.setsid()  # a group of its own: whoever is left of it can be counted
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    warnings.simplefilter("error")
    code = 0
    try:
        outcome = {"value": getattr(inside, request["run"])(**request["arguments"])}
    except BaseException as error:  # noqa: BLE001 - the test looks at it
        code = 3
        outcome = {
            "error": [kind.__name__ for kind in type(error).__mro__],
            "message": str(error),
            "trace": traceback.format_exc(),
        }
    finally:
        with open(request["result"] + "~", "w") as file:
            json.dump(outcome, file)
        os.rename(request["result"] + "~", request["result"])
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
