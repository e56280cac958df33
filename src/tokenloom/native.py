"""Whether the compiled loops are there: `compiled` is the module `tokenloom._native`, or None.

One idea: they are a matter of speed alone. NumPy does the same beside each (`batch.cells`,
`batch.paint`, `layout.pack.packers`, `random.permute`), to the byte, where no compiler was found
when tokenloom was installed, or where the environment says ``TOKENLOOM_NATIVE=0``.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

__all__ = ["compiled"]


def _found() -> Any:
    if os.environ.get("TOKENLOOM_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("tokenloom._native")
    except ImportError:
        return None


compiled: Any = _found()
