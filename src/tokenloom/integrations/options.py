"""The options of `block_tokenize`, checked before a text is looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.keys import check_seed
from tokenloom.words import near_miss

__all__ = ["OPTION_NAMES", "STRATEGIES", "BlockOptions"]

# The words of this function → the strategies of `layout.packers`, where they mean something else:
# there "best_fit" places documents as they arrive, here the longest come first.
STRATEGIES = {
    "greedy": "greedy",
    "best_fit": "best_fit_decreasing",
    "first_fit": "first_fit_decreasing",
    "best_fit_decreasing": "best_fit_decreasing",
    "first_fit_decreasing": "first_fit_decreasing",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockOptions:
    """What `block_tokenize` was told, checked; its docstring says what each means."""

    max_length: int = 512
    packed: bool = False
    packing_strategy: str = "greedy"
    overflow: bool = True
    add_bos: bool = True
    add_eos: bool = True
    stride: int = 0
    min_len: int = 1
    max_len: int | None = None
    min_row_len: int = 1
    truncate_at: Any = None
    shuffle_output: bool = False
    seed: int = 0
    strict_special_tokens: bool = False
    bos_id: int | None = None
    eos_id: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.seed)
        top = self.max_length
        for name, least, most in (
            ("max_length", 1, None),
            ("stride", 0, top - 1),
            ("min_len", 1, None),
            ("max_len", self.min_len, None),
            ("min_row_len", 1, top),
            ("bos_id", 0, None),
            ("eos_id", 0, None),
        ):
            found = getattr(self, name)
            if found is not None and not least <= found <= (found if most is None else most):
                allowed = f"{least} or more" if most is None else f"{least} to {most}"
                why = f" with max_length={top}" if most is not None else ""
                raise ConfigError(
                    f"block_tokenize.{name}: found {found}, allowed is {allowed}{why}."
                )
        if self.packing_strategy not in STRATEGIES:
            raise ConfigError(
                f"block_tokenize.packing_strategy: found {self.packing_strategy!r}, allowed: "
                f"{', '.join(STRATEGIES)}.{near_miss(self.packing_strategy, list(STRATEGIES))}"
            )
        if self.truncate_at is not None:
            try:
                re.compile(self.truncate_at)
            except (re.error, TypeError) as problem:
                raise ConfigError(
                    f"block_tokenize.truncate_at: found {self.truncate_at!r}, allowed is a regular "
                    f"expression ({problem}). Use re.escape for text that is meant as it stands."
                ) from problem


OPTION_NAMES = [field.name for field in fields(BlockOptions)]
