"""How good a thing is, in numbers that have a known value for a fair or a perfect one.

- `tokenloom.quality.shuffle` measures an order, `tokenloom.quality.chance` says what is fair.
- `tokenloom.quality.packing` says what each way of packing costs, before anything is packed.
- `tokenloom.quality.contamination` finds out whether documents of a row see each other in a model.
"""

from tokenloom.quality.chance import fair
from tokenloom.quality.contamination import LeakReport, alone_probe, leak_probe
from tokenloom.quality.shuffle import ShuffleQuality, measure

__all__ = ["LeakReport", "ShuffleQuality", "alone_probe", "fair", "leak_probe", "measure"]
