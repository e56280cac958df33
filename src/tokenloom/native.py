"""Whether the compiled loops are available: `compiled` is the module `tokenloom._native`, or None.

They affect speed only. Each has a NumPy twin (in `batch.cells`, `batch.paint`,
`layout.pack.packers`, `random.permute`, `mixture.merge`) that gives the same bytes. The twin runs
where no compiler was found when tokenloom was installed, or where the environment sets
``TOKENLOOM_NATIVE=0``.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray


def _found() -> Any:
    if os.environ.get("TOKENLOOM_NATIVE") == "0":
        return None
    try:
        return importlib.import_module("tokenloom._native")
    except ImportError:
        return None


compiled: Any = _found()


def plain(array: Any, dtype: Any) -> NDArray[Any]:
    """The array as the compiled loops take it: of this dtype, contiguous and aligned.

    It is copied only if it is not like that already. The loops check it again, because whoever
    calls them may be somebody else.
    """
    made = np.ascontiguousarray(array, dtype)
    return made if made.flags.aligned else made.copy()
