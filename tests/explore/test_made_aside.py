"""The report is made beside the pages: once, told about, and stopped with the server."""

import threading
import time

import pytest
from exploring import Asked

import tokenloom as tl
from tokenloom.explore import session as session_module
from tokenloom.explore.server import Server
from tokenloom.explore.session import Session
from tokenloom.report import report_on

WAIT = 60  # seconds until a test gives up; a busy machine is slow


@pytest.fixture
def run(tmp_path):
    store = tl.build([{"text": "abcd" * 99}], tmp_path / "s", tokenizer="bytes", progress=False)
    return store.windows(8).shuffle()


def test_the_overview_tells_every_part_and_is_the_report_at_the_end(run, slow):
    go, parts = slow
    asked, shown = Asked(Session([run], ["toy"], 4)), []
    end = time.monotonic() + WAIT
    while 'id="making"' in (page := asked.html("overview")):
        assert time.monotonic() < end
        assert '<meta http-equiv="refresh"' in page  # without a script it loads itself again
        now = page.partition('id="now">')[2].partition("<")[0]
        if now in parts and now not in shown:
            shown.append(now)
            assert asked.get("step").status == 200  # other pages are there meanwhile
            go.release()
        time.sleep(0.002)
    assert shown == parts
    assert len(parts) > 5
    assert page.count('class="headline"') == 5
    assert "http-equiv" not in page


def test_the_overview_shows_why_there_is_no_report_and_tries_again_once(run, monkeypatch):
    calls = []

    def torn(*given, **named):
        calls.append(1)
        raise tl.StoreCorrupt("s: <b>a byte</b> is another one.")

    monkeypatch.setattr(session_module, "report_on", torn)
    asked = Asked(Session([run, run], ["toy", "other"], 4))
    for _ in range(2):
        page = asked.made("overview", run=1)
        assert "s: &lt;b&gt;a byte&lt;/b&gt; is another one." in page
        assert 'href="overview?run=1&amp;again=1"' in page
        assert "http-equiv" not in page
    assert len(calls) == 1
    monkeypatch.setattr(session_module, "report_on", report_on)
    reply = asked.get("overview", run=1, again=1)
    assert (reply.status, dict(reply.headers)["Location"]) == (303, "overview?run=1")
    assert 'class="headline"' in asked.made("overview", run=1)


def test_closing_the_server_ends_the_thread_at_the_next_part(run, slow):
    go, parts = slow
    before = threading.active_count()
    session = Session([run], ["toy"], 4)
    with Server(session) as server:
        session.reports.ask(0)
        end = time.monotonic() + WAIT
        while not parts and time.monotonic() < end:
            time.sleep(0.002)
        threading.Timer(0.05, go.release, [99]).start()
        server.server_close()
    assert len(parts) == 1
    assert session.reports.known(0) is None
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.002)  # the timer
    assert threading.active_count() == before
