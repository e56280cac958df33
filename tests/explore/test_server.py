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
from pagetoys import EVIL, MARK, hostile_run

import tokenloom as tl
from tokenloom.explore.server import ALWAYS, LOOPBACK, MAX_REQUESTS, RequestHandler, Server
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


def page_request(name, method="GET"):
    return f"{method} /t/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def page(server, name="step"):
    return asked(server, page_request(name))


def test_it_listens_on_the_loopback_interface_alone_under_a_random_token(session):
    with Server(session) as one, Server(session) as two:
        assert one.server_address[0] == "127.0.0.1"
        assert one.token != two.token
        assert len(one.token) >= 24
        assert one.url == f"http://127.0.0.1:{one.port}/{one.token}/"


def test_every_reply_has_the_headers_that_keep_others_out(session):
    policy = dict(ALWAYS)["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    with served(session) as server:
        for raw in (
            *(page_request(name) for name in ("step", "nothing", "page.css", "row", "row?index=x")),
            page_request("step", "POST"),
            *(b"GET /t/step\r\nHost: localhost\r\n\r\n", b"GET /t/step\r\n\r\n", b"\x00\r\n\r\n"),
            b"GET /" + b"a" * (1 << 17) + b" HTTP/1.1\r\n\r\n",
        ):
            head = asked(server, raw).partition(b"\r\n\r\n")[0].decode().splitlines()
            assert head[0].startswith("HTTP/1.0 "), raw
            assert all(f"{name}: {value}" in head for name, value in ALWAYS), raw


def test_the_reply_to_a_head_is_that_to_a_get_without_its_body(session):
    with served(session) as server:
        for name in ("step", "page.css", "nothing", "row?index=999999999"):
            whole, head = (asked(server, page_request(name, one)) for one in ("GET", "HEAD"))
            assert head.endswith(b"\r\n\r\n")
            assert whole.startswith(head)
            assert len(whole) > len(head)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_only_get_and_head_are_answered(session, method):
    with served(session) as server:
        assert asked(server, page_request("step", method)).startswith(b"HTTP/1.0 501 ")


def test_the_reply_to_a_wrong_token_tells_nothing(session):
    with served(session) as server:
        replies = {
            asked(server, f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            for path in ("wrong/step", "wrong/nothing", "wrong/", "", "T/step", "t/../t/step")
        }
        (reply,) = replies
        assert reply.startswith(b"HTTP/1.0 404 ")
        assert server.token.encode() not in reply.partition(b"<p>")[2].replace(b"Not Found", b"")


def test_a_client_that_sends_nothing_is_ended(session, monkeypatch):
    monkeypatch.setattr(RequestHandler, "timeout", 0.3)
    with served(session) as server, connected(server) as connection:
        connection.sendall(b"GET /t/st")
        assert taken(connection) == b""


def test_one_connection_too_many_gets_a_503_and_the_next_is_served(session):
    with served(session) as server:
        held = [connected(server) for _ in range(MAX_REQUESTS)]
        end = time.monotonic() + WAIT
        while len(server.connections) < MAX_REQUESTS and time.monotonic() < end:
            time.sleep(0.01)
        # who is refused before it has written may find the connection closed, and no reply
        refused = [page(server) for _ in range(8)]
        assert any(one.startswith(b"HTTP/1.0 503") for one in refused)
        assert not any(one.startswith(b"HTTP/1.0 200") for one in refused)
        for one in held:
            one.close()
        while server.connections and time.monotonic() < end:
            time.sleep(0.01)
        assert page(server).startswith(b"HTTP/1.0 200")


def withstands(server, count, seed):
    """Send hostile requests, none of which makes a page fail or lets a text be code."""
    seen = set()
    for raw in hostile_requests(count, "t", seed):
        reply = asked(server, raw)
        assert reply == b"" or reply.startswith(b"HTTP/1.0 "), raw
        assert not reply.startswith(b"HTTP/1.0 500"), raw
        assert MARK.encode() not in reply, raw
        assert len(reply) < 4_000_000
        seen.add(reply[9:12])
    assert {b"200", b"400", b"403", b"404", b"501"} <= seen
    end = time.monotonic() + WAIT
    while server.connections and time.monotonic() < end:
        time.sleep(0.01)
    assert server.connections == set()
    assert page(server).startswith(b"HTTP/1.0 200")


def test_hostile_requests_leave_it_standing(session):
    with served(session) as server:
        withstands(server, 500, 1)


@pytest.mark.slow
def test_a_thousand_hostile_requests_about_hostile_texts_leave_it_standing(tmp_path):
    with served(Session([hostile_run(tmp_path)], [EVIL], 4)) as server:
        withstands(server, 1000, 3)


def test_the_end_closes_what_is_open_and_leaves_no_thread(session):
    before = threading.active_count()
    with served(session) as server:
        waiting = connected(server)
        waiting.sendall(b"GET /t/st")
        end = time.monotonic() + WAIT
        while not server.connections and time.monotonic() < end:
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
