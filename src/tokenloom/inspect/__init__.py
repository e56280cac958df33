"""Takes a run → gives what it shows: lists, counts and pictures, from integers alone.

- `tokenloom.inspect.splices` lists what spliced examples show, and finds the examples of a start.
- `tokenloom.inspect.coverage` counts how often each token is context and target, and draws it.
- `tokenloom.diff` says how two runs differ, and because of which settings.
"""

from tokenloom.inspect.coverage import Coverage, coverage
from tokenloom.inspect.diff import KeyChange, RunDiff
from tokenloom.inspect.splices import Listing, places, triples

__all__ = ["Coverage", "KeyChange", "Listing", "RunDiff", "coverage", "places", "triples"]
