"""How to mix: the settings of a mixed run, and its edits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.keys import check_seed
from tokenloom.mix.stages import Rule
from tokenloom.words import near_miss

__all__ = ["Edit", "MixSpec", "check_names", "check_weights"]

RULES = ("least_consumed", "weights", "rounds", "round_robin", "random")
COSTS = ("tokens", "rows", "loss_tokens")
STOPS = ("first_exhausted", "all_exhausted", "restart")
DIGITS = 12  # of weights, so that every machine writes the same


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """What is changed from an index on.

    Attributes:
        at: the first example that it concerns.
        weights: new weights by name, those of sources that join included.
        add: names of sources that join.
        remove: names of sources that end.
        quarantine: (source, document) pairs that are left blank from there on.
        append: name of a source whose store grew → where that is: path, snapshot, digest.
    """

    at: int
    weights: dict[str, float] = field(default_factory=dict)
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    quarantine: tuple[tuple[Any, ...], ...] = ()
    append: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        if self.at < 0:
            raise ConfigError(f"edit.at: found {self.at}, allowed is 0 or more.")


@dataclass(frozen=True, kw_only=True, slots=True)
class MixSpec:
    """How to mix; every field is part of a run's identity.

    Attributes:
        weights: of every source of the begin, by name.
        rule: "least_consumed": always the source that has consumed least for its weight;
            "weights": shares as close as they can be at every prefix; "rounds": blocks with fixed
            shares, one source after the other; "random": the same, shuffled inside each block;
            "round_robin": one of each in turn, as listed.
        cost: what is shared: "tokens", "rows" or "loss_tokens" (predictions that count).
        stop: "first_exhausted", "all_exhausted" (sources drop out, nothing is repeated) or
            "restart" (they go on into fresh epochs until every one has had its own).
        block: items of a block.
        max_epochs: the most epochs of a source, by name; it ends then.
        initial: what sources have consumed before the run begins, by name.
        seed: of ties, blocks, and of all sources that have none of their own.
        edits: what was changed on the way.
    """

    weights: dict[str, float]
    rule: str = "least_consumed"
    cost: str = "tokens"
    stop: str = "restart"
    block: int = 2048
    max_epochs: dict[str, float] = field(default_factory=dict)
    initial: dict[str, int] = field(default_factory=dict)
    seed: int | None = None
    edits: tuple[Edit, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        for name, allowed in (("rule", RULES), ("cost", COSTS), ("stop", STOPS)):
            found = getattr(self, name)
            if found not in allowed:
                raise ConfigError(
                    f"{name}: found {found!r}, allowed: {', '.join(allowed)}."
                    f"{near_miss(str(found), allowed)}"
                )
        if self.block < 1:
            raise ConfigError(f"block: found {self.block}, allowed is 1 or more.")
        if self.seed is not None:
            check_seed(self.seed)
        check_weights("weights", self.weights)
        for name, cap in self.max_epochs.items():
            if not 0 < cap < math.inf:
                raise ConfigError(f"max_epochs.{name}: found {cap}, allowed is more than 0.")
        for name, count in self.initial.items():
            if count < 0:
                raise ConfigError(f"initial.{name}: found {count}, allowed is 0 or more.")

    @property
    def as_rule(self) -> Rule:
        """How sources are merged."""
        blocks = self.rule in ("rounds", "random")
        return Rule(
            midpoint=self.rule in ("weights", "rounds", "random"),
            listed=self.rule == "round_robin",
            block=self.block if blocks else 0,
            shuffled=self.rule == "random",
            stop=self.stop,
            seed=self.seed or 0,
        )


def check_weights(where: str, weights: Mapping[str, float]) -> None:
    """Refuse weights that are no weights."""
    if not weights:
        raise ConfigError(f"{where}: found none; give at least one source.")
    for name, weight in weights.items():
        if not (math.isfinite(weight) and weight > 0):
            raise ConfigError(
                f"{where}.{name}: found {weight}, allowed is more than 0. Leave the source out if "
                "it is not to be drawn from."
            )


def check_names(where: str, found: Sequence[str] | Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse names of sources that are not there."""
    for name in found:
        if name not in known:
            raise ConfigError(
                f"{where}.{name}: no source named {name!r}. Sources: {', '.join(known)}."
                f"{near_miss(str(name), known)}"
            )


def rounded(weight: float) -> float:
    """A weight with as many digits as are written."""
    return float(f"{weight:.{DIGITS}g}")
