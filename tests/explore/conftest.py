"""Runs to explore, made once for all tests of a file."""

import browsing
import pytest
from pagetoys import everything_run, hostile_run

from tokenloom.explore.router import answered
from tokenloom.explore.session import Session


class Asked:
    """A session that is asked without a socket."""

    def __init__(self, session, token="t"):
        self.session, self.token = session, token

    def get(self, page="", **values):
        """The reply to a GET, as a browser of this machine sends it."""
        from tokenloom.explore.query import link

        target = f"/{self.token}/{link(page, **values)}"
        return self.raw(f"GET {target} HTTP/1.1\r\nHost: localhost:8000\r\n\r\n".encode())

    def raw(self, request):
        """The reply to these bytes."""
        return answered(self.session, self.token, request)

    def html(self, page="", status=200, **values):
        """The page that a GET gives."""
        reply = self.get(page, **values)
        text = reply.body.decode()
        assert reply.status == status, text
        return text


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


@pytest.fixture(scope="session")
def chromium():
    """A running browser."""
    with browsing.browser() as running:
        yield running
