"""A stream that is mixed as it comes: picks, counts, state and position.

One idea: a pick is chosen from the counts, taken from its source and counted, in this order, and a
round is a pick for each rank. Between two rounds the counts are all there is, so that is where
samples are delivered and states are taken. A source that fails inside a round leaves it unknown
what was taken; from then on the stream refuses to go on, instead of going on elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tokenloom.errors import InputError, StateError
from tokenloom.mix import stream_state
from tokenloom.mix.feeds import Feed
from tokenloom.mix.picking import MixOptions, Position, choose, count_of, shares
from tokenloom.mix.resume import Offset
from tokenloom.mix.sample import Sample
from tokenloom.words import plural

__all__ = ["Length", "MixedStream"]

Length = Callable[[Any], int]
log = logging.getLogger("tokenloom")
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
        """Samples that were taken, by all ranks together."""
        return self._picks

    @property
    def positions(self) -> dict[str, Position]:
        """How much of each source was consumed, by all ranks together."""
        return dict(self._positions)

    @property
    def token_counts(self) -> dict[str, int]:
        """Tokens of each source that were consumed, by all ranks together."""
        return {name: at.tokens for name, at in self._positions.items()}

    @property
    def offsets(self) -> dict[str, Offset]:
        """The same with rows, to be written by `tokenloom.mix.resume.write_offsets`."""
        return {name: Offset(at.rows, at.tokens) for name, at in self._positions.items()}

    @property
    def active(self) -> list[str]:
        """Sources that have not dropped out."""
        return [name for name, at in self._positions.items() if not at.ended]

    @property
    def shares(self) -> dict[str, float]:
        """The weights as parts of 1."""
        return dict(zip(self.options.weights, shares(self.options.weights), strict=True))

    @property
    def is_finite(self) -> bool:
        """False if it never ends, as far as the sources tell."""
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
        """A pick for each rank; gives that of this one, if there is one."""
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
            raise InputError(f"{where}: {what} is {found!r}, allowed is an integer from 0 on.")
        return whole

    def _end_of_pass(self, name: str) -> None:
        """A source drops out, ends the stream, or begins again."""
        at, stop, epochs = self._positions[name], self.options.stop, self.options.epochs
        if not at.row and self.options.again:
            raise InputError(
                f"sources.{name}: pass {at.epoch + 1} has no sample, allowed is one or more where "
                "sources begin again."
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
        """What was consumed, as JSON; the same on every rank after equally many samples."""
        self._check_whole()
        states = {
            name: None if self._positions[name].ended else feed.state()
            for name, feed in self._feeds.items()
        }
        return stream_state.dump(self.options, self._positions, self._finished, states)

    def load_state_dict(self, state: Any) -> None:
        """Go on where a state was taken, with any number of ranks.

        Raises:
            StateError: it is damaged, of another mix, or a source cannot go there; the stream is
                then as it was, unless a source fails to load the state that it gave itself.
        """
        positions, finished, states = stream_state.load(self.options, state)
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
        self._positions, self._finished = positions, finished
        self._picks = sum(at.rows for at in positions.values())
        self._broken = False

    # -- where it is -----------------------------------------------------------------------

    def position_lines(self) -> list[str]:
        """A line for each source: rows, of how many where that is known, and tokens.

        As in ``wiki: 2 of 4 rows (50.0%), 4 tokens`` and ``code: 2 rows, 4 tokens``.
        """
        return [self._line(name, at) for name, at in self._positions.items()]

    def _line(self, name: str, at: Position) -> str:
        total = self._totals[name]
        rows = plural(at.row, "row") if total is None else f"{at.row:,} of {plural(total, 'row')}"
        part = f" ({at.row / total:.1%})" if total else ""
        which = f" of pass {at.epoch + 1}" if at.epoch else ""
        return f"{name}: {rows}{part}{which}, {plural(at.tokens, 'token')}"

    def log_position(self, level: int = logging.INFO) -> None:
        """Write the position lines to the log, under one with the sums."""
        tokens = sum(at.tokens for at in self._positions.values())
        log.log(level, "mix: %s, %s", plural(self._picks, "sample"), plural(tokens, "token"))
        for line in self.position_lines():
            log.log(level, "mix: %s", line)
