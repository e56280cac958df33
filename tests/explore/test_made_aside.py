"""The report is made beside the pages: once, told about, and stopped with the server."""

import os
import threading
import time

import pytest
from exploring import Asked

import tokenloom as tl
from tokenloom.explore import made_aside
from tokenloom.explore import session as session_module
from tokenloom.explore.made_aside import FAILED, Aside
from tokenloom.explore.server import Server
from tokenloom.explore.session import Session
from tokenloom.report import report_on
from tokenloom.store.handles import ThreadOwner

WAIT = 60  # seconds until a test gives up; a busy machine is slow


class Held:
    """A report that says something, waits, says something else, and is made or fails."""

    def __init__(self, error=None):
        self.go, self.told, self.calls, self.error = threading.Event(), threading.Event(), [], error

    def __call__(self, number, tell):
        self.calls.append(number)
        tell(f"part one of {number}")
        self.told.set()
        assert self.go.wait(WAIT)
        tell("part two")
        if self.error is not None:
            raise self.error
        return f"report {number}"


@pytest.fixture
def held():
    """It is let go at the end, whatever the test does."""
    found = Held()
    yield found
    found.go.set()


def over(maker, number=0):
    end = time.monotonic() + WAIT
    while not (found := maker.ask(number)).is_over:
        assert time.monotonic() < end
        time.sleep(0.002)
    return found


def test_asking_answers_at_once_with_what_is_being_done(held):
    maker = Aside(held)
    assert maker.known(0) is None
    assert maker.ask(0).made is None
    assert held.told.wait(WAIT)
    assert (maker.known(0).now, maker.known(0).is_over) == ("part one of 0", False)
    held.go.set()
    assert over(maker).made == "report 0"
    assert over(maker).now == "part two"


def test_whoever_asks_meanwhile_starts_nothing_and_one_thread_makes_both(held):
    maker, before = Aside(held), threading.active_count()
    for number in (0, 1, 0, 1, 1, 0):
        maker.ask(number)
    assert threading.active_count() == before + 1
    assert held.told.wait(WAIT)
    assert maker.known(1).now == made_aside.WAITING
    held.go.set()
    assert [over(maker, number).made for number in (0, 1)] == ["report 0", "report 1"]
    assert held.calls == [0, 1]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (tl.StoreCorrupt("s: a byte is another one."), "s: a byte is another one."),
        (KeyError("wiki"), "'wiki'"),
        (ZeroDivisionError("secret"), FAILED),
    ],
    ids=["ours", "lookup", "bug"],
)
def test_a_failure_is_told_in_its_words_and_tried_again_only_on_request(error, said):
    held = Held(error)
    held.go.set()
    maker = Aside(held)
    assert (over(maker).failure, over(maker).made) == (said, None)
    assert maker.ask(0).failure == said
    assert held.calls == [0]
    held.error = None
    maker.ask(0, again=True)
    assert over(maker).made == "report 0"
    maker.ask(0, again=True)  # it did not fail
    assert held.calls == [0, 0]


def test_a_machine_without_threads_says_so(monkeypatch):
    def none(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    found = Aside(Held()).ask(0)
    assert found.failure == "no thread can be started (can't start new thread)."


def test_stopping_ends_at_the_next_part_and_asking_again_starts_anew(held):
    maker = Aside(held)
    assert isinstance(maker, ThreadOwner)  # so the end of the process tells it, too
    maker.ask(0)
    maker.ask(1)
    assert held.told.wait(WAIT)
    maker.stop(0.01)
    assert maker._busy  # it waits no longer than it was told to
    held.go.set()
    maker.stop(WAIT)
    assert not maker._busy
    assert (maker.known(0), maker.known(1), held.calls) == (None, None, [0])
    assert over(maker, 1).made == "report 1"


def test_control_what_is_not_stopped_is_made_to_its_end(held):
    maker = Aside(held)
    maker.ask(0)
    held.go.set()
    assert over(maker).now == "part two"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_the_child_of_a_fork_keeps_what_is_finished_and_nothing_under_way(held):
    maker = Aside(held)
    held.go.set()
    over(maker, 0)
    held.go.clear()
    held.told.clear()
    maker.ask(1)
    assert held.told.wait(WAIT)
    maker._forked(torn=False)  # what the child does
    assert (maker.known(0).made, maker.known(1), maker._busy) == ("report 0", None, False)
    maker._known[1] = maker._known[0]  # the thread of this process goes on


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
        assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in page
        assert '<a href="overview" class="button" id="look">' in page
        now = page.partition('id="now">')[2].partition("<")[0]
        if now in parts and now not in shown:
            shown.append(now)
            assert asked.get("step").status == 200  # other pages are there meanwhile
            go.release()
        time.sleep(0.002)
    assert shown == parts
    assert parts[0] == "what is trained"
    assert any(one.startswith("simulating ") for one in parts)
    assert parts[-1].endswith(" figure")
    assert "What is trained" in page
    assert "http-equiv" not in page  # it is not loaded again


def test_the_overview_shows_why_there_is_no_report_and_tries_again_once(run, monkeypatch):
    calls = []

    def torn(*given, **named):
        calls.append(1)
        raise tl.StoreCorrupt("s: <b>a byte</b> is another one.")

    monkeypatch.setattr(session_module, "report_on", torn)
    asked = Asked(Session([run, run], ["toy", "other"], 4))
    for _ in range(2):
        page = asked.made("overview", run=1)
        assert "cannot be made: s: &lt;b&gt;a byte&lt;/b&gt; is another one." in page
        assert 'href="overview?run=1&amp;again=1"' in page
        assert "http-equiv" not in page
    assert len(calls) == 1
    monkeypatch.setattr(session_module, "report_on", report_on)
    reply = asked.get("overview", run=1, again=1)
    assert (reply.status, dict(reply.headers)["Location"]) == (303, "overview?run=1")
    assert "What is trained" in asked.made("overview", run=1)


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
