"""Shuffles of rows that come one by one, resumed exactly: a buffer, and windows of rows.

One idea: a shuffle holds a list of rows that were read and not yet given, so its state is their
numbers. The rows themselves are read again, from the oldest one on; only if a source cannot be read
again (a generator) are they stored in the state, as JSON. The next row is a keyed draw from the
number of rows given so far, so there is no generator whose state could be lost.

=================  ==============================================  ==============================
`buffer_shuffle`   each step gives any one row of the buffer and   a row may come much later, but
                   reads another                                   never more than a buffer earlier
`window_shuffle`   rows w n to (w + 1) n - 1 in an order of their  no row moves by n or more
                   own, shuffle window after shuffle window
=================  ==============================================  ==============================

Worked example, windows of 8 rows: after 6 given rows, 8 were read and 2 are held. The state lists
those two; a fresh source is read from the first of them to row 8, and both come in the same order.

Shuffle each source before mixing (``interleave({"a": buffer_shuffle(…), …})``), and the mix is the
same on every rank. If rows have an index (a store), `tokenloom.order` shuffles without holding
anything.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from tokenloom.arguments import MAX_COUNT, check_between, count_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError, InputError, StateError
from tokenloom.random.keys import check_seed, draw, key
from tokenloom.random.permute import permutations
from tokenloom.streams.feeds import Feed
from tokenloom.streams.samples import revived, to_plain
from tokenloom.streams.state import check_same, opened, sealed

FORMAT = "tokenloom.shuffle/2"

MAX_ROWS = 1 << 31

END = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class ShuffleOptions:
    """How a stream is shuffled.

    Attributes:
        kind: "buffer" or "window".
        rows: rows of the buffer, or of a shuffle window.
        seed: seed of the run.
        name: name of the source; together with the seed it determines the order.
        epochs: passes over the source, each in an order of its own; None: endless.
    """

    kind: Literal["buffer", "window"]
    rows: int
    seed: int
    name: str
    epochs: int | None

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.seed)
        check_between("rows", self.rows, 1, MAX_ROWS)
        check_between("epochs", self.epochs, 1, MAX_COUNT)


@dataclass(frozen=True, slots=True)
class FeedMark:
    """The state of a source itself, after `row` rows of a pass."""

    row: int
    state: Any


def buffer_shuffle(
    source: Any, buffer_rows: int, *, seed: int = 0, name: str = "main", epochs: int | None = 1
) -> ShuffledStream:
    """The rows of a source, each drawn from a buffer of the next ones.

    Args:
        source: an iterable, an object with `state_dict` and `load_state_dict`, or a callable that
            takes the number of rows to skip (`tokenloom.streams.feeds`).
        buffer_rows: rows of the buffer.
        seed: seed of the run.
        name: name of the source; two sources with the same seed have different orders.
        epochs: passes over the source, each in an order of its own; None: endless.

    >>> list(buffer_shuffle(range(8), 4, seed=1))
    [1, 3, 0, 4, 7, 6, 2, 5]
    """
    return ShuffledStream(
        ShuffleOptions(kind="buffer", rows=buffer_rows, seed=seed, name=name, epochs=epochs), source
    )


def window_shuffle(
    source: Any, window_rows: int, *, seed: int = 0, name: str = "main", epochs: int | None = 1
) -> ShuffledStream:
    """The rows of a source, permuted inside shuffle windows.

    Args:
        source: see `buffer_shuffle`.
        window_rows: rows of a shuffle window (see `budget_rows`); the last one may have fewer.
        seed: seed of the run.
        name: name of the source.
        epochs: passes over the source, each in an order of its own; None: endless.

    >>> list(window_shuffle(range(8), 4, seed=1))
    [3, 2, 0, 1, 5, 4, 7, 6]
    """
    return ShuffledStream(
        ShuffleOptions(kind="window", rows=window_rows, seed=seed, name=name, epochs=epochs), source
    )


def budget_rows(tokens: int, seq_len: int, *, multiple_of: int = 1) -> int:
    """The rows of `seq_len` tokens that fit a budget of tokens, rounded down to a multiple.

    With a multiple of the rows of a step (including accumulated batches), windows end where steps
    end.

    >>> budget_rows(8_388_608, 2048), budget_rows(100, 8, multiple_of=5)
    (4096, 10)
    """
    for what, value in (("tokens", tokens), ("seq_len", seq_len), ("multiple_of", multiple_of)):
        if not count_of(what, value):
            raise ConfigError(f"{what}: found 0, allowed: 1 or more.")
    rows = tokens // seq_len
    rows -= rows % multiple_of
    if not rows:
        raise ConfigError(
            f"tokens: found {tokens:,}, allowed: {seq_len * multiple_of:,} or more "
            f"({multiple_of:,} rows of {seq_len:,})."
        )
    return rows


def _window_order(options: ShuffleOptions, epoch: int, number: int, count: int) -> list[int]:
    """The rows of a shuffle window of `count` rows in the order they are given, last first."""
    word = key(options.seed, options.name, "stream", "window", epoch, number)
    order = permutations(count, [word]).forward(np.arange(count, dtype=np.uint64))
    first = number * options.rows
    return [first + row for row in order[::-1].tolist()]


@functools.lru_cache(maxsize=64)
def _draws(seed: int, name: str, epoch: int) -> int:
    return key(seed, name, "stream", "buffer", epoch)


class ShuffledStream:
    """Rows of one source in another order; `buffer_shuffle` and `window_shuffle` make it."""

    def __init__(self, options: ShuffleOptions, source: Any) -> None:
        self.options = options
        self._feed = Feed(options.name, source, again=options.epochs != 1)
        self._held: list[tuple[int, Any]] = []  # (number of the row in its pass, the row)
        self._marks: list[FeedMark] = []  # of the source itself, in order of rows
        self._epoch = self._given = 0
        self._dry = self._finished = self._broken = False

    @property
    def is_finite(self) -> bool:
        """False if it never ends, as far as the source reports."""
        return self.options.epochs is not None and self._feed.finite

    # -- rows ------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self._check_whole()
        self._broken = True  # until the row is delivered
        value = self._next()
        self._broken = False
        if value is END:
            raise StopIteration
        return value

    def _check_whole(self) -> None:
        if self._broken:
            raise StateError(
                f"shuffle: the source failed at row {self._feed.row:,}, so it is not known what "
                "was taken. Make the shuffle again and load the last state."
            )

    def _next(self) -> Any:
        while not self._finished:
            if self.options.kind == "buffer" or not self._held:
                self._fill()
            if self._held:
                return self._draw()
            self._end_of_pass()
        return END

    def _fill(self) -> None:
        while len(self._held) < self.options.rows and not self._dry:
            row, value = self._read()
            self._dry = value is END
            if not self._dry:
                self._held.append((row, value))
        if self.options.kind == "window" and self._held:
            number = self._given // self.options.rows
            values = dict(self._held)
            order = _window_order(self.options, self._epoch, number, len(values))
            self._held = [(row, values[row]) for row in order]

    def _read(self) -> tuple[int, Any]:
        row = self._feed.row
        known = self._marks[-1].row if self._marks else -1
        if self._feed.stateful and row % self.options.rows == 0 and row > known:
            self._marks = [*self._needed_marks(), FeedMark(row, self._feed.state())]
        return row, self._feed.take(END)

    def _draw(self) -> Any:
        if self.options.kind == "buffer":  # the chosen row swaps places with the last
            stream = _draws(self.options.seed, self.options.name, self._epoch)
            chosen = (draw(stream, self._given) * len(self._held)) >> 64
            self._held[chosen], self._held[-1] = self._held[-1], self._held[chosen]
        _, value = self._held.pop()
        self._given += 1
        return value

    def _end_of_pass(self) -> None:
        epochs = self.options.epochs
        if epochs is not None and self._epoch + 1 >= epochs:
            self._finished = True
            return
        if not self._given:
            raise InputError(
                f"sources.{self.options.name}: pass {self._epoch + 1} has no row, allowed: one "
                "or more if a source is repeated."
            )
        self._epoch, self._given, self._dry, self._marks = self._epoch + 1, 0, False, []
        self._feed.begin(self._epoch)

    def _needed_marks(self) -> list[FeedMark]:
        """The marks from the last one before all held rows on."""
        oldest = min((row for row, _ in self._held), default=self._feed.row)
        before = [mark for mark in self._marks if mark.row <= oldest]
        return before[-1:] + [mark for mark in self._marks if mark.row > oldest]

    # -- state -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What is held, as JSON: row numbers, or rows if the source cannot be read again."""
        self._check_whole()
        marks = self._needed_marks() or [FeedMark(self._feed.row, self._feed.state())]
        return sealed(
            FORMAT,
            asdict(self.options),
            epoch=self._epoch,
            given=self._given,
            taken=self._feed.row,
            finished=self._finished,
            rows=[row for row, _ in self._held],
            samples=self._samples() if self._feed.once and not self._feed.stateful else None,
            mark=asdict(marks[0]) if self._feed.stateful else None,
        )

    def _samples(self) -> list[Any]:
        try:
            return [to_plain(value) for _, value in self._held]
        except (TypeError, RecursionError) as error:
            raise StateError(
                f"sources.{self.options.name}: an iterator cannot be read again, so the state must "
                f"hold rows as JSON, but {error}. Give a list, or a callable that takes the "
                "number of rows to skip."
            ) from None

    def load_state_dict(self, state: Any) -> None:
        """Resume where a state was saved; rows that were held are read again.

        Raises:
            StateError: it was changed, is of another shuffle, or the source cannot resume there.
                The shuffle is then unchanged, unless the source fails while it is read.
        """
        held = opened(FORMAT, state)
        check_same("shuffle", held["options"], asdict(self.options))
        rows, taken, samples = held["rows"], held["taken"], held["samples"]
        first, inner = min(rows, default=taken) if samples is None else taken, None
        if held["mark"] is not None:
            first, inner = held["mark"]["row"], held["mark"]["state"]
        problem = self._feed.problem(first, inner)
        if problem:
            raise StateError(f"sources.{self.options.name}: {problem}.")
        self._broken = True  # until the source is there
        self._feed.seek(first, held["epoch"], inner)
        self._marks = [FeedMark(first, inner)] if inner is not None else []
        self._epoch, self._given = held["epoch"], held["given"]
        self._dry, self._finished = False, held["finished"]
        if samples is None:
            self._held = self._read_again(rows, taken)
        else:
            self._held = list(zip(rows, map(revived, samples), strict=True))
        self._broken = False

    def _read_again(self, rows: list[int], taken: int) -> list[tuple[int, Any]]:
        wanted = set(rows)
        found: dict[int, Any] = {}
        self._held = [(row, END) for row in rows]  # so that their marks are kept
        while self._feed.row < taken:
            row, value = self._read()
            if value is END:
                raise StateError(
                    f"sources.{self.options.name}: it ends after {row:,} rows, but the state is "
                    f"after {taken:,}. Give the source that it was saved with."
                )
            if row in wanted:
                found[row] = value
        return [(row, found[row]) for row in rows]
