"""Streams mixed as they come: sources without a length, always the one that has consumed least.

One idea: the order of a mix is a function of how much of each source was consumed
(`streams.picking`), so that is all a stream and its state need to hold. Every rank computes the
same order from the same global counts and delivers every W-th sample of it: rank r delivers picks
r, r + W, … from where the stream started. No rank decides by what it alone has seen, and a state
written by W ranks can be resumed by any other number of them.

A pick is chosen from the counts, taken from its source and counted, in this order, and a round is
one pick for each rank. Between two rounds the counts are the whole state, so that is where samples
are delivered and states are saved. If a source fails inside a round, it is unknown what was taken;
from then on the stream refuses to continue, instead of continuing elsewhere.

The cost: every rank reads every sample, because nothing else tells how long it is, and a pick looks
at the count of every source. If lengths are known (a store), `tokenloom.mixture.run` gives any part
of a mix without reading the rest. A stream notices that a source is exhausted only when a pick
finds nothing; the pick then goes to another source.

Worked example, tokens: a has samples of 2, b of 5, both start at 0. The tie goes to one of them,
say a; then b (0 < 2), a (2 < 5), a (4 < 5), b (5 < 6), … and while both have samples the counts
never differ by more than the longest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from tokenloom.arguments import by_name, count_of, wrong_type
from tokenloom.errors import ConfigError, InputError, StateError, plural
from tokenloom.streams.feeds import Feed
from tokenloom.streams.picking import MixOptions, Offset, Position, choose, shares
from tokenloom.streams.samples import Sample, loss_tokens_of, tokens_of
from tokenloom.streams.state import check_same, opened, sealed

Length = Callable[[Any], int]

log = logging.getLogger("tokenloom")

FORMAT = "tokenloom.interleave/2"

END = object()


class MixedStream:
    """Samples of several sources; `interleave` makes it."""

    def __init__(
        self,
        options: MixOptions,
        feeds: Mapping[str, Feed],
        begin: Mapping[str, Position],
        *,
        length: Length,
        cost: Length | None,
        share: tuple[int, int, bool],
        totals: Mapping[str, int | None],
        log_every: int,
    ) -> None:
        self.options, self._feeds, self._positions = options, feeds, dict(begin)
        self._length, self._cost, self._share, self._log_every = length, cost, share, log_every
        self._totals = {
            name: feed.total if totals[name] is None else count_of(f"totals.{name}", totals[name])
            for name, feed in feeds.items()
        }
        self._picks = sum(at.rows for at in begin.values())
        self._finished = self._broken = False

    # -- what it is ------------------------------------------------------------------------

    @property
    def picks(self) -> int:
        """The samples taken by all ranks together."""
        return self._picks

    @property
    def positions(self) -> dict[str, Position]:
        """How much of each source all ranks together have consumed."""
        return dict(self._positions)

    @property
    def token_counts(self) -> dict[str, int]:
        """The tokens of each source that all ranks together have consumed."""
        return {name: at.tokens for name, at in self._positions.items()}

    @property
    def offsets(self) -> dict[str, Offset]:
        """Rows and tokens of each source, for `tokenloom.streams.checkpoint.write_offsets`."""
        return {name: Offset(at.rows, at.tokens) for name, at in self._positions.items()}

    @property
    def active(self) -> list[str]:
        """Sources that have not dropped out."""
        return [name for name, at in self._positions.items() if not at.ended]

    @property
    def shares(self) -> dict[str, float]:
        """The weights as fractions of 1."""
        return dict(zip(self.options.weights, shares(self.options.weights), strict=True))

    @property
    def is_finite(self) -> bool:
        """False if it never ends, as far as the sources report."""
        ends = [feed.finite for feed in self._feeds.values()]
        if self.options.stop == "first_exhausted":
            return any(ends)
        return self.options.epochs is not None and all(ends)

    # -- samples ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Sample]:
        return self

    def __next__(self) -> Sample:
        self._check_whole()
        self._broken = True  # until the round is complete
        sample = None if self._finished else self._round()
        self._broken = False
        if sample is None:
            raise StopIteration
        return sample

    def _check_whole(self) -> None:
        if self._broken:
            raise StateError(
                f"interleave: a source failed at pick {self._picks:,}, so it is not known what was "
                "taken. Make the stream again and load the last state."
            )

    def _round(self) -> Sample | None:
        """Make a pick for each rank; returns this rank's, if there is one."""
        rank, world_size, drop_last = self._share
        mine = None
        for place in range(world_size):
            sample = self._pick()
            if sample is None:
                return None if drop_last else mine
            if place == rank:
                mine = sample
        return mine

    def _pick(self) -> Sample | None:
        while not self._finished:
            name = choose(self.options, self._positions, self._picks)
            if name is None:
                self._finished = True
                break
            value = self._feeds[name].take(END)
            if value is not END:
                return self._counted(name, value)
            self._end_of_pass(name)
        return None

    def _counted(self, name: str, value: Any) -> Sample:
        at = self._positions[name]
        tokens = self._measured(name, "tokens", self._length, value)
        cost = tokens if self._cost is None else self._measured(name, "cost", self._cost, value)
        sample = Sample(name, value, tokens, self._picks, at.epoch, at.row)
        self._positions[name] = replace(
            at,
            rows=at.rows + 1,
            row=at.row + 1,
            tokens=at.tokens + tokens,
            cost=at.cost + max(1, cost),
        )
        self._picks += 1
        if self._log_every and self._picks % self._log_every == 0:
            counts = {each: seen.tokens for each, seen in self._positions.items()}
            log.debug("mix: pick %d took %r, tokens %s", sample.index, name, counts)
        return sample

    def _measured(self, name: str, what: str, measure: Length, value: Any) -> int:
        where = f"sources.{name}, row {self._positions[name].row:,}"
        try:
            found = measure(value)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        whole = int(found) if hasattr(found, "__index__") and not isinstance(found, bool) else -1
        if whole < 0:
            raise InputError(f"{where}: {what} is {found!r}, allowed: an integer, 0 or more.")
        return whole

    def _end_of_pass(self, name: str) -> None:
        """At the end of a pass, a source drops out, ends the stream, or starts again."""
        at, stop, epochs = self._positions[name], self.options.stop, self.options.epochs
        if not at.row and self.options.again:
            raise InputError(
                f"sources.{name}: pass {at.epoch + 1} has no sample, allowed: one or more if "
                "sources are repeated."
            )
        if not at.rows:
            log.warning("mix: source %r has no sample.", name)
        through = epochs is not None and at.epoch + 1 >= epochs
        others = [other.epoch for each, other in self._positions.items() if each != name]
        if through and stop == "all_exhausted":
            self._positions[name] = replace(at, ended=True)
        elif through and (stop == "first_exhausted" or all(e >= (epochs or 0) for e in others)):
            self._finished = True
        else:
            self._positions[name] = replace(at, epoch=at.epoch + 1, row=0)
            self._feeds[name].begin(at.epoch + 1)
        self._finished |= not self.active

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What was consumed, as JSON; the same on every rank after the same number of samples."""
        self._check_whole()
        states = {
            name: None if self._positions[name].ended else feed.state()
            for name, feed in self._feeds.items()
        }
        return sealed(
            FORMAT,
            self.options.described(),
            picks=self._picks,
            finished=self._finished,
            sources=[
                {"name": name, **asdict(at), "state": states[name]}
                for name, at in self._positions.items()
            ],
        )

    def load_state_dict(self, state: Any) -> None:
        """Resume where a state was saved, with any number of ranks.

        Raises:
            StateError: it was changed, is of another mix, or a source cannot resume there. The
                stream is then unchanged, unless a source fails to load its own state.
        """
        held = opened(FORMAT, state)
        self._check_same(held["options"])
        found = {each["name"]: each for each in held["sources"]}
        positions = {
            name: Position(**{each.name: found[name][each.name] for each in fields(Position)})
            for name in self.options.sources
        }
        states = {name: each["state"] for name, each in found.items()}
        open_ones = [name for name, at in positions.items() if not at.ended]
        problems = [
            f"sources.{name}: {problem}"
            for name in open_ones
            if (problem := self._feeds[name].problem(positions[name].row, states[name]))
        ]
        if problems:
            raise StateError("\n".join(problems) + ".")
        self._broken = True  # until every source is there
        for name in open_ones:
            at = positions[name]
            self._feeds[name].seek(at.row, at.epoch, states[name])
        self._positions, self._finished = positions, held["finished"]
        self._picks = held["picks"]
        self._broken = False

    def _check_same(self, saved: dict[str, Any]) -> None:
        # weights under other names always differ: listing them would add nothing
        renamed = set(saved["sources"]) != set(self.options.sources)
        check_same(
            "mix",
            saved,
            self.options.described(),
            but=["weights"] if renamed else [],
            remedy=". To continue with other sources, use tokenloom.streams.read_offsets",
        )

    # -- where it is -----------------------------------------------------------------------

    def position_lines(self) -> list[str]:
        """A line for each source: its rows, their total if known, and its tokens.

        Such as ``wiki: 2 of 4 rows (50.0%), 4 tokens`` and ``code: 2 rows, 4 tokens``.
        """
        return [self._line(name, at) for name, at in self._positions.items()]

    def _line(self, name: str, at: Position) -> str:
        total = self._totals[name]
        rows = plural(at.row, "row") if total is None else f"{at.row:,} of {plural(total, 'row')}"
        part = f" ({at.row / total:.1%})" if total else ""
        which = f" of pass {at.epoch + 1}" if at.epoch else ""
        return f"{name}: {rows}{part}{which}, {plural(at.tokens, 'token')}"

    def log_position(self, level: int = logging.INFO) -> None:
        """Log a line with the totals, then the position lines."""
        tokens = sum(at.tokens for at in self._positions.values())
        log.log(level, "mix: %s, %s", plural(self._picks, "sample"), plural(tokens, "token"))
        for line in self.position_lines():
            log.log(level, "mix: %s", line)


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
        sources: sources by name: iterables of samples, objects with `state_dict` and
            `load_state_dict`, or callables that take the number of rows to skip
            (`tokenloom.streams.feeds`).
        rule: "least_consumed", "round_robin" or "probability" (`tokenloom.streams.picking`).
        weights: weights by name (others weigh 1), or in the order of the listing.
        cost: what "least_consumed" counts: "tokens", "rows", "loss_tokens", or a function of a
            sample. A sample costs at least 1.
        length: a function that returns the tokens of a sample; default: `tokens_of`.
        stop: what happens when sources are exhausted: "all_exhausted": they drop out;
            "first_exhausted": the stream ends with the first; "repeat": they start again until
            every one has been exhausted.
        epochs: passes after which a source is exhausted; None: endless, only with "repeat".
        seed: seed for ties and draws.
        token_counts: tokens already consumed, by name or in order; others start at 0.
        offsets: rows to skip and tokens already consumed (`streams.read_offsets`).
        rank: the number of this process among the `world_size`.
        world_size: the number of processes that share the stream.
        drop_last: drop the last samples if there is not one for every rank.
        totals: rows of a pass, for `position_lines`, if a source has no length.
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
        raise ConfigError(f"rank: found {rank} of {world_size}, allowed: 0 to world_size - 1.")
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
        raise wrong_type("sources", sources, "{name: source}") from None


def _check_sources(
    options: MixOptions, pairs: Sequence[tuple[str, Any]], feeds: Mapping[str, Feed]
) -> None:
    seen: dict[int, str] = {}
    for name, source in pairs:
        feed = feeds[name]
        if options.stop == "all_exhausted" and not feed.finite:
            raise ConfigError(
                f"sources.{name}: the source never ends, so stop='all_exhausted' would never "
                "apply. Allowed: stop='first_exhausted' or 'repeat'."
            )
        if (feed.once or feed.stateful) and id(source) in seen:
            raise ConfigError(
                f"sources.{name}: it is the same object as {seen[id(source)]!r}, so each would "
                "take the rows of the other. Make it twice."
            )
        seen[id(source)] = name


def _begin(options: MixOptions, token_counts: Any, offsets: Any) -> dict[str, Position]:
    """Where every source starts."""
    if token_counts is not None and offsets is not None:
        raise ConfigError("token_counts: found together with offsets. Give one of them.")
    if offsets is not None and options.cost not in ("tokens", "rows"):
        raise ConfigError(
            f"offsets: they count rows and tokens, but the cost is {options.cost!r}, which they "
            "do not hold. Resume from a state_dict(), or use cost='tokens'."
        )
    names = list(options.sources)
    counts = by_name("token_counts", token_counts, names, 0)
    skips = by_name("offsets", offsets, names, Offset())
    begin = {}
    for name in names:
        if not isinstance(skips[name], Offset):
            raise ConfigError(f"offsets.{name}: found {skips[name]!r}, allowed: an Offset.")
        rows = skips[name].rows
        tokens = count_of(f"token_counts.{name}", counts[name]) or skips[name].tokens
        cost = {"tokens": tokens, "rows": rows}.get(options.cost, 0)
        begin[name] = Position(rows=rows, tokens=tokens, cost=cost, row=rows)
    return begin
