"""Streams mixed as they come: sources without a length, always the one that has consumed least.

One idea: the order of a mix is a function of how much of each source was consumed
(`tokenloom.mix.picking`), so a stream needs to know only that, and so does its state. Every rank
computes the same order from the same global counts and delivers every W-th sample of it: rank r the
picks r, r + W, … of the place where the stream began. No rank steers by what it has seen alone, and
a state that W ranks have written is resumed by any other number of them.

What that costs: every rank reads every sample, because nothing else tells how long it is, and a
pick looks at the count of every source. Where lengths are known (a store), `tokenloom.mix.run`
gives any part of a mix without reading the rest. That a source is exhausted is known when it is
drawn from in vain, not before; the pick then goes to another one.

Worked example, tokens: a has samples of 2, b of 5, both begin at 0. The tie goes to one of them,
say a; then b (0 < 2), a (2 < 5), a (4 < 5), b (5 < 6), … and while both have samples the counts are
never further apart than the longest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenloom.errors import ConfigError
from tokenloom.mix.feeds import Feed
from tokenloom.mix.picking import MixOptions, Position, by_name, count_of
from tokenloom.mix.resume import Offset
from tokenloom.mix.sample import Sample, loss_tokens_of, tokens_of
from tokenloom.mix.streamed import Length, MixedStream

__all__ = ["MixedStream", "Sample", "interleave"]


def interleave(
    sources: Mapping[str, Any] | Iterable[tuple[str, Any]],
    *,
    rule: str = "least_consumed",
    weights: Mapping[str, float] | Sequence[float] | None = None,
    cost: str | Length | None = None,
    length: Length | None = None,
    stop: str = "all_exhausted",
    epochs: int | None = 1,
    seed: int = 0,
    token_counts: Mapping[str, int] | Sequence[int] | None = None,
    offsets: Mapping[str, Offset] | None = None,
    rank: int = 0,
    world_size: int = 1,
    drop_last: bool = False,
    totals: Mapping[str, int] | None = None,
    log_every: int = 1000,
) -> MixedStream:
    """One stream of the samples of several sources.

    Args:
        sources: by name. Iterables of samples, objects with `state_dict` and `load_state_dict`, or
            callables that are given the rows to skip (`tokenloom.mix.feeds`).
        rule: "least_consumed", "round_robin" or "probability" (`tokenloom.mix.picking`).
        weights: by name (others weigh 1), or in the order of the listing.
        cost: what "least_consumed" counts: "tokens", "rows", "loss_tokens", or a function of a
            sample. A sample costs at least 1.
        length: a function of a sample that gives its tokens; else `tokens_of`.
        stop: when sources are exhausted: "all_exhausted" they drop out; "first_exhausted" ends the
            stream with the first; "repeat" begins them again until every one was exhausted.
        epochs: passes after which a source is exhausted; None is for ever, with "repeat".
        seed: of ties and draws.
        token_counts: tokens consumed before, by name or in order; others begin at 0.
        offsets: rows to skip and tokens consumed before (`tokenloom.mix.resume.read_offsets`).
        rank: which of the `world_size` processes this is.
        world_size: processes that share the stream.
        drop_last: leave out the last samples if there is not one for every rank.
        totals: rows of a pass, for `position_lines`, where a source has no length.
        log_every: picks between two lines of the DEBUG log.

    >>> stream = interleave({"a": [[1, 1]] * 3, "b": [[2, 2]] * 3}, token_counts=[0, 100])
    >>> [(sample.source, sample.row) for sample in stream]
    [('a', 0), ('a', 1), ('a', 2), ('b', 0), ('b', 1), ('b', 2)]
    """
    pairs = list(sources.items()) if isinstance(sources, Mapping) else _pairs(sources)
    names = [name for name, _ in pairs]
    usual: str | Length = "tokens" if rule == "least_consumed" else "rows"
    chosen = usual if cost is None else cost
    options = MixOptions(
        sources=tuple(names),
        rule=rule,
        cost="callable" if callable(chosen) else chosen,
        stop=stop,
        epochs=epochs,
        seed=seed,
        weights=by_name("weights", weights, names, 1.0),
    )
    feeds = {name: Feed(name, source, again=options.again) for name, source in pairs}
    _check_sources(options, pairs, feeds)
    for what, value in (("rank", rank), ("world_size", world_size), ("log_every", log_every)):
        count_of(what, value)
    if rank >= world_size:
        raise ConfigError(f"rank: found {rank} of {world_size}, allowed is 0 to world_size - 1.")
    begin = _begin(options, token_counts, offsets)
    for name, at in begin.items():
        feeds[name].seek(at.row)
    return MixedStream(
        options,
        feeds,
        begin,
        length=tokens_of if length is None else length,
        cost=chosen if callable(chosen) else COSTS.get(chosen),
        share=(rank, world_size, drop_last),
        totals=by_name("totals", totals or {}, names, None),
        log_every=log_every,
    )


COSTS: dict[str, Length] = {"rows": lambda sample: 1, "loss_tokens": loss_tokens_of}


def _pairs(sources: Any) -> list[tuple[str, Any]]:
    try:
        return [(name, source) for name, source in sources]
    except (TypeError, ValueError):
        raise ConfigError(
            f"sources: found {type(sources).__name__}, allowed is {{name: source}}."
        ) from None


def _check_sources(
    options: MixOptions, pairs: Sequence[tuple[str, Any]], feeds: Mapping[str, Feed]
) -> None:
    seen: dict[int, str] = {}
    for name, source in pairs:
        feed = feeds[name]
        if options.stop == "all_exhausted" and not feed.finite:
            raise ConfigError(
                f"sources.{name}: it says that it never ends, so stop='all_exhausted' would never "
                "come; allowed are 'first_exhausted' and 'repeat'."
            )
        if (feed.once or feed.stateful) and id(source) in seen:
            raise ConfigError(
                f"sources.{name}: it is the same object as {seen[id(source)]!r}, so each would "
                "take the rows of the other. Make it twice."
            )
        seen[id(source)] = name


def _begin(options: MixOptions, token_counts: Any, offsets: Any) -> dict[str, Position]:
    """Where every source begins."""
    if token_counts is not None and offsets is not None:
        raise ConfigError("token_counts: found with offsets, which say the same. Give one of them.")
    if offsets is not None and options.cost not in ("tokens", "rows"):
        raise ConfigError(
            f"offsets: they count rows and tokens, but the cost is {options.cost!r}, which nobody "
            "knows of them. Go on from a state_dict(), or take cost='tokens'."
        )
    names = list(options.sources)
    counts = by_name("token_counts", token_counts, names, 0)
    skips = by_name("offsets", offsets, names, Offset())
    begin = {}
    for name in names:
        if not isinstance(skips[name], Offset):
            raise ConfigError(f"offsets.{name}: found {skips[name]!r}, allowed is an Offset.")
        rows = skips[name].rows
        tokens = count_of(f"token_counts.{name}", counts[name]) or skips[name].tokens
        cost = {"tokens": tokens, "rows": rows}.get(options.cost, 0)
        begin[name] = Position(rows=rows, tokens=tokens, cost=cost, row=rows)
    return begin
