"""`tokenloom.mix`: several datasets as one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tokenloom.api.dataset import Dataset, source_of
from tokenloom.api.source import check_alike
from tokenloom.arguments import (
    check_names,
    integer,
    mapping,
    name_of,
    near_misses,
    number,
    number_map,
    rounded,
)
from tokenloom.errors import ConfigError
from tokenloom.mixture.levanter_rule import block_counts
from tokenloom.mixture.spec import LEAST, MixSpec, usual_cost, weights_of
from tokenloom.order.costs import TokenCount


@near_misses("mix", seed="Call .seed(3) on the mix.")
def mix(
    sources: Mapping[str, Dataset],
    *,
    rule: str = "least_consumed",
    weights: Mapping[str, float] | None = None,
    cost: str | None = None,
    stop: str = "restart",
    temperature: float | None = None,
    max_epochs: float | Mapping[str, float] | None = None,
    initial: Mapping[str, int] | None = None,
    block: int = 2048,
    stages: Mapping[int, Mapping[str, float]] | None = None,
    different_tokenizers: bool = False,
) -> Dataset:
    """Several datasets as one; the source of an example is a function of its index.

    Args:
        sources: datasets by name. The name is part of a source's random keys, so its order here
            differs from its order alone, but does not depend on the other sources.
        rule: "least_consumed": always the source that has consumed least for its weight;
            "weights": shares as close as possible at every prefix; "rounds": blocks of fixed
            shares, one source after the other; "random": like "rounds", shuffled inside each block;
            "round_robin": one of each in turn, as listed; "levanter": the blocks of a run of
            Levanter with this seed as its key, over sources in `levanter` orders.
        weights: weights of some or all sources; default: 1. With "levanter", whole numbers that add
            up to `block` are the examples of each source in a block.
        cost: what is shared: "tokens", "rows" or "loss_tokens" (predictions that count). Default:
            tokens for "least_consumed", else rows.
        stop: "restart": sources start fresh epochs until each has completed its own;
            "first_exhausted"; "all_exhausted": sources drop out, nothing is repeated.
        temperature: weights proportional to size ** temperature; instead of `weights`.
        max_epochs: maximum epochs of every source, or of some by name; a source ends after them.
        initial: what sources have already consumed, by name.
        block: examples of a block, for "rounds", "random" and "levanter".
        stages: new weights from an example on, such as ``{0: {"web": 3}, 6400: {"web": 1}}``:
            edits known from the start. Sources that a stage does not name keep their weights; with
            "levanter" they have none in it.
        different_tokenizers: allow sources whose ids mean other tokens; refused otherwise. Stores
            without a tokenizer compare their vocabulary sizes.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     a = tl.build([{"text": "aaaa"}], folder + "/a", tokenizer="bytes").windows(2)
    ...     b = tl.build([{"text": "bbbbbbbbbbbb"}], folder + "/b", tokenizer="bytes").windows(2)
    ...     run = tl.mix({"a": a, "b": b}, rule="round_robin", stop="all_exhausted")
    ...     "".join(run.batch(range(len(run))).source)
    'ababbbbb'
    """
    known = mapping("mix", sources, "{name: dataset}")
    if not known:
        raise ConfigError("mix: found no source; give at least one.")
    for name in known:
        name_of("mix", name)
    if rule == "round_robin" and (weights or temperature is not None or cost not in (None, "rows")):
        raise ConfigError(
            "rule: found 'round_robin' with weights, temperature or a cost; it takes one row of "
            "each in turn. Use rule='weights'."
        )
    if cost is None:
        cost = usual_cost(rule)
    resolved = dict.fromkeys(known, 1.0)
    if weights is not None:
        if temperature is not None:
            raise ConfigError("temperature: found together with weights; give one of them.")
        resolved = _given(weights, list(known), block if rule == "levanter" else None)
    drawn = {name: source_of(f"mix.{name}", ds) for name, ds in known.items()}
    check_alike(drawn)
    if temperature is not None:
        resolved = _by_size(known, cost, temperature)
    spec = MixSpec(
        weights=resolved,
        rule=rule,
        cost=cost,
        stop=stop,
        block=block,
        max_epochs=max_epochs,
        initial=mapping("initial", initial, "{source: count}"),
        different_tokenizers=different_tokenizers,
    )
    made = Dataset(drawn, spec)
    planned = mapping("stages", stages, "{example: weights}")
    for at in sorted(planned, key=lambda at: integer("stages: at", at)):
        made = made._staged(at, planned[at])
    return made


def _given(weights: Any, names: list[str], block: int | None) -> dict[str, float]:
    """The weight of every source, or its examples in one of Levanter's blocks."""
    exact = block is not None  # it truncates, so the last digit counts
    given = number_map("weights", weights) if exact else weights_of("weights", weights)
    if not given:
        raise ConfigError("weights: found none; give at least one source.")
    check_names("weights", given, names)
    if block is None:
        return dict.fromkeys(names, 1.0) | given
    every = given | {name: 1.0 for name in names if name not in given}  # added up as given
    return {**block_counts("weights", every, names, block)}


def _by_size(sources: Mapping[str, Dataset], cost: str, temperature: Any) -> dict[str, float]:
    power = number("temperature", temperature)
    if not (np.isfinite(power) and power >= 0):
        raise ConfigError(f"temperature: found {power:g}, allowed: 0 or more.")
    sizes = {
        name: ds.run.sources[0].rows if cost == "rows" else TokenCount(ds.run.sources[0]).of_epoch()
        for name, ds in sources.items()
    }
    top = max(sizes.values()) or 1
    found = {name: (max(size, 1) / top) ** power for name, size in sizes.items()}
    if min(found.values()) < LEAST:
        raise ConfigError(
            f"temperature: found {power:g}, which gives the smallest source a weight of "
            f"{min(found.values()):g} next to 1; allowed: a temperature low enough for {LEAST:g}."
        )
    return {name: rounded(weight) for name, weight in found.items()}
