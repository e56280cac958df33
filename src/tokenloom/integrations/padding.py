"""How wide a batch is and what fills it: the settings of a collator, checked, and the rule.

Filler stands on the right. It is never looked at, so PAD may share its id with anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenloom.errors import ConfigError, InputError
from tokenloom.words import warn

__all__ = ["PADDING", "checked_limit", "checked_multiple", "pad_instead", "row_width"]

PADDING = {"longest": "longest", True: "longest", "max_length": "max_length"}
PADDING |= {"none": "none", "do_not_pad": "none", False: "none"}
NO_LIMIT = 1 << 31  # a tokenizer without a limit says 10^30


def row_width(cells: Sequence[int], padding: str, max_length: int | None, multiple_of: int) -> int:
    """Cells of every row of a batch.

    Args:
        cells: of each row as it came; `max_length` at most.
        padding: "longest", "max_length" or "none".
        max_length: the width, with padding="max_length".
        multiple_of: the width is rounded up to one.

    >>> row_width([5, 3], "longest", None, 8), row_width([5, 3], "max_length", 6, 1)
    (8, 6)
    """
    longest = max(cells)
    if longest == 0:
        raise InputError("features: found no token at all. Leave out empty rows.")
    if padding == "none" and min(cells) < longest:
        raise InputError(
            f"features: found rows of {min(cells)} to {longest} tokens, allowed is one length with "
            "padding='none'. Say padding='longest'."
        )
    fixed = max_length if padding == "max_length" else None
    width = longest if fixed is None else fixed
    return -(-width // multiple_of) * multiple_of


def checked_multiple(multiple_of: int | None, pad_to_multiple_of: int | None, padding: str) -> int:
    """What the width is a multiple of, under either name."""
    found = multiple_of if pad_to_multiple_of is None else pad_to_multiple_of
    if found is None:
        return 1
    if multiple_of is not None and multiple_of != found:
        raise ConfigError(
            f"Collator.multiple_of: found {multiple_of} beside pad_to_multiple_of={found}, allowed "
            "is one of the two. Leave one out."
        )
    if not isinstance(found, int) or found < 1 or (padding == "none" and found > 1):
        raise ConfigError(
            f"Collator.multiple_of: found {found!r} with padding={padding!r}, allowed is 1 or more,"
            " and nothing but 1 without padding."
        )
    return found


def checked_limit(tokenizer: Any, max_length: int | None, needed: bool) -> int | None:
    """Tokens that a row may have, None for any number."""
    limit = getattr(tokenizer, "model_max_length", None)
    if not isinstance(limit, int) or limit >= NO_LIMIT:
        limit = None
    if max_length is None:
        if needed and limit is None:
            raise ConfigError(
                "Collator.max_length: missing; truncation=True and padding='max_length' need it, "
                "and the tokenizer tells no limit of its model. Give max_length."
            )
        return limit if needed else None
    if not isinstance(max_length, int) or max_length < 1:
        raise ConfigError(f"Collator.max_length: found {max_length!r}, allowed is 1 or more.")
    if limit is not None and max_length > limit:
        raise ConfigError(
            f"Collator.max_length: found {max_length}, allowed is up to {limit}, the "
            "model_max_length of the tokenizer. Give less, or raise that if the model can do more."
        )
    return max_length


def pad_instead(tokenizer: Any, eos: int | None) -> int:
    """What stands in for a PAD that does not exist."""
    instead = "0" if eos is None else f"EOS ({eos})"
    warn(
        f"tokenizer: {type(tokenizer).__name__} has no PAD token, so rows are padded with "
        f"{instead}. Filler is neither seen nor trained; give pad_id to choose another."
    )
    return 0 if eos is None else eos
