"""Takes a run, a batch size and a rank → gives that rank's batches, and a state of one integer.

The only package of the flow with a thread.
"""

from tokenloom.loader.forecast import Forecast
from tokenloom.loader.loader import Loader, LoaderStats
from tokenloom.loader.state import latest_state, read_state, write_state

__all__ = ["Forecast", "Loader", "LoaderStats", "latest_state", "read_state", "write_state"]
