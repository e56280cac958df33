"""An explorer that is asked without a socket."""

from tokenloom.explore.query import link
from tokenloom.explore.router import answered


class Asked:
    """A session that is asked without a socket."""

    def __init__(self, session, token="t"):
        self.session, self.token = session, token

    def get(self, page="", **values):
        """The reply to a GET, as a browser of this machine sends it."""
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
