"""What is said to a user before a packed dataset runs."""

from __future__ import annotations

from typing import Any

from tokenloom.errors import ConfigError
from tokenloom.layout.packed import Packed
from tokenloom.words import warn

__all__ = ["check_used", "tell_losses"]


def check_used(
    render: dict[str, Any], add_bos: bool, bos_id: int | None, add_eos: bool, eos_id: int | None
) -> None:
    """Refuse a special token that is named but not used: its name does not put it anywhere."""
    looked_at = not render.get("train_on_eos", True) or render.get("segments") == "eos"
    for name, given, used in (
        ("bos", bos_id, add_bos),
        ("eos", eos_id, add_eos or looked_at),
    ):
        if given is not None and not used:
            raise ConfigError(
                f"{name}_id: found {given}, but nothing uses it. add_{name}=True puts it there "
                "for every document."
            )


def tell_losses(path: str, layout: object) -> None:
    """Say before anything runs how many tokens are in no row."""
    tally = layout.groups.tally if isinstance(layout, Packed) else None
    if tally is None or not tally.lost:
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
