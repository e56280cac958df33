"""Takes one run or two → gives pages about any step of them, served to this machine alone.

- `Session` holds the runs; `answered` is a request → a reply, without a socket.
- `serve` answers on the loopback interface until it is told to stop; `tokenloom explore run.yaml`.
"""

from tokenloom.explore.router import answered
from tokenloom.explore.server import Server, serve
from tokenloom.explore.session import Session

__all__ = ["Server", "Session", "answered", "serve"]
