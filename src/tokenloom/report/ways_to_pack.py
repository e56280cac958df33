"""What each way of cutting rows would make of a source: the run's own, and the others.

Rows follow from lengths, so every way is planned for the same documents and what becomes
of every token is counted (`Tally`). Few documents are planned all, exactly as `plan_packing` does
it; of many, whole groups are, which are packed by themselves anyway.

Token windows are tallied in the same words: a tail that is dropped is a short row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tokenloom.layout.joined import Joined
from tokenloom.layout.layout import Layout
from tokenloom.layout.pack.compare import SIMPLE
from tokenloom.layout.pack.plan import Tally, plan_group
from tokenloom.layout.pack.rows import Bounded, Packed
from tokenloom.layout.pack.spec import SEQUENTIAL, PackSpec
from tokenloom.layout.windows import Windows, WindowsSpec
from tokenloom.report.some_lengths import Stretch, some_stretches

Int64 = NDArray[np.int64]

WINDOWS = "windows"

GROUP_DOCS = 10_000  # of a packing that says nothing else

BUDGET = 150_000  # documents and rows that are planned, for each way: 30 ms


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingWay:
    """One way of cutting rows.

    Attributes:
        strategy: name of the packer, or "windows".
        overflow: what becomes of longer documents; empty for windows.
        seq_len: tokens of a frame.
        tally: what becomes of the documents looked at.
        own: whether the run does it.
    """

    strategy: str
    overflow: str
    seq_len: int
    tally: Tally
    own: bool = False

    @property
    def name(self) -> str:
        """Strategy, and overflow where it loses tokens."""
        lossy = self.overflow in ("truncate", "drop")
        return f"{self.strategy}, {self.overflow}" if lossy else self.strategy

    @property
    def lost(self) -> float:
        """Share of tokens in no row."""
        return self.tally.lost / self.tally.tokens if self.tally.tokens else 0.0

    @property
    def needless(self) -> float:
        """Share of documents that are cut although they fit into a frame."""
        documents = self.tally.documents - self.tally.empty
        return self.tally.cut_needlessly / documents if documents else 0.0

    @property
    def segments(self) -> float:
        """Segments of a row."""
        return self.tally.segments / self.tally.rows if self.tally.rows else 0.0

    @property
    def attention(self) -> float:
        """Cost of attention inside documents, relative to frames of one document each."""
        full = self.tally.rows * self.seq_len**2
        return self.tally.attention / full if full else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PackingWays:
    """Ways of one source, side by side.

    Attributes:
        ways: the usual ones, and the run's own.
        looked: documents that were planned.
        documents: of the whole source.
    """

    ways: tuple[PackingWay, ...]
    looked: int
    documents: int

    @property
    def is_sample(self) -> bool:
        """Whether some documents were not planned."""
        return self.looked < self.documents

    @property
    def chosen(self) -> PackingWay:
        """The run's own way, for the documents looked at."""
        return next(one for one in self.ways if one.own)


def parts_of_layout(layout: Layout) -> tuple[Layout, ...]:
    """The layouts that one consists of: several after documents were appended."""
    return layout.parts if isinstance(layout, Joined) else (layout,)


def spec_of(layout: Layout) -> PackSpec | WindowsSpec | None:
    """How a layout cuts rows; None if it is spliced, which no packer does."""
    first = parts_of_layout(layout)[0]
    return first.spec if isinstance(first, Windows | Packed) else None


def ways_of(line: Bounded, spec: PackSpec | WindowsSpec, budget: int = BUDGET) -> PackingWays:
    """The ways to cut some documents.

    Args:
        line: the documents.
        spec: the way that a run takes.
        budget: documents and rows to plan for each way.
    """
    seq_len, usual = spec.seq_len, _packs(spec)
    each = 1 + line.tokens / seq_len / max(1, line.documents)  # documents and rows of a document
    most = max(1, int(budget / each))
    size = min(GROUP_DOCS if not usual else usual[0].group_docs, most)
    stretches = some_stretches(line, most, size=size, name="packing")
    bounds = [line.bounds(*one) for one in stretches]
    tallies = _tallied(bounds, usual, budget * seq_len)
    found = [
        PackingWay(
            strategy=one.strategy,
            overflow=one.overflow,
            seq_len=seq_len,
            tally=tally,
            own=one == spec,
        )
        for one, tally in zip(usual, tallies, strict=True)
    ]
    windows = spec if isinstance(spec, WindowsSpec) else WindowsSpec(seq_len=seq_len)
    sizes = [np.empty(0, np.int64), *(np.diff(edges) for _, edges in bounds)]
    tally = windows_tally(np.concatenate(sizes), windows)
    looked = sum(last - low for low, last in stretches)
    if looked < line.documents:  # the tail of a sample is none of the line
        tally = replace(tally, short_rows=0, short_row_tokens=0)
    found.append(
        PackingWay(strategy=WINDOWS, overflow="", seq_len=seq_len, tally=tally, own=windows == spec)
    )
    return PackingWays(ways=tuple(found), looked=looked, documents=line.documents)


def _packs(spec: PackSpec | WindowsSpec) -> list[PackSpec]:
    """The usual packings with the other settings of a run, and its own."""
    if isinstance(spec, WindowsSpec):
        if spec.seq_len < 2:  # no packer makes such rows
            return []
        base = PackSpec(seq_len=spec.seq_len, lookahead=spec.lookahead)
        return [replace(base, strategy=one) for one in SIMPLE]
    free = {"overlap": 0, "stride": 0, "max_docs_per_bin": None, "overflow": "split"}
    kept = ("overflow", "stride", "max_docs_per_bin")
    found = [spec]
    for strategy in SIMPLE:
        own = {} if SEQUENTIAL in (strategy, spec.strategy) else {k: getattr(spec, k) for k in kept}
        found.append(replace(spec, **(free | own | {"strategy": strategy})))
    if spec.overflow in ("truncate", "drop"):
        found.append(replace(spec, overflow="split"))
    names = {(one.strategy, one.overflow): one for one in reversed(found)}
    order = [*SIMPLE, *({spec.strategy} - set(SIMPLE))]
    return sorted(names.values(), key=lambda one: (order.index(one.strategy), one.overflow))


def _tallied(bounds: list[tuple[Int64, Int64]], specs: list[PackSpec], longest: int) -> list[Tally]:
    """What each packing makes of some stretches of documents, group by group."""
    totals = [Tally() for _ in specs]
    if not specs:
        return totals
    for numbers, edges in bounds:
        for number, (low, high) in enumerate(_groups(edges, specs[0])):
            lengths = np.minimum(np.diff(edges[low : high + 1]), longest)
            for place, spec in enumerate(specs):
                totals[place] += plan_group(lengths, spec, number, numbers[low:high]).tally
    return totals


def _groups(edges: Int64, spec: PackSpec) -> list[Stretch]:
    """The groups of a stretch, cut by the same rule as those of a line."""
    found, first = [], 0
    while first < len(edges) - 1:
        ends = edges[first + 1 : first + 1 + spec.group_docs] - edges[first]
        count = min(int(np.searchsorted(ends, spec.group_tokens)) + 1, len(ends))
        found.append(Stretch(first, first + count))
        first += count
    return found


def own_tally(layout: Layout) -> Tally:
    """What a layout makes of all its documents; of windows, without counting what they cut."""
    found = Tally()
    for part in parts_of_layout(layout):
        if isinstance(part, Packed):
            found += part.groups.tally
        elif isinstance(part, Windows):
            found += _of_windows(part)
    return found


def _of_windows(part: Windows) -> Tally:
    spec, rows, tokens = part.spec, int(part.phases.rows[0]), part.line.tokens
    usual, last = part.row_tokens
    frame = usual * (rows - 1) + last if rows else 0
    return Tally(
        documents=part.line.documents,
        tokens=tokens,
        rows=rows,
        cells=rows * spec.seq_len,
        placed=frame,
        frame_tokens=frame,
        **_tail(spec, rows, tokens),
    )


def _tail(spec: WindowsSpec, rows: int, tokens: int) -> dict[str, int]:
    """The row that is dropped at the end, as a short row."""
    left = tokens - min(rows * spec.step + spec.overlap, tokens) if rows else tokens
    return {"short_rows": int(left > 0), "short_row_tokens": left}


def windows_tally(lengths: Int64, spec: WindowsSpec) -> Tally:
    """What token windows make of documents that lie end to end.

    >>> found = windows_tally(np.array([3, 2, 3, 1]), WindowsSpec(seq_len=4))
    >>> found.rows, found.cut, found.cut_needlessly, found.lost, found.segments
    (2, 1, 1, 1, 4)
    """
    edges = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    tokens = int(edges[-1])
    whole = max(0, (tokens - spec.width) // spec.step + 1)
    left = tokens - (whole * spec.step + spec.overlap if whole else 0)
    rows = whole + (spec.tail == "keep" and left > 0)
    begin, end = edges[:-1], edges[1:]
    # rows that hold a document: the first that ends after its start … the last before its end
    first = np.maximum(0, (begin - spec.width) // spec.step + 1)
    held = np.minimum(rows, -(-end // spec.step)) - first
    cut = (held > 1) & (lengths > 0)
    start = np.arange(rows) * spec.step
    stop = np.minimum(start + spec.seq_len, tokens)
    places = np.sort(np.concatenate([edges, start, stop]), kind="stable")
    low, size = places[:-1], np.diff(places)  # what is empty between two edges is no piece
    inside = (low % spec.step < spec.seq_len) & (low < (int(stop[-1]) if rows else 0)) & (size > 0)
    pieces = size[inside]
    return Tally(
        documents=len(lengths),
        tokens=tokens,
        empty=int((lengths == 0).sum()),
        rows=rows,
        cells=rows * spec.seq_len,
        segments=len(pieces),
        cut=int(cut.sum()),
        cut_needlessly=int((cut & (lengths <= spec.seq_len)).sum()),
        placed=int(pieces.sum()),
        frame_tokens=int(pieces.sum()),
        attention=int((pieces * pieces).sum()),
        **_tail(spec, rows, tokens),
    )
