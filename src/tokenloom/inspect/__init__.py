"""Takes a run → gives what it shows: lists, counts and pictures, from integers alone.

- `tokenloom.inspect.splices` lists what spliced examples show, and finds the examples of a start.
- `tokenloom.inspect.simulate` tells what steps will show, read and wait for, before they run.
- `tokenloom.inspect.suspects` finds the documents that losses blame.
- `tokenloom.inspect.coverage` counts how often each token is context and target, and draws it.
"""

from tokenloom.inspect.coverage import Coverage, coverage
from tokenloom.inspect.simulate.answer import Simulation
from tokenloom.inspect.simulate.simulation import simulate_run
from tokenloom.inspect.splices import Listing, places, triples
from tokenloom.inspect.suspects.blamed import blame
from tokenloom.inspect.suspects.findings import Blame

__all__ = [
    "Blame",
    "Coverage",
    "Listing",
    "Simulation",
    "blame",
    "coverage",
    "places",
    "simulate_run",
    "triples",
]
