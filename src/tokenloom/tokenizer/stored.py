"""The tokenizer of a store: encodes and decodes with the copy stored next to the tokens.

One idea: opening a store never runs code that the store names, so a tokenizer that was the
builder's own function is named but never imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.bind import unbind
from tokenloom.errors import TokenizerError
from tokenloom.store import format as fmt
from tokenloom.store.handles import lazy
from tokenloom.tokenizer.decoders import decode, token_strings
from tokenloom.tokenizer.encoders import reference_encoder
from tokenloom.tokenizer.spec import TokenizerSpec, rebuild


class StoredTokenizer:
    """The tokenizer that made a store's ids, opened from the store's own copy.

    `kind`, `name`, `vocab_size`, `bos`, `eos`, `pad` (ids, or None), `sha256` (of the file) and
    `identity` (of what its ids mean, empty for a function) are available immediately. The tokenizer
    library is loaded on the first call that encodes or decodes.
    """

    def __init__(self, record: fmt.TokenizerRecord, sidecar: Callable[[str], bytes]) -> None:
        self._record, self._sidecar = record, sidecar
        self.kind, self.name, self.vocab_size = record.kind, record.name, record.vocab_size
        self.bos, self.eos, self.pad = record.bos, record.eos, record.pad
        self.sha256, self.identity = record.sha256, record.identity

    @lazy
    def spec(self) -> TokenizerSpec:
        """The tokenizer as plain data, with its payload."""
        described = unbind(self._record)
        file, _ = described.pop("file"), described.pop("identity")
        spec = rebuild(described, self._sidecar(file) if file else b"")
        return dataclasses.replace(spec, reference=None)  # a store names no function to import

    def encode(self, text: str) -> NDArray[np.int32]:
        """The ids of a text, without specials.

        Raises:
            TokenizerError: the ids were made by a function; a store never causes an import, so
                call that function yourself.
        """
        if self.kind == "callable":
            raise TokenizerError(
                f"tokenizer {self.name!r}: the ids were made by the builder's own function. "
                "Opening a store runs no code that the store names; import and call it yourself."
            )
        return reference_encoder(self.spec).encode([text]).ids.astype(np.int32)

    def decode(self, ids: ArrayLike) -> str:
        """The text of ids."""
        return decode(self.spec, np.asarray(ids))

    def token_strings(self, ids: ArrayLike) -> list[str]:
        """One printable string for each id."""
        return token_strings(self.spec, np.asarray(ids))

    def __repr__(self) -> str:
        specials = f"bos={self.bos}, eos={self.eos}, pad={self.pad}"
        return f"StoredTokenizer({self.name!r}, {self.kind}, {self.vocab_size:,} ids, {specials})"
