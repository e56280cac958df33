"""The server itself: sockets, deadlines, places, and its end."""

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from exploring import served as serving
from hostilebytes import hostile_requests

import tokenloom as tl
from tokenloom.explore.server import LOOPBACK, MOST, Server
from tokenloom.explore.session import Session

served = functools.partial(serving, token="t")
WAIT = 60  # seconds until a test gives up; a busy machine is slow


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    rows = [{"text": f"document {k}"} for k in range(40)]
    store = tl.build(rows, tmp_path_factory.mktemp("toy") / "s", tokenizer="bytes", progress=False)
    return Session([store.windows(8).shuffle()], ["toy"], 4)


def connected(server):
    return socket.create_connection((LOOPBACK, server.port), timeout=WAIT)


def taken(connection):
    """All that comes until the other end closes."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def asked(server, raw):
    with connected(server) as connection:
        with contextlib.suppress(OSError):  # it may be refused and closed by now
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
        return taken(connection)


def page(server, name="step"):
    return asked(server, f"GET /t/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


def test_it_listens_on_the_loopback_interface_alone_under_a_random_token(session):
    with Server(session) as one, Server(session) as two:
        assert one.server_address[0] == "127.0.0.1"
        assert one.token != two.token
        assert len(one.token) >= 24
        assert one.url == f"http://127.0.0.1:{one.port}/{one.token}/"


def test_whoever_sends_a_byte_now_and_then_is_ended_at_the_deadline(session):
    with served(session, read_seconds=0.5) as server, connected(server) as connection:
        begin, answer = time.monotonic(), b""
        connection.settimeout(0.1)
        for byte in b"GET /t/step HTTP/1.1\r\n" + b"A" * 10_000:
            try:
                connection.sendall(bytes([byte]))
                answer = connection.recv(1 << 16)
                break
            except TimeoutError:
                assert time.monotonic() - begin < WAIT
        connection.settimeout(WAIT)
        assert answer.startswith(b"HTTP/1.1 408")


def test_too_many_at_a_time_are_told_so_and_the_next_is_served(session):
    with served(session) as server:
        held = [connected(server) for _ in range(MOST)]
        end = time.monotonic() + WAIT
        while len(server._open._open) < MOST and time.monotonic() < end:
            time.sleep(0.01)
        # who is refused before it has written may find the connection closed, and no reply
        refused = [page(server) for _ in range(8)]
        assert any(one.startswith(b"HTTP/1.1 503") for one in refused)
        assert not any(one.startswith(b"HTTP/1.1 200") for one in refused)
        for one in held:
            one.close()
        while server._open._open and time.monotonic() < end:
            time.sleep(0.01)
        assert page(server).startswith(b"HTTP/1.1 200")


def test_hostile_requests_over_sockets_leave_it_standing(session):
    with served(session, read_seconds=5) as server:
        for raw in hostile_requests(200, "t", seed=9):
            found = asked(server, raw)
            assert not found.startswith(b"HTTP/1.1 500"), raw
            assert found.startswith(b"HTTP/1.1 ") or found == b""
        assert page(server).startswith(b"HTTP/1.1 200")
        end = time.monotonic() + WAIT
        while server._open._open and time.monotonic() < end:
            time.sleep(0.01)
        assert server._open._open == {}


def test_the_end_closes_what_is_open_and_leaves_no_thread(session):
    before = threading.active_count()
    with served(session, read_seconds=600) as server:
        waiting = connected(server)
        waiting.sendall(b"GET /t/st")
        end = time.monotonic() + WAIT
        while not server._open._open and time.monotonic() < end:
            time.sleep(0.01)
    assert threading.active_count() == before
    waiting.close()


@pytest.fixture
def run_file(tmp_path):
    store = tl.build([{"text": "abcdefgh" * 9}], tmp_path / "s", tokenizer="bytes", progress=False)
    tl.save(store.windows(4).shuffle(), tmp_path / "run.yaml")
    return tmp_path / "run.yaml"


@contextlib.contextmanager
def started(command, **options):
    """A process that hears Ctrl-C, though a shell that put this one in the background does not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(command, **options)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            yield process
        finally:
            process.kill()  # a test that failed waits for nobody


def test_ctrl_c_ends_the_command_cleanly(run_file):
    environment = {**os.environ, "PYTHONPATH": str(Path(tl.__file__).parents[1])}
    command = [sys.executable, "-m", "tokenloom", "explore", str(run_file), "--batch-size", "4"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with started(command, env=environment, **pipes) as process:
        url, tunnel, _ = (process.stdout.readline().strip() for _ in range(3))
        url = url.split()[-1]
        assert url.startswith("http://127.0.0.1:")
        port, token = int(url.split(":")[2].split("/")[0]), url.split("/")[3]
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as connection:
            connection.sendall(f"GET /{token}/ HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert b"<h1>Step 0" in taken(connection)
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as connection:
            raw = f"GET /{token}/overview HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(raw.encode())
            assert b'class="headline"' in taken(connection)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT)
    assert process.returncode == 0
    assert f"ssh -L {port}:127.0.0.1:{port}" in tunnel
    assert "Traceback" not in err
    assert sorted(one.name for one in run_file.parent.iterdir()) == ["run.yaml", "s"]
