"""Inputs are cut into stretches, before anything is read, by their sizes alone.

One idea: put all inputs end to end, each as long as its bytes, and cut the line into `stretches`
equal lengths. Where a cut falls inside an input it moves to an edge that a reader can start at::

    small input          the nearer end of it (small: at most a quarter of a stretch)
    plain jsonl, lines   the piece before it (`tokenloom.ingest.cuts`)
    parquet              the row group before it; the footer of that one file is read
    hf, table, rows      the row before it, for tables in steps of 1,024; a row counts as 1 KiB
    txt, .gz, .zst       the nearer end: they can't be read from the middle

So a stretch is a pure function of names, sizes, `block_bytes` and the number of stretches: every
machine finds the same ones without talking to another, and a machine that does stretch 3 looks
into no input of stretch 5. Stretches may be empty.

Document numbers in an input stay what they are in one piece: a stretch that starts inside a file
of lines counts the newlines before it (`records_before`), at less than 1 % of what encoding the
same bytes costs, unless the stretch before it is done and says how many there are.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tokenloom.ingest.cuts import DATASET_ROWS, PIECE_COST, Edge, row_groups
from tokenloom.ingest.identity import content
from tokenloom.ingest.inputs import Input

ROW_BYTES = 1024  # what a row of an object counts as: asking would mean reading it

SMALL = 4  # an input below this share of a stretch is never cut


class Reach(NamedTuple):
    """Bytes of a file, or rows of an object, that a stretch reads."""

    input: int
    start: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Division:
    """Where the stretches of a list of inputs start.

    Attributes:
        inputs: what is cut.
        stretches: into how many.
        block_bytes: bytes of text per block.
        ends: the length of the line up to the end of each input, in bytes [inputs].
    """

    inputs: Sequence[Input]
    stretches: int
    block_bytes: int
    ends: tuple[int, ...]

    def edge(self, stretch: int) -> Edge:
        """Where a stretch starts; that of number `stretches` is the end of the inputs."""
        place = self.ends[-1] * stretch // self.stretches
        index = bisect.bisect_right(self.ends, place)
        if index == len(self.inputs):
            return Edge(index)
        start = self.ends[index - 1] if index else 0
        length, within = self.ends[index] - start, place - start
        one = self.inputs[index]
        small = length * SMALL * self.stretches <= self.ends[-1]
        if small or one.kind == "txt" or one.compression != "none":
            return Edge(index + (2 * within >= length))
        return Edge(index, self._unit(one, within, length))

    def parts(self, stretch: int) -> list[Reach]:
        """What a stretch reads, in order."""
        since, until = self.edge(stretch), self.edge(stretch + 1)
        found = []
        for index in range(since.input, until.input + bool(until.start)):
            one = self.inputs[index]
            start = _content_place(one, since.start) if index == since.input else 0
            stop = length_of(one)
            if until.start and index == until.input:
                stop = _content_place(one, until.start)
            found.append(Reach(index, start, stop))
        return found if since < until else []

    def cuts(self, index: int) -> list[int]:
        """Where an input is cut, in bytes or rows, ascending; empty if one stretch reads it all."""
        start = self.ends[index - 1] if index else 0
        total, count = self.ends[-1], self.stretches
        near = range(start * count // total, min(count, self.ends[index] * count // total + 2))
        edges = {self.edge(stretch) for stretch in near}
        inside = sorted(edge.start for edge in edges if edge.input == index and edge.start)
        return [_content_place(self.inputs[index], start) for start in inside]

    def _unit(self, one: Input, within: int, length: int) -> int:
        """The last edge of an input at or before a place in it."""
        if _is_object(one):
            step = 1 if one.kind == "rows" else DATASET_ROWS
            return len(one.rows) * within // length // step * step
        if one.kind == "parquet":
            starts = [group.first for group in row_groups(one)]
            ordered = starts == sorted(set(starts))
            return max(0, bisect.bisect_right(starts, within) - 1) if ordered else 0
        parts = max(1, -(-one.size // self.block_bytes))
        return one.size * (parts * within // length) // parts


def divide(inputs: Sequence[Input], stretches: int, block_bytes: int) -> Division:
    """The division of inputs into stretches.

    >>> from pathlib import Path
    >>> one = Input(kind="jsonl", name="a", path=Path("a"), size=1000)
    >>> two = Input(kind="txt", name="b", path=Path("b"), size=100)
    >>> [tuple(divide([one, two], 2, 10).edge(s)) for s in range(3)]
    [(0, 0), (0, 910), (2, 0)]
    """
    lengths = [
        PIECE_COST + length_of(one) * (ROW_BYTES if _is_object(one) else 1) for one in inputs
    ]
    return Division(
        inputs=inputs,
        stretches=stretches,
        block_bytes=block_bytes,
        ends=tuple(itertools.accumulate(lengths)),
    )


def length_of(one: Input) -> int:
    """Bytes of a file, rows of an object."""
    return len(one.rows) if _is_object(one) else one.size


def _is_object(one: Input) -> bool:
    return one.path is None or one.kind == "hf"


def _content_place(one: Input, start: int) -> int:
    """The byte or row of an edge, which in a parquet file is a row group."""
    return row_groups(one)[start].first if one.kind == "parquet" and start else start


def records_before(one: Input, start: int) -> int:
    """Records of an input before an edge in it."""
    if _is_object(one):
        return start
    if one.kind == "parquet":
        return sum(group.rows for group in row_groups(one)[:start])
    # a line that starts at the edge itself is not before it
    parts = (np.frombuffer(part, np.uint8) for part in content(one, 0, max(0, start - 1)))
    newlines = sum(int(np.count_nonzero(part == ord("\n"))) for part in parts)
    return newlines + 1 if start else 0
