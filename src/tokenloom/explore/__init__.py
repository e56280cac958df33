"""Takes one run or two → gives pages about any step of them, served to this machine alone.

- `tokenloom.explore.session` holds the runs.
- `tokenloom.explore.router` makes the reply to a request, without a socket.
- `tokenloom.explore.server` answers on the loopback interface, for `tokenloom explore run.yaml`.
"""
