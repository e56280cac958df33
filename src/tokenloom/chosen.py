"""Which documents of a store a dataset is made of: all of them, or a choice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom.line import ChosenLine, Line, WholeLine
from tokenloom.split import SplitSpec, content_hashes, id_hashes, members
from tokenloom.store.reader import Reader

__all__ = ["chosen_documents", "line_of"]


def line_of(reader: Reader, choice: SplitSpec | None) -> Line:
    """The documents of a choice, end to end."""
    if choice is None:
        return WholeLine(reader)
    return ChosenLine(reader, chosen_documents(reader, choice), repr(choice))


def chosen_documents(reader: Reader, choice: SplitSpec | None) -> NDArray[np.int64]:
    """The documents of a choice, in stored order."""
    if choice is None:
        return np.arange(reader.manifest.documents)
    hash_all = id_hashes if choice.by == "id" else content_hashes
    return members(choice, hash_all(reader, choice.seed))
