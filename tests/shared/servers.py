"""The servers that remote stores are tested on, each in a process of its own, on a free port.

==============  ===================================================================================
`RangeServer`   our own (`range_server.py`): the faults, the log of every request, the speed lines
`moto_server`   moto: the S3 of another author, which honours conditions
`s3rver`        npm's s3rver: ignores conditions silently, so a build must be refused there
`azurite`       npm's azurite: the blob storage of Azure
==============  ===================================================================================

The ones of npm are installed once by `make .venv/.node` (``TOKENLOOM_NODE`` names another folder).
A server ends when its starter does. No server knows a real credential: all of them are made up
here.
"""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hmac
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent

NODE = Path(os.environ.get("TOKENLOOM_NODE", HERE.parents[1] / ".venv" / "node"))

ACCESS_KEY = "AKIDPLANTEDACCESS"

SECRET_KEY = "planted/secret+0123456789abcdefghijklmnop"

SESSION_TOKEN = "plantedtoken//////////wEaCXVzLWVhc3QtMSJHMEUCIQ"

# the account that every azurite has, published by its authors
AZURE_ACCOUNT = "devstoreaccount1"

AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    port: int

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """What a process sets to reach it as S3."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_SESSION_TOKEN": SESSION_TOKEN,
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        }


class S3rver(Server):
    """npm's s3rver, which knows one account."""

    def environment(self) -> dict[str, str]:
        """See `Server`."""
        known = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER"}
        found = super().environment() | known
        del found["AWS_SESSION_TOKEN"]
        return found


class RangeServer(Server):
    """`range_server.py`, with its controls."""

    def set(self, **settings: object) -> None:
        """Change how it behaves; what is not named goes back to its default."""
        self._control("PUT", "settings", json.dumps(settings).encode())

    def log(self) -> list[dict]:
        """The requests since the log was cleared."""
        return json.loads(self._control("GET", "log"))

    def clear(self) -> None:
        """Clear the log."""
        self._control("DELETE", "log")

    def forget(self) -> None:
        """Drop all objects, settings and the log."""
        self.set()
        self._control("DELETE", "objects")
        self.clear()

    def _control(self, method: str, what: str, data: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.endpoint}/-/{what}", data, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()


@contextlib.contextmanager
def range_server(*serve: str) -> Iterator[RangeServer]:
    """Our own server; `serve` offers folders, as "bucket=FOLDER"."""
    options = [option for one in serve for option in ("--serve", one)]
    with _process([sys.executable, str(HERE / "range_server.py"), *options]) as process:
        yield RangeServer(int(process.stdout.readline()))


_MOTO = """
import os, sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
os._exit(0)
"""


@contextlib.contextmanager
def moto_server(*buckets: str) -> Iterator[Server]:
    """moto's server with these buckets."""
    with _process([sys.executable, "-c", _MOTO]) as process:
        server = Server(int(process.stdout.readline()))
        for bucket in buckets:
            request = urllib.request.Request(f"{server.endpoint}/{bucket}", b"", method="PUT")
            urllib.request.urlopen(request, timeout=60).close()
        yield server


@contextlib.contextmanager
def s3rver(folder: Path, *buckets: str) -> Iterator[S3rver]:
    """npm's s3rver with these buckets, its data below `folder`."""
    server = S3rver(_free_port())
    options = [option for one in buckets for option in ("--configure-bucket", one)]
    where = ["-d", str(folder), "-a", "127.0.0.1", "-p", str(server.port), "--silent"]
    with _process([*_node("s3rver"), *where, *options]) as process:
        _wait_for(server, process)
        yield server


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    """The blob storage of azurite, its data below `folder`."""
    server = Server(_free_port())
    where = ["--blobHost", "127.0.0.1", "--blobPort", str(server.port), "--location", str(folder)]
    quiet = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    with _process([*_node("azurite-blob"), *where, *quiet]) as process:
        _wait_for(server, process)
        yield server


def azure_environment(server: Server) -> dict[str, str]:
    """What a process sets to reach azurite."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
        "AZURE_STORAGE_ENDPOINT": f"{server.endpoint}/{AZURE_ACCOUNT}",
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": server.endpoint,
        "AZURE_ALLOW_HTTP": "true",
    }


def _node(name: str) -> list[str]:
    program = NODE / "node_modules" / ".bin" / name
    if not program.exists():
        raise AssertionError(f"{program}: it is not installed. Run `make .venv/.node` (npm).")
    return ["node", str(program.resolve())]


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[subprocess.Popen]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=_environment())
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def _wait_for(server: Server, process: subprocess.Popen) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise AssertionError(f"{process.args[1]}: it ended with code {process.returncode}.")
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
            return
        time.sleep(0.1)
    raise AssertionError(f"{process.args[1]}: it did not listen within a minute.")


def make_container(server: Server, name: str) -> None:
    """A new container of azurite; its request is signed as Azure asks (shared key)."""
    now = email.utils.formatdate(usegmt=True)
    headers = f"x-ms-date:{now}\nx-ms-version:2021-12-02\n"
    place = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}\nrestype:container"
    signed = "PUT\n\n\n\n\n\n\n\n\n\n\n\n" + headers + place
    digest = hmac.digest(base64.b64decode(AZURE_KEY), signed.encode(), "sha256")
    request = urllib.request.Request(
        f"{server.endpoint}/{AZURE_ACCOUNT}/{name}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": now,
            "x-ms-version": "2021-12-02",
            "Authorization": f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}",
        },
    )
    urllib.request.urlopen(request, timeout=60).close()
