"""Takes a store → gives its documents as files of other libraries, or in our own format.

`export` writes what others read; `convert` writes what we read best. Both read through `Store`, so
a store of others can be exported and converted as well.
"""

from tokenloom.exchange.conversion import convert
from tokenloom.exchange.run import Exported, export

__all__ = ["Exported", "convert", "export"]
