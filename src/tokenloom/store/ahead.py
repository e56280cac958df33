"""Work done ahead of time, by threads that live as long as there is work.

One idea: a source that answers several requests at once (a bucket: 20 ms each, 16 in parallel) is
kept busy while earlier tokens are consumed. Whoever needs a block that is being fetched waits for
that very fetch (`tokenloom.store.cache`), and what fails here is tried again, and told, by whoever
needs it; so nobody waits for these threads, and nothing is lost if they stop.
"""

from __future__ import annotations

import _thread
import contextlib
from collections import deque
from collections.abc import Callable, Iterable

from tokenloom.store.handles import Single, lock_of

__all__ = ["Fetchers"]

Job = Callable[[], object]


class Fetchers(Single):
    """Runs jobs in order of their arrival, several at a time.

    Args:
        parallel: most jobs at a time.
    """

    def __init__(self, parallel: int) -> None:
        self._parallel, self._running = parallel, 0
        self._jobs: deque[Job] = deque()
        self._lock = lock_of(self)

    def _forked(self, torn: bool) -> None:
        """The threads are in the parent; what they had left to do is theirs."""
        self._jobs, self._running = deque(), 0

    def put(self, jobs: Iterable[Job]) -> None:
        """Have these done; where no thread can be started, nothing is done ahead of time."""
        self._jobs.extend(jobs)
        with self._lock:
            wanted = min(len(self._jobs), self._parallel - self._running)
            for _ in range(wanted):
                try:
                    _thread.start_new_thread(self._work, ())
                except RuntimeError:
                    break
                self._running += 1

    def drop(self) -> None:
        """Forget what has not been started."""
        self._jobs.clear()

    @property
    def waiting(self) -> int:
        """Jobs that have not been started."""
        return len(self._jobs)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running -= 1
                    return
                job = self._jobs.popleft()
            with contextlib.suppress(Exception):  # whoever needs it meets the error again
                job()
            del job
