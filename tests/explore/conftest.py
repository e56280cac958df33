"""Runs to explore, made once for all tests of a file."""

import threading

import browsing
import pytest
from buckets import moto, moto_process, place, ranges, ranges_process  # noqa: F401
from exploring import Asked
from pagetoys import everything_run, hostile_run

from tokenloom.explore import session as session_module
from tokenloom.explore.session import Session
from tokenloom.report import report_on


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A mix of windows, packed and spliced rows with an edit."""
    return everything_run(tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="module")
def asked(run):
    """The same, explored."""
    return Asked(Session([run], ["everything"], 16))


@pytest.fixture(scope="module")
def evil(tmp_path_factory):
    """A run whose every word is an attack, explored."""
    from pagetoys import EVIL

    return Asked(Session([hostile_run(tmp_path_factory.mktemp("evil"))], [EVIL], 4))


@pytest.fixture(scope="module")
def chromium():
    """A running browser; while it runs, nothing else in this process may use asyncio."""
    with browsing.browser() as running:
        yield running


@pytest.fixture
def slow(monkeypatch):
    """The real report, which waits before each of its parts but the first until it may go on."""
    go, parts = threading.Semaphore(0), []

    def reported(run, *, tell, **settings):
        def told(what):
            tell(what)
            parts.append(what)
            assert go.acquire(timeout=60)

        return report_on(run, tell=told, **settings)

    monkeypatch.setattr(session_module, "report_on", reported)
    yield go, parts
    go.release(999)
