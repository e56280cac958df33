"""Orders as bijections with an inverse: see `tokenloom.order.orders`."""

from tokenloom.order.bands import Blocks
from tokenloom.order.orders import ORDER_VERSION, Order, block, era, full, identity

__all__ = ["ORDER_VERSION", "Blocks", "Order", "block", "era", "full", "identity"]
