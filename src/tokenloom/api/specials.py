"""Special tokens of a store: the id of a name such as BOS.

Also the warnings that a user gets before a packed dataset runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tokenloom.errors import ConfigError, TokenizerError, plural, warn
from tokenloom.layout.pack.plan import Tally
from tokenloom.store import format as fmt
from tokenloom.store.reader import Reader


def check_used(
    render: dict[str, Any], add_bos: bool, bos_id: int | None, add_eos: bool, eos_id: int | None
) -> None:
    """Refuse a special token that is given but not used: giving its id does not insert it."""
    looked_at = not render.get("train_on_eos", True) or render.get("segments") == "eos"
    for name, given, used in (
        ("bos", bos_id, add_bos),
        ("eos", eos_id, add_eos or looked_at),
    ):
        if given is not None and not used:
            raise ConfigError(
                f"{name}_id: found {given}, but nothing uses it. Leave it out, or pass "
                f"add_{name}=True to insert it for every document."
            )


def tell_losses(path: str, tally: Tally) -> None:
    """Warn before anything runs when some tokens are in no row."""
    if not tally.lost:
        return
    why = {
        "documents filtered by length": tally.filtered_tokens,
        "documents truncated": tally.truncated_tokens,
        "documents dropped as too long": tally.overlong_tokens,
        "rows dropped as too short": tally.short_row_tokens,
    }
    listed = ", ".join(f"{count:,} in {name}" for name, count in why.items() if count)
    warn(
        f"{path}: pack: {tally.lost:,} of {tally.tokens:,} tokens "
        f"({tally.lost / tally.tokens:.1%}) are in no row: {listed}. overflow='split' and no "
        "filters lose nothing."
    )


def tell_cuts(path: str, tally: Tally, columns: Iterable[str]) -> None:
    """Warn if documents are cut where a loss column says that they are prompts and answers."""
    if not tally.cut or set(fmt.LOSS_COLUMNS).isdisjoint(columns):
        return
    warn(
        f"{path}: pack: {tally.cut:,} of {plural(tally.documents, 'document')} are cut into pieces "
        "to fit into rows, and a column of the store says which tokens are trained on: answers may "
        "be trained on without their prompts. Use a longer seq_len, overflow='drop' or "
        "overflow='truncate'."
    )


def special(reader: Reader, path: str, name: str, *, strict: bool) -> int | None:
    """The tokenizer's BOS or EOS to insert; None if it has none or the documents already do."""
    manifest = reader.manifest
    found: int | None = getattr(manifest.tokenizer, name) if manifest.tokenizer else None
    message = None
    if any(part.settings.get(name) is not None for part in manifest.parts):
        message = f"its documents already got their {name.upper()} when they were built"
    elif found is None:
        message = f"its tokenizer has no {name.upper()} token"
    if message is None:
        return found
    message = (
        f"{path}: add_{name}: {message}, so none is added. Leave add_{name} out, or give one with "
        f"{name}_id=..."
    )
    if strict:
        raise TokenizerError(message)
    warn(message)
    return None


def named_token(reader: Reader, path: str, name: str, wanted: bool | int) -> int | None:
    """A token requested by its kind (True) or by its id; False is none."""
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
            f"{path}: {name}: the store names no {kind.upper()} token. Give its id: {name}=..."
        )
    if name == "bos" and any(
        part.settings.get("bos") is not None for part in reader.manifest.parts
    ):
        raise TokenizerError(
            f"{path}: {name}: its documents already got their BOS when they were built. Leave it "
            "out."
        )
    return found


def filler_token(reader: Reader) -> int:
    """The default token of filler cells: pad, else eos, else 0."""
    tokenizer = reader.manifest.tokenizer
    known = (tokenizer.pad, tokenizer.eos) if tokenizer else ()
    return next((token for token in known if token is not None), 0)
