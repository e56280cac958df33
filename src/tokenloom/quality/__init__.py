"""Takes an order or a model → gives how good it is, compared with a fair or perfect one.

- `tokenloom.quality.shuffle` measures an order, and gives the values that chance alone would give.
- `tokenloom.quality.leaks` finds out whether documents of a row see each other in a model.
"""

from tokenloom.quality.leaks import LeakReport, alone_probe, leak_probe
from tokenloom.quality.shuffle import ShuffleQuality, fair, measure

__all__ = ["LeakReport", "ShuffleQuality", "alone_probe", "fair", "leak_probe", "measure"]
