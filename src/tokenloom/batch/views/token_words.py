"""What the tokens of rows stand for, by the tokenizer of each row's store.

One idea: a row comes from one source, and a source keeps its tokenizer; a row without one, or whose
tokenizer cannot be loaded here, shows its ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from tokenloom.errors import TokenloomError
from tokenloom.store.reader import Reader
from tokenloom.trace.contents import decoder_of

__all__ = ["token_strings"]


def token_strings(
    tokens: NDArray[Any], sources: Sequence[str], readers: Mapping[str, Reader]
) -> list[list[str]]:
    """One text for each token of each row.

    Args:
        tokens: of the rows [B, S].
        sources: the name of each row's source.
        readers: the store of each source that is known.

    >>> import numpy as np
    >>> token_strings(np.array([[7, 9]]), ["main"], {})
    [['7', '9']]
    """
    decoders = {
        name: decoder_of(readers[name]) for name in dict.fromkeys(sources) if name in readers
    }
    found = []
    for row, name in zip(tokens, sources, strict=True):
        decoder = decoders.get(name)
        try:
            strings = None if decoder is None else decoder.token_strings(row)
        except TokenloomError:  # its library is not here, or it was somebody's own function
            strings = decoders[name] = None
        found.append([str(one) for one in row.tolist()] if strings is None else strings)
    return found
