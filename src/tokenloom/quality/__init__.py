"""How good an order is, in numbers that have a known value for a fair shuffle.

One idea: a measure without its random expectation says nothing, so each comes with one. See
`tokenloom.quality.shuffle`.
"""

from tokenloom.quality.shuffle import ShuffleQuality, fair, measure

__all__ = ["ShuffleQuality", "fair", "measure"]
