"""Who may ask: this machine's browser with the token, and no one else."""

from email.message import Message

import pytest

from tokenloom.explore.router import refusal

TOKEN = "secret-token_1"


def status(target=f"/{TOKEN}/step", host="localhost:8000", **headers):
    """The status of a refusal; None if the request is let in."""
    named = Message()
    for name, value in (("Host", host), *headers.items()):
        if value is not None:
            named[name] = value
    return refusal(target, named, TOKEN)


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


def test_a_second_host_is_refused():
    assert status(HOST="localhost:8000") == 400


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


def test_nothing_but_pages_and_named_assets_is_served(asked):
    for name in ("page.css", "page.js", "explore.js"):
        assert asked.get(name).status == 200
    for name in ("page.py", "sheet.py", "assets", "nothing", "explore", "page.css.map"):
        assert asked.target(name).status == 404


def test_control_a_page_that_fails_is_a_500_and_others_still_work(asked, monkeypatch, caplog):
    from tokenloom.explore import router

    monkeypatch.setitem(router.PAGES, "find", lambda session, query: 1 / 0)
    assert asked.get("find").status == 500
    assert "ZeroDivisionError" in caplog.text
    assert asked.get("step").status == 200
