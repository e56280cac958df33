"""How to mix: the settings of a mixed run, and its edits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenloom.arguments import (
    check_names,
    integer,
    name_of,
    names_of,
    number,
    number_map,
    one_of,
    pairs_of,
    rounded,
)
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.mixture.levanter_rule import are_counts, block_counts
from tokenloom.mixture.merge import LONGEST
from tokenloom.random.keys import check_seed

RULES = ("least_consumed", "weights", "rounds", "round_robin", "random", "levanter")

COSTS = ("tokens", "rows", "loss_tokens")

STOPS = ("first_exhausted", "all_exhausted", "restart")

LEAST, MOST = 1e-12, 1e12  # weights; moments stay far from the limits of a float

MOST_EPOCHS = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """A store as it was when it was named.

    Attributes:
        path: its path, as written.
        snapshot: number of its snapshot.
        digest: digest of its content.
        documents, tokens: how many it holds.
    """

    path: str
    snapshot: int
    digest: str
    documents: int
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """What changes from an index on.

    Attributes:
        at: the first example that it affects.
        weights: new weights by name, including those of sources that join.
        add: names of sources that join, as listed.
        remove: names of sources that end.
        quarantine: (source, document) pairs that are left blank from there on.
        append: name of a source whose store grew → the store it has from there on.
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
                raise ConfigError(f"remove.{name}: it also joins in this edit. Give one.")
            if name in self.weights:
                raise ConfigError(f"weights.{name}: it is also removed in this edit. Give one.")


@dataclass(frozen=True, kw_only=True, slots=True)
class MixSpec:
    """How to mix; every field but the last two is part of a run's identity.

    Attributes:
        weights: weight of every source that is present from the start, by name.
        rule: "least_consumed": always the source that has consumed least for its weight;
            "weights": shares as close as possible at every prefix; "rounds": blocks with fixed
            shares, one source after the other; "random": the same, shuffled inside each block;
            "round_robin": one of each in turn, as listed; "levanter": blocks as Levanter makes
            them, where weights are the examples of each source in a block.
        cost: what is shared: "tokens", "rows" or "loss_tokens" (predictions that count).
        stop: "first_exhausted", "all_exhausted" (sources drop out, nothing is repeated) or
            "restart" (sources continue into fresh epochs until each has had its own).
        block: items of a block.
        max_epochs: the number of epochs after which every source ends, or some by name.
        initial: what sources have consumed before the run starts, by name.
        seed: seed for ties, blocks, and all sources without one of their own.
        take: the maximum number of examples.
        different_tokenizers: the stores may have different tokenizers.
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
    different_tokenizers: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        for name, allowed in (("rule", RULES), ("cost", COSTS), ("stop", STOPS)):
            one_of(name, getattr(self, name), allowed)
        integer("block", self.block, least=1)
        if self.seed is not None:
            check_seed(self.seed)
        if self.take is not None:
            integer("take", self.take)
        if self.rule == "levanter" and self.weights:
            names = list(number_map("weights", self.weights))
            counts = block_counts("weights", self.weights, names, self.block)
            _put(self, "weights", {name: float(count) for name, count in counts.items()})
        else:
            _put(self, "weights", weights_of("weights", self.weights))
        if not self.weights:
            raise ConfigError("weights: found none; give at least one source.")
        _put(self, "max_epochs", _caps(self.max_epochs))
        counts = {n: integer(f"initial.{n}", c, most=LONGEST) for n, c in self.initial.items()}
        _put(self, "initial", counts)
        self.check_weights(self.weights)
        if self.rule == "levanter":
            self._check_levanter()

    def _check_levanter(self) -> None:
        """Refuse settings that Levanter's mixture does not have."""
        why = {
            "cost": (self.cost, "rows", "Levanter counts examples"),
            "stop": (self.stop, "restart", "its other two miss or repeat examples at their end"),
            "max_epochs": (self.max_epochs, {}, "a source that ends would change every block"),
            "initial": (self.initial, {}, "its blocks start from 0"),
        }
        for name, (found, allowed, reason) in why.items():
            if found != allowed:
                raise ConfigError(
                    f"{name}: found {found!r} with rule='levanter', allowed: {allowed!r} "
                    f"({reason}). The rule 'random' takes it."
                )

    def check_weights(self, weights: Mapping[str, float]) -> None:
        """Refuse weights that the rule ignores."""
        if self.rule == "round_robin" and any(weight != 1 for weight in weights.values()):
            raise ConfigError(
                "weights: found with rule='round_robin', which takes one row of each in turn. Use "
                "rule='weights'."
            )
        if self.rule == "levanter" and weights and not are_counts(weights, self.block):
            raise ConfigError(
                f"weights: found {dict(weights)}, allowed with rule='levanter': the examples of "
                f"each source in a block, whole numbers that add up to {self.block:,}. "
                "tokenloom.mix(stages=...) makes them from weights."
            )

    def stage_weights(self, weights: dict[str, float], names: Sequence[str]) -> dict[str, float]:
        """The weights of a stage: as given, or the counts of Levanter's that are above 0."""
        if self.rule != "levanter":
            return weights
        check_names("weights", weights, names)
        counts = block_counts("weights", weights, names, self.block)
        return {name: float(count) for name, count in counts.items() if count}

    def check_edit(self, edit: Edit) -> None:
        """Refuse changes that the rule has no place for."""
        self.check_weights(edit.weights)
        other = edit.add or edit.remove or edit.quarantine or edit.append
        if self.rule == "levanter" and (other or not edit.weights):
            raise no_edits()

    def cap(self, name: str) -> float | None:
        """The number of epochs after which a source ends, or None."""
        found = self.max_epochs
        return found.get(name) if isinstance(found, Mapping) else found

    @property
    def edges(self) -> int:
        """An edit may come at multiples of this many examples; 0: anywhere."""
        return self.block if self.rule in ("rounds", "random", "levanter") else 0

    @property
    def midpoint(self) -> bool:
        """Whether items are merged by their middles, not by their starts."""
        return self.rule in ("weights", "rounds", "random", "levanter")


def no_edits() -> ConfigError:
    """What to say when a run of Levanter's rule is to be edited."""
    return ConfigError(
        "edit: found with rule='levanter', whose blocks are a function of the key and of stages "
        "that are known from the start. Give tokenloom.mix(stages=...), or mix with "
        "rule='random', which takes edits at the edges of its blocks."
    )


def usual_cost(rule: str | None) -> str:
    """What a rule shares by default."""
    return "tokens" if rule in (None, "least_consumed") else "rows"


def weights_of(where: str, value: Any) -> dict[str, float]:
    """Weights by name, rounded to the digits that are written."""
    found = number_map(where, value)
    for name, weight in found.items():
        if not LEAST <= weight <= MOST:
            allowed = "more than 0" if not weight > 0 else f"{LEAST:g} to {MOST:g}"
            raise ConfigError(
                f"{where}.{name}: found {weight}, allowed: {allowed}. To draw nothing from the "
                "source, leave it out."
            )
    return {name: rounded(weight) for name, weight in found.items()}


def _caps(value: Any) -> float | dict[str, float]:
    """The epoch limits: one number for all sources, or numbers by name."""
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
        raise ConfigError(f"{where}: found {found}, allowed: {limit}.")
    return found


def _put(record: Any, name: str, value: Any) -> None:
    object.__setattr__(record, name, value)
