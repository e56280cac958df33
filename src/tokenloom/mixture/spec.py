"""How to mix: the settings of a mixed run, and its edits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokenloom.arguments import integer, name_of, names_of, number, number_map, pairs_of, rounded
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError, near_miss
from tokenloom.mixture.merge import LONGEST
from tokenloom.mixture.stages import Rule
from tokenloom.random.keys import check_seed

__all__ = ["LEAST", "Edit", "MixSpec", "Pinned", "weights_of"]

RULES = ("least_consumed", "weights", "rounds", "round_robin", "random")

COSTS = ("tokens", "rows", "loss_tokens")

STOPS = ("first_exhausted", "all_exhausted", "restart")

LEAST, MOST = 1e-12, 1e12  # of weights: moments stay far from what a float can hold

MOST_EPOCHS = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """A store as it was when it was named.

    Attributes:
        path: as it was written.
        snapshot: its number.
        digest: of its content.
        documents, tokens: in it.
    """

    path: str
    snapshot: int
    digest: str
    documents: int
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """What is changed from an index on.

    Attributes:
        at: the first example that it concerns.
        weights: new weights by name, those of sources that join included.
        add: names of sources that join, as listed.
        remove: names of sources that end.
        quarantine: (source, document) pairs that are left blank from there on.
        append: name of a source whose store grew → what it is since.
    """

    at: int
    weights: Any = field(default_factory=dict)  # dict[str, float], read below
    add: tuple[str, ...] = ()
    remove: Any = ()  # tuple[str, ...]
    quarantine: Any = ()  # tuple[tuple[str, int], ...]
    append: dict[str, Pinned] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _put(self, "at", integer("at", self.at, most=LONGEST))
        check_fields(self)
        _put(self, "weights", weights_of("weights", self.weights))
        _put(self, "remove", names_of("remove", self.remove))
        _put(self, "quarantine", pairs_of("quarantine", self.quarantine))
        for name in self.add:
            name_of("add", name)
        for name in self.remove:
            if name in self.add:
                raise ConfigError(f"remove.{name}: it joins at the same time. Say one.")
            if name in self.weights:
                raise ConfigError(f"weights.{name}: it is removed at the same time. Say one.")


@dataclass(frozen=True, kw_only=True, slots=True)
class MixSpec:
    """How to mix; every field is part of a run's identity.

    Attributes:
        weights: of every source that is there from the start, by name.
        rule: "least_consumed": always the source that has consumed least for its weight;
            "weights": shares as close as they can be at every prefix; "rounds": blocks with fixed
            shares, one source after the other; "random": the same, shuffled inside each block;
            "round_robin": one of each in turn, as listed.
        cost: what is shared: "tokens", "rows" or "loss_tokens" (predictions that count).
        stop: "first_exhausted", "all_exhausted" (sources drop out, nothing is repeated) or
            "restart" (they go on into fresh epochs until every one has had its own).
        block: items of a block.
        max_epochs: the most epochs of every source, or of some by name; it ends then.
        initial: what sources have consumed before the run starts, by name.
        seed: of ties, blocks, and of all sources that have none of their own.
        take: at most that many examples.
    """

    weights: Any  # dict[str, float], read below
    rule: str = "least_consumed"
    cost: str = "tokens"
    stop: str = "restart"
    block: int = 2048
    max_epochs: Any = field(default_factory=dict)  # float | dict[str, float]
    initial: dict[str, Any] = field(default_factory=dict)  # dict[str, int]
    seed: int | None = None
    take: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        for name, allowed in (("rule", RULES), ("cost", COSTS), ("stop", STOPS)):
            found = getattr(self, name)
            if found not in allowed:
                raise ConfigError(
                    f"{name}: found {found!r}, allowed: {', '.join(allowed)}."
                    f"{near_miss(str(found), allowed)}"
                )
        integer("block", self.block, least=1)
        if self.seed is not None:
            check_seed(self.seed)
        if self.take is not None:
            integer("take", self.take)
        _put(self, "weights", weights_of("weights", self.weights))
        if not self.weights:
            raise ConfigError("weights: found none; give at least one source.")
        _put(self, "max_epochs", _caps(self.max_epochs))
        counts = {n: integer(f"initial.{n}", c, most=LONGEST) for n, c in self.initial.items()}
        _put(self, "initial", counts)
        self.check_weights(self.weights)

    def check_weights(self, weights: Mapping[str, float]) -> None:
        """Refuse weights that the rule does not look at."""
        if self.rule == "round_robin" and any(weight != 1 for weight in weights.values()):
            raise ConfigError(
                "weights: found with rule='round_robin', which takes one row of each in turn. Take "
                "rule='weights'."
            )

    def cap(self, name: str) -> float | None:
        """The most epochs of a source."""
        found = self.max_epochs
        return found.get(name) if isinstance(found, Mapping) else found

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


def weights_of(where: str, value: Any) -> dict[str, float]:
    """Weights by name, with as many digits as are written."""
    found = number_map(where, value)
    for name, weight in found.items():
        if not LEAST <= weight <= MOST:
            allowed = "more than 0" if not weight > 0 else f"{LEAST:g} to {MOST:g}"
            raise ConfigError(
                f"{where}.{name}: found {weight}, allowed is {allowed}. Leave the source out if it "
                "is not to be drawn from."
            )
    return {name: rounded(weight) for name, weight in found.items()}


def _caps(value: Any) -> float | dict[str, float]:
    """The most epochs: one number for all, or numbers by name."""
    if isinstance(value, Mapping):
        found = {name: _cap(f"max_epochs.{name}", cap) for name, cap in value.items()}
        return {name: cap for name, cap in found.items() if cap is not None}
    cap = _cap("max_epochs", value)
    return {} if cap is None else cap


def _cap(where: str, value: Any) -> float | None:
    if value is None:
        return None
    found = number(where, value)
    if not 0 < found <= MOST_EPOCHS:
        limit = f"at most {MOST_EPOCHS:,.0f}" if found > 0 else "more than 0"
        raise ConfigError(f"{where}: found {found}, allowed is {limit}.")
    return found


def _put(record: Any, name: str, value: Any) -> None:
    object.__setattr__(record, name, value)
