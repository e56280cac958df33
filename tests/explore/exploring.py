"""An explorer that is asked without a socket, or served while a test looks at it."""

import contextlib
import threading

from tokenloom.explore.router import reply_to
from tokenloom.explore.server import Server
from tokenloom.explore.shell import link


@contextlib.contextmanager
def serving(server):
    """A server that answers, and is closed afterwards with its thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def served(session, **options):
    """A server of a session, running until the end of a `with` block."""
    return serving(Server(session, **options))


def read(reply):
    """The page of a reply; spaces that keep a line together are spaces."""
    return reply.body.decode().replace("\xa0", " ")


class Asked:
    """A session that is asked without a socket."""

    def __init__(self, session):
        self.session = session

    def get(self, page="", **values):
        """The reply to a GET that passed the gate."""
        return self.target(link(page, **values))

    def target(self, target):
        """The reply to this target, a path below the token."""
        return reply_to(self.session, f"/t/{target}")

    def html(self, page="", status=200, **values):
        """The page that a GET gives, as it is read: a number and its unit have a space."""
        reply = self.get(page, **values)
        text = read(reply)
        assert reply.status == status, text
        return text
