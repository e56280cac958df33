"""The version of the package, in one place."""

from __future__ import annotations

__all__ = ["ORDER_VERSION"]

ORDER_VERSION = 1

__version__ = "0.1.0"
