"""Who may ask: this machine's browser with the token, and no one else."""

import pytest
from hostilebytes import hostile_requests
from pagetoys import MARK

from tokenloom.explore.gate import refusal
from tokenloom.explore.wire_text import ALWAYS, HttpRequest, parse_head, reply_bytes

TOKEN = "secret-token_1"


def status(method="GET", target=f"/{TOKEN}/step", host="localhost:8000", **headers):
    """The status of a refusal; None if the request is let in."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    known = {} if host is None else {"host": host}
    found = refusal(HttpRequest(method=method, target=target, headers=known | named), TOKEN)
    return None if found is None else found.status


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "127.0.0.1:65535", "[::1]", "[::1]:8080"]
)
def test_a_loopback_name_with_any_port_is_let_in(host):
    assert status(host=host) is None
    assert status(host=host, origin=f"http://{host}") is None


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "127.0.0.2"),
        *("0.0.0.0", "localhost:", "localhost:port", "localhost:123456", "user@localhost"),
        *(
            "localhost localhost",
            "localhost,evil",
            "[::1",
            "::1",
            "127.1",
            "2130706433",
            "\tlocalhost",
        ),
    ],
)
def test_another_host_is_refused(host):
    assert status(host=host) == 403


def test_a_missing_or_empty_host_is_refused():
    assert status(host=None) == 400
    assert status(host="") == 400


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "https://localhost:8000",
        "http://localhost:9",
        "",
        "localhost",
    ],
)
def test_another_origin_is_refused(origin):
    assert status(origin=origin) == 403
    assert status("HEAD", origin=origin) == 403


@pytest.mark.parametrize(
    "target",
    [
        *("/", "//", "/other/step", "/secret-token_/step", f"/{TOKEN.upper()}/step", "step", "*"),
        *(f"//{TOKEN}/step", f"/{TOKEN}//step", f"/{TOKEN}/../step", f"/{TOKEN}/step/..", "/%2e"),
        *(f"/{TOKEN}/%2e%2e/passwd", f"/{TOKEN}/step%2f", f"/{TOKEN}/%00", f"/{TOKEN}/step/more"),
        *(f"http://localhost:8000/{TOKEN}/step", "/%73ecret-token_1/step", f"/{TOKEN}\\step"),
        *(f"/{TOKEN}/Step", f"/{TOKEN}/step;a", f"/{TOKEN}/step#a", "/é/step", f"/{TOKEN}%2fstep"),
    ],
)
def test_another_path_or_token_is_a_page_that_does_not_exist(target):
    assert status(target=target) == 404


def test_the_reply_to_a_wrong_token_tells_nothing():
    request = HttpRequest(method="GET", target="/wrong/step", headers={"host": "localhost"})
    known = HttpRequest(method="GET", target="/wrong/nothing", headers={"host": "localhost"})
    assert refusal(request, TOKEN) == refusal(known, TOKEN)
    assert TOKEN.encode() not in reply_bytes(refusal(request, TOKEN))


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"]
)
def test_only_get_and_head_are_answered(method):
    assert status(method) == 405
    assert status(method, f"/{TOKEN}/edit", content_length="5") == 405
    assert status("HEAD") is None


def test_a_request_with_a_body_is_refused():
    for method in ("GET", "HEAD"):
        assert status(method, content_length="0") is None
        assert status(method, content_length="1") == 413


def test_the_reply_to_a_head_is_that_to_a_get_without_its_body(asked):
    for name in ("step", "page.css", "nothing", "row?index=999999999"):
        requests = (f"{m} /t/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n" for m in ("GET", "HEAD"))
        whole, head = (reply_bytes(asked.raw(one.encode())) for one in requests)
        assert head.endswith(b"\r\n\r\n")
        assert whole.startswith(head)
        assert len(whole) > len(head)


HEAD = b"GET /a HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (HEAD + b"Host: localhost\r\n\r\n", 400),
        (HEAD + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", 400),
        (HEAD + b"Content-Length: +1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 9999999999\r\n\r\n", 400),
        (HEAD + b" folded\r\n\r\n", 400),
        (HEAD + b"A\x00: b\r\n\r\n", 400),
        (HEAD + b"A: \x00\r\n\r\n", 400),
        (HEAD + b"A b: c\r\n\r\n", 400),
        (HEAD + b"A: b\nB: c\r\n\r\n", 400),
        (b"GET  /a HTTP/1.1\r\n\r\n", 400),
        (b"GET /a HTTP/2.0\r\n\r\n", 400),
        (b"GET /a\r\n\r\n", 400),
        (b"GET /\x01 HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
        (HEAD + b"A: b\r\n" * 65 + b"\r\n", 431),
        (HEAD + b"A: " + b"b" * 20_000 + b"\r\n\r\n", 431),
        (HEAD, 400),
        (b"", 400),
    ],
)
def test_what_is_no_plain_request_is_refused(raw, status):
    assert parse_head(raw).status == status


def test_every_reply_has_the_headers_that_keep_others_out(asked):
    for reply in (asked.get("step"), asked.get("nothing"), asked.get("page.css"), asked.get("row")):
        sent = reply_bytes(reply).partition(b"\r\n\r\n")[0].decode().splitlines()
        assert all(f"{name}: {value}" in sent for name, value in ALWAYS)
    policy = dict(ALWAYS)["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_nothing_but_pages_and_named_assets_is_served(asked):
    for name in ("page.css", "page.js", "explore.js"):
        assert asked.get(name).status == 200
    for name in ("page.py", "sheet.py", "assets", "nothing", "explore", "..", "page.css.map"):
        assert asked.get(name).status == 404


def stands(asked, count, seed):
    """Hostile requests, none of which makes a page fail or lets a text be code."""
    seen = set()
    for raw in hostile_requests(count, "t", seed):
        reply = asked.raw(raw)
        assert reply.status != 500, raw
        assert MARK.encode() not in reply.body, raw
        assert len(reply.body) < 4_000_000
        seen.add(reply.status)
    assert {200, 400, 403, 404, 405} <= seen
    assert asked.get("step").status == 200


def test_hostile_requests_leave_it_standing(asked):
    stands(asked, 500, 1)


@pytest.mark.slow
def test_ten_thousand_hostile_requests_leave_it_standing(asked, evil):
    stands(asked, 9_000, 2)
    stands(evil, 1_000, 3)


def test_control_a_page_that_fails_is_a_500_and_others_still_work(asked, monkeypatch, caplog):
    from tokenloom.explore import router

    monkeypatch.setitem(router.PAGES, "find", lambda session, query: 1 / 0)
    assert asked.get("find").status == 500
    assert "ZeroDivisionError" in caplog.text
    assert asked.get("step").status == 200
