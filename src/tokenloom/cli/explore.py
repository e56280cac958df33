"""Look at any step of a run in a browser: `tokenloom explore`.

The pages are served to this machine alone, under an address that nobody can guess. The command
prints that address and how to reach it from another machine, and answers until Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from tokenloom.arguments import check_between
from tokenloom.cli.printing import write
from tokenloom.cli.runs import only_looking, open_run
from tokenloom.errors import ConfigError
from tokenloom.explore.server import Server, serve
from tokenloom.explore.session import Session


@only_looking()
def explore(arguments: argparse.Namespace) -> int:
    """Serve the pages of one run or two until Ctrl-C: `tokenloom explore`."""
    check_between("--port", arguments.port, 0, 65535)
    paths = [arguments.run] + ([arguments.other] if arguments.other else [])
    last = len(paths) - 1  # --set changes the other run, as in diff
    runs = [open_run(path, arguments.set if k == last else []) for k, path in enumerate(paths)]
    session = Session(runs, _names(paths), arguments.batch_size)
    for one in session.runs:
        _ = one.run.run, one.steps  # plans are made, and a wrong batch size refused, before a page
    try:
        server = Server(session, arguments.port)
    except OSError as error:
        raise ConfigError(
            f"--port: {arguments.port} cannot be listened on ({error.strerror or error}). Leave it "
            "out to get a free one."
        ) from None
    about = {"url": server.url, "port": server.port, "runs": [one.name for one in session.runs]}
    write(arguments, about, _lines(session, server))
    sys.stdout.flush()
    serve(server, arguments.seconds)
    return 0


def _names(paths: list[str]) -> list[str]:
    """What runs are called: the names of their files, or their paths where these are the same.

    >>> _names(["a/run.yaml", "b/run.yaml"]), _names(["run.yaml", "run.yaml"])
    (['a/run.yaml', 'b/run.yaml'], ['run.yaml', 'run.yaml changed'])
    """
    names = [os.path.basename(path) for path in paths]
    if len(set(names)) == len(names):
        return names
    return paths if len(set(paths)) == len(paths) else [paths[0], f"{paths[0]} changed"]


def _lines(session: Session, server: Server) -> Iterator[str]:
    yield f"{' and '.join(one.name for one in session.runs)}: {server.url}"
    yield (
        f"from another machine: ssh -L {server.port}:127.0.0.1:{server.port} THIS_MACHINE, then "
        "open the same address there"
    )
    yield "nothing is written outside the cache directory; Ctrl-C ends it"
