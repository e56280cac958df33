"""Special tokens of a store: which id a word such as BOS stands for."""

from __future__ import annotations

import numpy as np

from tokenloom.errors import ConfigError, TokenizerError
from tokenloom.store.reader import Reader
from tokenloom.words import warn

__all__ = ["filler_token", "named_token", "special"]


def special(reader: Reader, path: str, name: str, *, strict: bool) -> int | None:
    """The tokenizer's BOS or EOS, to be put around documents, if it has one and they have not."""
    manifest = reader.manifest
    found: int | None = getattr(manifest.tokenizer, name) if manifest.tokenizer else None
    message = None
    if any(part.settings.get(name) is not None for part in manifest.parts):
        message = f"its documents have had their {name.upper()} since they were built"
    elif found is None:
        message = f"its tokenizer has no {name.upper()} token"
    if message is None:
        return found
    message = (
        f"{path}: add_{name}: {message}, so none is added. Leave add_{name} out, or name one with "
        f"{name}_id=..."
    )
    if strict:
        raise TokenizerError(message)
    warn(message)
    return None


def named_token(reader: Reader, path: str, name: str, wanted: bool | int) -> int | None:
    """A token that is asked for by its kind (True) or by its number; False is none."""
    if wanted is False or wanted is None:
        return None
    if wanted is not True:
        if not isinstance(wanted, (int, np.integer)) or not 0 <= wanted < 1 << 31:
            raise ConfigError(
                f"{name}: found {wanted!r}, allowed: True, False, or a token, 0 to 2^31 - 1."
            )
        return int(wanted)
    kind = name.partition("_")[0]
    tokenizer = reader.manifest.tokenizer
    found: int | None = getattr(tokenizer, kind) if tokenizer else None
    if found is None:
        raise TokenizerError(
            f"{path}: {name}: the store names no {kind.upper()} token. Give its number: {name}=..."
        )
    if name == "bos" and any(
        part.settings.get("bos") is not None for part in reader.manifest.parts
    ):
        raise TokenizerError(
            f"{path}: {name}: its documents have had their BOS since they were built. Leave it out."
        )
    return found


def filler_token(reader: Reader) -> int:
    """What stands in filler cells unless told otherwise: pad, else eos, else 0."""
    tokenizer = reader.manifest.tokenizer
    known = (tokenizer.pad, tokenizer.eos) if tokenizer else ()
    return next((token for token in known if token is not None), 0)
