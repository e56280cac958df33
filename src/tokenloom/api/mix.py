"""`tokenloom.mix`: several datasets as one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tokenloom.api.dataset import Dataset, source_of
from tokenloom.api.source import check_alike
from tokenloom.arguments import check_names, integer, mapping, name_of, near_misses, number, rounded
from tokenloom.errors import ConfigError
from tokenloom.mixture.spec import LEAST, MixSpec, weights_of
from tokenloom.order.prices import TokenCount

__all__ = ["mix"]


@near_misses("mix")
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
) -> Dataset:
    """Several datasets as one: which source an example is from is a function of its index.

    Args:
        sources: datasets by name. The name is part of a source's keys, so it has another order here
            than alone, and the same whatever is beside it.
        rule: "least_consumed": always the source that has consumed least for its weight;
            "weights": shares as close as they can be at every prefix; "rounds": blocks of fixed
            shares, one source after the other; "random": the same, shuffled inside each block;
            "round_robin": one of each in turn, as listed.
        weights: of some sources or all; the default is 1.
        cost: what is shared, "tokens", "rows" or "loss_tokens" (predictions that count); tokens
            for "least_consumed", else rows.
        stop: "restart": sources go on into fresh epochs until each has had its own;
            "first_exhausted"; "all_exhausted": sources drop out, nothing is repeated.
        temperature: weights in proportion to size ** temperature; instead of `weights`.
        max_epochs: the most epochs of every source, or of some by name; it ends then.
        initial: what sources have consumed before, by name.
        block: examples of a block, for "rounds" and "random".
        stages: {example: weights}: other weights from there on; edits known from the start.

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
            "each in turn. Take rule='weights'."
        )
    if cost is None:
        cost = "tokens" if rule == "least_consumed" else "rows"
    resolved = dict.fromkeys(known, 1.0)
    if weights is not None:
        if temperature is not None:
            raise ConfigError("temperature: found beside weights; both say the same. Give one.")
        given = weights_of("weights", weights)
        if not given:
            raise ConfigError("weights: found none; give at least one source.")
        check_names("weights", given, list(known))
        resolved |= given
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
    )
    made = Dataset(drawn, spec)
    planned = mapping("stages", stages, "{example: weights}")
    for at in sorted(planned, key=lambda at: integer("stages: at", at)):
        made = made._staged(at, planned[at])
    return made


def _by_size(sources: Mapping[str, Dataset], cost: str, temperature: Any) -> dict[str, float]:
    power = number("temperature", temperature)
    if not (np.isfinite(power) and power >= 0):
        raise ConfigError(f"temperature: found {power:g}, allowed is 0 or more.")
    sizes = {
        name: ds.run.sources[0].rows if cost == "rows" else TokenCount(ds.run.sources[0]).of_epoch()
        for name, ds in sources.items()
    }
    top = max(sizes.values()) or 1
    found = {name: (max(size, 1) / top) ** power for name, size in sizes.items()}
    if min(found.values()) < LEAST:
        raise ConfigError(
            f"temperature: found {power:g}, with which the smallest source has a weight of "
            f"{min(found.values()):g} beside 1; allowed is as little as makes that {LEAST:g}."
        )
    return {name: rounded(weight) for name, weight in found.items()}
