"""Through an SSH tunnel: bytes go through another port, and the browser names that one."""

import contextlib
import http.client
import socket
import threading
from urllib.parse import urlencode

import browsing
import pytest
from exploring import served
from playwright.sync_api import expect

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
    folder = tmp_path_factory.mktemp("toy")
    rows = [{"text": f"document {k}"} for k in range(40)]
    store = tl.build(rows, folder / "s", tokenizer="bytes", progress=False)
    run = tl.mix({name: store.windows(8).shuffle().epochs(None) for name in ("a", "b")})
    tl.save(run, folder / "run.yaml")
    run = tl.load(folder / "run.yaml")
    with served(Session([run], ["toy"], 4), token="t") as server, tunnel(server.port) as near:
        assert near != server.port
        yield server, near


def asked(near, method, path, host, body=None, **headers):
    """Status and text of an answer through the tunnel."""
    connection = http.client.HTTPConnection(LOOPBACK, near, timeout=WAIT)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, {"Host": host, **named})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


@pytest.mark.parametrize("name", ["127.0.0.1", "[::1]"])
def test_pages_and_an_edit_come_through_a_tunnel_with_another_port(far, name):
    _, near = far
    host = f"{name}:{near}"
    status, page = asked(near, "GET", "/t/step?step=2", host)
    assert status == 200
    assert "<h1>Step 2</h1>" in page
    form = urlencode({"at": "8", "weights": "a=5"})
    about = {"Content_Type": "application/x-www-form-urlencoded", "Origin": f"http://{host}"}
    status, page = asked(near, "POST", "/t/edit", host, form, **about)
    assert status == 200
    assert 'role="alert"' not in page


def test_a_tunnel_opens_nothing_to_others(far):
    server, near = far
    host, form = f"127.0.0.1:{near}", urlencode({"at": "8", "weights": "a=5"})
    about = {"Content_Type": "application/x-www-form-urlencoded"}
    # the address at the far end is another origin than the one that the browser shows
    other = f"http://127.0.0.1:{server.port}"
    assert asked(near, "POST", "/t/edit", host, form, Origin=other, **about)[0] == 403
    assert asked(near, "GET", "/t/step", f"evil.example:{near}")[0] == 403
    assert asked(near, "GET", "/u/step", host)[0] == 404


def test_an_edit_is_shown_while_it_is_typed_and_saved_as_a_file(chromium, far, tmp_path):
    """Through the tunnel, as at the server itself."""
    server, near = far
    url = f"http://127.0.0.1:{near}/t/"
    with browsing.visit(chromium, url + "edit", accept_downloads=True) as seen:
        page = seen.page
        page.locator("[name=at]").fill("8")
        page.locator("[name=weights]").fill("nobody=1")
        page.wait_for_selector("#preview [role=alert]")
        page.locator("[name=weights]").fill("a=5\nb=1")
        expect(page.locator("#preview table").first).to_be_visible()
        with page.expect_download() as waiting:
            page.locator("[name=save]").click()
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        run = server.session.run().run
        assert tl.load(path) == run.edit(at=8, weights={"a": 5, "b": 1})
        page.locator("header nav a").first.click()
        expect(page.locator("h1")).to_have_text("Step 0")
        seen.clean(url)
