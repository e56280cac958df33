"""Which source a stream takes from next: a pure function of what was consumed.

One idea: a pick depends only on the counts of the sources, the weights, the seed and the number of
the pick. There is no generator whose state could be lost and no estimate that could drift, so a
state is a few integers, and every rank that knows the counts knows the order.

==================  ==============================================================================
`least_consumed`    the smallest cost / weight; ties by a hash of (seed, pick, name of the source)
`round_robin`       the fewest samples; ties in the order of the listing
`probability`       a hash of (seed, pick) falls into the share of one source
==================  ==============================================================================

The order of the listing only matters to `round_robin`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenloom.arguments import by_name, check_between, count_of, one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.random.keys import check_seed, child, draw, key

STOPS = ("all_exhausted", "first_exhausted", "repeat")

COSTS = ("tokens", "rows", "loss_tokens", "callable")


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """How much of one source was consumed.

    Attributes:
        rows: samples of all passes.
        tokens: tokens of these samples, including those of earlier runs.
        cost: what the rule compares; every sample costs at least 1.
        epoch: number of the pass, from 0.
        row: samples of this pass.
        ended: whether the source has dropped out.
    """

    rows: int = 0
    tokens: int = 0
    cost: int = 0
    epoch: int = 0
    row: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Offset:
    """How much of a source was consumed.

    Attributes:
        rows: samples, without the passes that all sources have completed.
        tokens: tokens of these samples.

    >>> from tokenloom.streams import write_offsets
    >>> write_offsets({"wiki": Offset(rows=3, tokens=120)})
    {'datasets': [{'spec': 'wiki', 'row_offset': 3, 'token_offset': 120}]}
    """

    rows: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        count_of("rows", self.rows)
        count_of("tokens", self.tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class MixOptions:
    """How a stream is mixed: everything that determines its order except the sources themselves.

    Attributes:
        sources: the names of the sources, as listed.
        rule: "least_consumed", "round_robin" or "probability".
        cost: what is counted: "tokens", "rows", "loss_tokens", or "callable" for a function.
        stop: "all_exhausted", "first_exhausted" or "repeat".
        epochs: passes after which a source is exhausted; None: endless.
        seed: seed for ties and draws.
        weights: weights of the sources, above 0; not normalised.
    """

    sources: tuple[str, ...]
    rule: str
    cost: str
    stop: str
    epochs: int | None
    seed: int
    weights: dict[str, float]

    def __post_init__(self) -> None:
        _check_names(self.sources)
        _check_weights(self.sources, self.weights)
        check_fields(self)
        one_of("rule", self.rule, list(RULES))
        one_of("cost", self.cost, COSTS)
        one_of("stop", self.stop, STOPS)
        check_seed(self.seed)
        if self.epochs is None and self.stop != "repeat":
            raise ConfigError(
                f"epochs: found None (endless) with stop={self.stop!r}, allowed: 1 or more, or "
                "None with stop='repeat'."
            )
        check_between("epochs", self.epochs, 1, why=", or None")
        if self.rule != "least_consumed" and self.cost != "rows":
            raise ConfigError(
                f"cost: found {self.cost!r} with rule={self.rule!r}, allowed: 'rows'; only "
                "'least_consumed' uses another cost."
            )
        if self.rule == "round_robin" and len(set(self.weights.values())) > 1:
            raise ConfigError(
                f"weights: found {self.weights} with rule='round_robin', where all sources weigh "
                "the same. Leave them out, or use rule='least_consumed' with cost='rows'."
            )

    @property
    def again(self) -> bool:
        """Whether a source may be read more than once."""
        return self.stop == "repeat" or self.epochs != 1

    def described(self) -> dict[str, Any]:
        """The options that determine the order, as JSON."""
        listed = self.sources if self.rule == "round_robin" else sorted(self.sources)
        return {
            "sources": list(listed),
            "rule": self.rule,
            "cost": self.cost,
            "stop": self.stop,
            "epochs": self.epochs,
            "seed": self.seed,
            "weights": dict(self.weights),
        }


def choose(options: MixOptions, positions: Mapping[str, Position], pick: int) -> str | None:
    """The source of a pick, or None if all have dropped out.

    >>> options = MixOptions(sources=("a", "b"), rule="least_consumed", cost="tokens", seed=0,
    ...                      stop="all_exhausted", epochs=1, weights={"a": 1.0, "b": 3.0})
    >>> choose(options, {"a": Position(cost=10), "b": Position(cost=29)}, 0)  # 10 / 1 and 29 / 3
    'b'
    """
    active = [name for name in options.sources if not positions[name].ended]
    if len(active) < 2:
        return active[0] if active else None
    return RULES[options.rule](options, active, positions, pick)


def _least_consumed(
    options: MixOptions, active: Sequence[str], positions: Mapping[str, Position], pick: int
) -> str:
    times = [positions[name].cost / options.weights[name] for name in active]
    least = min(times)
    tied = [name for name, time in zip(active, times, strict=True) if time == least]
    if len(tied) == 1:
        return tied[0]
    here = child(_stream(options.seed, "ties"), pick)
    return min(tied, key=lambda name: (child(here, name), name))


def _round_robin(
    options: MixOptions, active: Sequence[str], positions: Mapping[str, Position], pick: int
) -> str:
    return min(active, key=lambda name: positions[name].cost)  # of equal ones, the first listed


def _probability(
    options: MixOptions, active: Sequence[str], positions: Mapping[str, Position], pick: int
) -> str:
    listed = sorted(active)
    total = math.fsum(options.weights[name] for name in listed)
    left = (draw(_stream(options.seed, "draws"), pick) >> 11) * 2.0**-53 * total
    for name in listed:
        left -= options.weights[name]
        if left < 0:
            return name
    return listed[-1]  # what rounding left over


RULES = {
    "least_consumed": _least_consumed,
    "round_robin": _round_robin,
    "probability": _probability,
}


@functools.lru_cache(maxsize=64)
def _stream(seed: int, purpose: str) -> int:
    return key(seed, "mix", "stream", purpose)


def shares(weights: Mapping[str, float] | Sequence[float]) -> list[float]:
    """Weights as fractions of 1, in their order.

    >>> shares([1, 1, 2])
    [0.25, 0.25, 0.5]
    """
    values = list(weights.values() if isinstance(weights, Mapping) else weights)
    names = [
        str(name) for name in (weights if isinstance(weights, Mapping) else range(len(values)))
    ]
    numbers = by_name("weights", values, names, 1.0)
    _check_weights(names, numbers)
    total = math.fsum(numbers.values())
    return [value / total for value in numbers.values()]


def _check_names(names: Sequence[str]) -> None:
    if not names:
        raise ConfigError("sources: found none, allowed: one or more. Give {name: source}.")
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"sources: found the name {name!r}, allowed: a string, not empty.")
        if names.count(name) > 1:
            raise ConfigError(f"sources: found {name!r} twice, allowed: every name once.")


def _check_weights(names: Sequence[str], weights: Mapping[str, Any]) -> None:
    if set(weights) != set(names):
        raise ConfigError(f"weights: found {sorted(weights)}, allowed: those of {list(names)}.")
    for name, weight in weights.items():
        real = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not real or not 1e-250 < weight < 1e250:  # beyond that, quotients overflow
            raise ConfigError(
                f"weights.{name}: found {weight!r}, allowed: a number above 0. To read nothing "
                "of a source, leave it out."
            )
