"""How good an order is, in numbers that have a known value for a fair shuffle.

One idea: a measure without its random expectation says nothing, so each comes with one:
`tokenloom.quality.shuffle` measures, `tokenloom.quality.chance` says what is fair.
"""

from tokenloom.quality.chance import fair
from tokenloom.quality.shuffle import ShuffleQuality, measure

__all__ = ["ShuffleQuality", "fair", "measure"]
