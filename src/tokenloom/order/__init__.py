"""Takes rows and their blocks → gives an order: index → row and back, and one source as a run.

`full`, `era`, `block` and `identity` make orders; see `tokenloom.order.orders`.
"""

from tokenloom.layout.layout import Blocks
from tokenloom.order.orders import Order, block, era, full, identity
from tokenloom.version import ORDER_VERSION

__all__ = ["ORDER_VERSION", "Blocks", "Order", "block", "era", "full", "identity"]
