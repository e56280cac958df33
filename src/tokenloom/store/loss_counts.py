"""What a loss column may hold, and how many tokens of a stretch it trains without reading it all.

A token is trained on if its value is above 0. Next to `loss_mask` (or `loss_weights`) a shard keeps
how many such values come before every 1,024th of its tokens, and in all. The count of a stretch is
then two of those numbers and what lies between them and the two ends: at most two pieces of the
column, of fewer than 1,024 values each, however long the stretch is::

    0        1024       2048       3072
    |    [start  |          |     stop)  |      count = C[2] + head of stop - C[0] - head of start

Cost: 4 bytes for 1,024 tokens; a count reads two chunks of the column and of the counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64, grouped
from tokenloom.errors import ConfigError
from tokenloom.limits import limits
from tokenloom.store import format as fmt
from tokenloom.store.reader import Reader
from tokenloom.store.shard import corrupt

LOSS_VALUES = {"loss_mask": "0 or 1", "loss_weights": "0, or 1e-45 to 3.4e+38"}
"""What is allowed in a loss column, in words: weights are given as float32."""


def first_wrong_loss(column: str, values: NDArray[Any]) -> int | None:
    """The place of the first value that the loss column cannot hold; None if there is none.

    >>> first_wrong_loss("loss_weights", np.array([0.5, np.nan])), first_wrong_loss(
    ...     "loss_mask", np.array([0, 1])
    ... )
    (1, None)
    """
    if column == "loss_mask":
        # a bool that was read from a file may be any byte
        plain = values.view(np.uint8) if values.dtype == np.bool_ else values
        good = (plain == 0) | (plain == 1)
    else:
        with np.errstate(over="ignore"):
            kept = values.astype(np.float32)
        good = (values >= 0) & np.isfinite(kept) & ((kept > 0) == (values > 0))
    wrong = np.flatnonzero(~good)
    return int(wrong[0]) if len(wrong) else None


class LossCounter:
    """Counts the values above 0 of a column that comes in pieces."""

    def __init__(self) -> None:
        self.length = 0
        self.total = 0

    def append(self, values: NDArray[Any]) -> NDArray[np.uint32]:
        """The counts before those of these values whose place is a multiple of 1,024."""
        # before[i]: values above 0 in front of values[i]
        before = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values > 0, out=before[1:])
        places = np.arange(-self.length % fmt.COUNT_TOKENS, len(values), fmt.COUNT_TOKENS)
        found = self.total + before[places]
        self.length += len(values)
        self.total += int(before[-1])
        return found.astype(np.uint32)


def loss_counts(reader: Reader, column: str, start: Int64, stop: Int64) -> Int64:
    """The number of values above 0 of a loss column in each stretch of the store [N].

    Args:
        reader: the store.
        column: "loss_mask" or "loss_weights".
        start: first token of each stretch, as an address in the store [N].
        stop: token after each stretch, not before its first [N].

    Raises:
        ConfigError: the store has no such loss column.
    """
    kept = [name for name in fmt.LOSS_COLUMNS if name in reader.manifest.columns]
    if column not in kept:
        raise ConfigError(
            f"{reader.path}: found no counts of the column {column!r}, allowed: "
            f"{', '.join(kept) or 'none, as the store has no loss column'}."
        )
    edges, place = np.unique(np.concatenate([start, stop]), return_inverse=True)
    before = _before(reader, column, edges)[place]
    return before[len(start) :] - before[: len(start)]


def trained_tokens(reader: Reader, columns: list[str], start: Int64, stop: Int64) -> Int64:
    """The tokens of each stretch that all of the loss columns train on [N].

    Two columns are read: which tokens both train on does not follow from their counts.
    """
    chunk = limits().loss_chunk_tokens
    if len(columns) == 1:
        return loss_counts(reader, columns[0], start, stop)
    found = np.empty(len(start), np.int64)
    edges = np.concatenate([[0], np.cumsum(stop - start)])
    first = 0
    while first < len(start):
        last = int(np.searchsorted(edges, edges[first] + chunk, side="right")) - 1
        last = max(last, first + 1)
        trained = np.ones(int(edges[last] - edges[first]), np.bool_)
        for column in columns:
            views = reader.read(start[first:last], stop[first:last], column)
            trained &= np.concatenate([np.empty(0), *views]) > 0
        before = np.concatenate([[0], np.cumsum(trained)])
        found[first:last] = np.diff(before[edges[first : last + 1] - edges[first]])
        first = last
    return found


def _before(reader: Reader, column: str, addresses: Int64) -> Int64:
    """Values above 0 before each address of the store [N]; addresses ascend, each once.

    Counted from the start of the first shard that an address lies in: only differences matter.
    """
    found = np.zeros(len(addresses), np.int64)
    if not len(addresses):
        return found
    # an address between two shards belongs to the first of them: it is the end of that one
    owner = np.maximum(np.searchsorted(reader.first_token, addresses, side="left") - 1, 0)
    passed = 0
    edges = np.searchsorted(owner, np.arange(int(owner[0]), int(owner[-1]) + 2))
    for number in range(int(owner[0]), int(owner[-1]) + 1):
        here = np.arange(*edges[number - owner[0] :][:2])
        if len(here):
            local = addresses[here] - reader.first_token[number]
            found[here] = passed + _before_in_shard(reader, column, number, local)
        if number < owner[-1]:
            tokens = reader.manifest.shards[number].tokens
            passed += int(_counts(reader, column, number, np.array([_entries(tokens) - 1]))[0])
    return found


def _entries(tokens: int) -> int:
    """The number of counts that a shard of `tokens` tokens keeps."""
    return -(-tokens // fmt.COUNT_TOKENS) + 1


def _before_in_shard(reader: Reader, column: str, number: int, places: Int64) -> Int64:
    """The same inside one shard; places ascend."""
    tokens = reader.manifest.shards[number].tokens
    entry = places // fmt.COUNT_TOKENS
    entry[places == tokens] = _entries(tokens) - 1  # the last entry is the count of all
    base = np.where(places == tokens, tokens, entry * fmt.COUNT_TOKENS)
    found = _counts(reader, column, number, entry)
    inner = fmt.inner_of(column, reader.manifest.inner)
    open_ended = np.flatnonzero(places > base)
    for _, places_of_chunk in grouped(base[open_ended] // inner):
        among = open_ended[places_of_chunk]
        low, high = int(base[among[0]]), int(places[among[-1]])
        before = np.zeros(high - low + 1, np.int64)
        np.cumsum(reader.elements(number, column, low, high) > 0, out=before[1:])
        found[among] += before[places[among] - low] - before[base[among] - low]
    return found


def _counts(reader: Reader, column: str, number: int, entries: Int64) -> Int64:
    """Stored counts of one shard [N], chunk by chunk through the cache; entries ascend."""
    name = f"{column}_counts"
    inner = fmt.inner_of(name, reader.manifest.inner)
    tokens = reader.manifest.shards[number].tokens
    total = _entries(tokens)
    found = np.empty(len(entries), np.int64)
    for chunk, here in grouped(entries // inner):
        low, high = chunk * inner, min((chunk + 1) * inner, total)

        def load(low: int = low, high: int = high) -> NDArray[Any]:
            counts = reader.elements(number, name, low, high)
            if (counts[1:] < counts[:-1]).any() or int(counts[-1]) > tokens:
                where = f"{reader.path}/{reader.manifest.shards[number].name}/{name}"
                raise corrupt(where, "its counts run backwards or leave the shard")
            return counts

        block = reader.cache.get((reader.identity, number, name, chunk), load)
        found[here] = block[entries[here] - low]
    return found
