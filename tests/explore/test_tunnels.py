"""Through an SSH tunnel: bytes go through another port, and the browser names that one."""

import contextlib
import http.client
import socket
import threading

import pytest
from exploring import served

import tokenloom as tl
from tokenloom.explore.server import LOOPBACK
from tokenloom.explore.session import Session

WAIT = 60  # seconds until a test gives up


def pumped(one, other):
    """Bytes from one socket to the other until its end."""
    with contextlib.suppress(OSError):
        while part := one.recv(1 << 16):
            other.sendall(part)
        other.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def tunnel(port):
    """The near end of ``ssh -L PORT:127.0.0.1:port``; gives its port."""
    threads, sockets, over = [], [], threading.Event()

    def forward(near):
        far = socket.create_connection((LOOPBACK, port), timeout=WAIT)
        sockets.extend([near, far])
        for pair in ((near, far), (far, near)):
            threads.append(threading.Thread(target=pumped, args=pair))
            threads[-1].start()

    def listen():
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                forward(listener.accept()[0])

    with socket.create_server((LOOPBACK, 0)) as listener:
        listener.settimeout(0.1)
        accepting = threading.Thread(target=listen)
        accepting.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            accepting.join(WAIT)
            for one in sockets:
                one.close()
            for one in threads:
                one.join(WAIT)


@pytest.fixture(scope="module")
def far(tmp_path_factory):
    """A server with a mix of two sources, and the port of a tunnel to it."""
    rows = [{"text": f"document {k}"} for k in range(40)]
    path = tmp_path_factory.mktemp("toy") / "s"
    store = tl.build(rows, path, tokenizer="bytes", progress=False)
    run = tl.mix({name: store.windows(8).shuffle().epochs(None) for name in ("a", "b")})
    with served(Session([run], ["toy"], 4), token="t") as server, tunnel(server.port) as near:
        assert near != server.port
        yield server, near


def asked(near, path, host, **headers):
    """Status and text of an answer through the tunnel."""
    connection = http.client.HTTPConnection(LOOPBACK, near, timeout=WAIT)
    connection.request("GET", path, None, {"Host": host, **headers})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


@pytest.mark.parametrize("name", ["127.0.0.1", "[::1]"])
def test_pages_come_through_a_tunnel_with_another_port(far, name):
    _, near = far
    host = f"{name}:{near}"
    for headers in ({}, {"Origin": f"http://{host}"}):
        status, page = asked(near, "/t/step?step=2", host, **headers)
        assert status == 200
        assert "<h1>Step 2</h1>" in page


def test_a_tunnel_opens_nothing_to_others(far):
    server, near = far
    host = f"127.0.0.1:{near}"
    # the address at the far end is another origin than the one that the browser shows
    other = f"http://127.0.0.1:{server.port}"
    assert asked(near, "/t/step", host, Origin=other)[0] == 403
    assert asked(near, "/t/step", f"evil.example:{near}")[0] == 403
    assert asked(near, "/u/step", host)[0] == 404
