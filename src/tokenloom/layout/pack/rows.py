"""`Packed`: packed documents by row number.

Row i belongs to one group (`tokenloom.layout.pack.rows`), and the plan of that group
says which documents are in the row. A group is planned on first use and its rows are kept
(`tokenloom.layout.pack.row_cache`), in memory up to 256 MiB; when all groups of a large
store have been planned, they are also kept in the plan cache, and no other process plans them
again. So a row of a full shuffle costs a gather.

Groups of documents: where each starts and how many rows it has. A few integers, computed once.

A group ends with its 10,000th document, or with the document that brings it to 2^25
tokens, counted from the group's own start in stored order. So when a store grows, all groups but
the last stay the same, and planning a group needs only the number of rows of the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Int64, grouped
from tokenloom.bind import unbind
from tokenloom.documents.line import Line, WholeLine
from tokenloom.layout.layout import Blocks, Phases
from tokenloom.layout.pack.plan import PackedRows, Tally, plan_group
from tokenloom.layout.pack.row_cache import Columns, KeptRows, Kinds, columns_of
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.spans import Spans
from tokenloom.limits import limits
from tokenloom.progress import Progress
from tokenloom.store.handles import lazy
from tokenloom.store.plan_cache import cache_dir, recall, remember, remember_array, remembered_array

ROW_SECONDS = 0.15e-6  # that planning a row takes, about; for people

log = logging.getLogger("tokenloom")


def group_rows(
    line: Bounded, spec: PackSpec, groups: Groups, number: int
) -> tuple[Int64, Int64, PackedRows]:
    """One group: its documents in the store, where each starts on the line, and the rows."""
    first, last = groups.document[number : number + 2].tolist()
    documents, edges = line.bounds(first, last)
    return documents, edges[:-1], plan_group(np.diff(edges), spec, number)


def groups_of(line: Bounded, spec: PackSpec) -> Groups:
    """The groups of a line, from the plan cache or planned."""
    if line.documents < limits().min_cached_packing_documents:
        return _planned(line, spec)
    identity = plan_identity(line, spec)
    known = recall("pack", identity)
    if known is not None:
        return Groups.from_json(known)
    groups = _planned(line, spec)
    assert groups.tokens is not None
    remember("pack", identity, groups.as_json())
    is_kept = remember_array("packed-tokens", identity, groups.tokens)
    return replace(groups, tokens=None) if is_kept else groups


def _announce(line: Bounded, spec: PackSpec) -> None:
    """Say what making the plan of many documents costs."""
    rows = max(line.documents // 2, line.tokens // spec.seq_len)
    took = max(rows, line.documents) * ROW_SECONDS
    said = "packing %s documents into about %s rows: the plan is made once, in about %.0f s, and "
    log.info(f"{said}kept in %s", f"{line.documents:,}", f"{rows:,}", took, cache_dir())


def _planned(line: Bounded, spec: PackSpec) -> Groups:
    """All groups, one after the other, with progress where there are many documents."""
    many = line.documents >= limits().min_progress_packing_documents
    if many:
        _announce(line, spec)
    shown = None if many else False
    document, address, rows, tally = [0], [0], list[int](), Tally()
    kind = np.min_scalar_type(spec.seq_len)
    tokens: list[NDArray[Any]] = [np.empty(0, kind)]
    with Progress("packing", total=line.documents, unit=" documents", show=shown) as progress:
        while document[-1] < line.documents:
            last = min(document[-1] + spec.group_docs, line.documents)
            numbers, bounds = line.bounds(document[-1], last)
            # a group ends with the document that brings it to `group_tokens`
            ends = bounds[1:] - bounds[0]
            count = min(int(np.searchsorted(ends, spec.group_tokens)) + 1, len(ends))
            planned = plan_group(np.diff(bounds[: count + 1]), spec, len(rows), numbers)
            document.append(document[-1] + count)
            address.append(int(bounds[count]))
            rows.append(len(planned))
            tokens.append(planned.tokens.astype(kind))
            tally += planned.tally
            progress.reach(document[-1])
    edges = np.array(document, np.int64), np.array(address, np.int64)
    return Groups(*edges, np.array(rows, np.int64), tally, np.concatenate(tokens))


class Packed:
    """Packed documents of a line.

    Args:
        spec: how to pack.
        line: what to pack.
        groups: its groups, if they are known.
    """

    def __init__(self, spec: PackSpec, line: Line, groups: Groups | None = None) -> None:
        self.spec, self.line = spec, line
        self.seq_len, self.width = spec.seq_len, spec.width
        self.inserted: tuple[int | None, int | None] = spec.bos_id, spec.eos_id
        self.tag = f"{spec}"
        self.groups: Groups = groups_of(line, spec) if groups is None else groups
        self.phases = Phases.constant(int(self.groups.first_row[-1]))

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.spec, self.line, self.groups)

    row_tokens: tuple[int, int] | None = None

    is_constant: bool = True

    def blocks(self, phase: int = 0) -> Blocks:
        """Where the storage-local blocks lie: every group is one."""
        return Blocks.cut(self.groups.first_row)

    def runs(self, epoch: Int64 | int, rows: Int64) -> None:
        """See `Layout`: the spans tell."""

    def stretch(self, block: Int64, blocks: Blocks, phase: int = 0) -> tuple[Int64, Int64]:
        """The part of the line that the rows of each block cover [N]."""
        first, last = blocks.edges(block)
        low = self._group_of(first)
        high = np.where(last > first, self._group_of(np.maximum(last - 1, 0)) + 1, low)
        return self.groups.address[low], self.groups.address[high]

    def spans(self, epoch: Int64 | int, rows: Int64) -> Spans:
        """The documents in each row."""
        group = self._group_of(rows)
        most = self._kept.most_groups
        if len(rows) <= most or len(numbers := np.unique(group)) <= most:
            return self._gathered(group, rows)
        turn = np.searchsorted(numbers, group) // most  # groups that fit together
        parts = [(self._gathered(group[here], rows[here]), here) for _, here in grouped(turn)]
        return Spans.joined([part for part, _ in parts], [here for _, here in parts])

    def find(self, epoch: int, document: int) -> Int64:
        """See `Layout`: looked up in the plan of its group."""
        found = [np.empty(0, np.int64)]
        for place in self.line.places(document).tolist():
            group = int(np.searchsorted(self.groups.document, place, side="right")) - 1
            rows = self._kept.of(np.array([group]), self.plan).group(group)
            pieces = np.flatnonzero(rows.document == place - self.groups.document[group])
            inside = np.searchsorted(rows.edges, pieces, side="right") - 1
            found.append(self.groups.first_row[group] + inside)
        return np.unique(np.concatenate(found))

    def _gathered(self, group: Int64, rows: Int64) -> Spans:
        """The documents in each row, given the group of each."""
        groups = self.groups
        base = {"document": groups.document[group], "address": groups.address[group]}
        found = self._kept.of(group, self.plan).take(rows, base)
        edges = found.edges
        return Spans(
            width=self.width,
            frame=edges,
            document=self._numbers(np.asarray(found.document, np.int64)),
            start=np.asarray(found.start, np.int64),
            length=np.asarray(found.length, np.int64),
            at=found.at(edges, found.cells),
            address=np.asarray(found.address, np.int64),
            flags=found.flags,
            seen=np.asarray(found.seen, np.int64),
            source=np.zeros(len(rows), np.int32),
        )

    def _numbers(self, places: Int64) -> Int64:
        """The documents at these places of the line, as the store numbers them [N]."""
        if isinstance(self.line, WholeLine):
            return places
        return self.line.bounds(0, self.line.documents)[0][places]

    def costs(self, epoch: Int64 | int, rows: Int64) -> Int64:
        """Source tokens of each row that are in its frame [N]."""
        return self._tokens[rows].astype(np.int64)

    def total(self, least: int) -> int:
        """The sum of the costs of all rows, where a row costs at least 0 or 1."""
        assert least in (0, 1)
        # every row has a stored token, or so it is taken
        if not least or not self.groups.tally.inserted:
            return self.groups.tally.frame_tokens
        empty = len(self._tokens) - int(np.count_nonzero(self._tokens))
        return int(self._tokens.sum(dtype=np.int64)) + empty

    @lazy
    def _tokens(self) -> NDArray[Any]:
        """Stored tokens in the frame of each row, in the smallest dtype that fits [rows]."""
        groups, identity = self.groups, plan_identity(self.line, self.spec)
        if groups.tokens is not None:
            return groups.tokens

        def make() -> NDArray[Any]:
            tokens = _planned(self.line, self.spec).tokens
            assert tokens is not None
            return tokens

        shape = np.min_scalar_type(self.spec.seq_len), int(groups.first_row[-1])
        return remembered_array("packed-tokens", identity, shape, make)

    def _group_of(self, rows: Int64) -> Int64:
        """The group of each row [N]; groups without rows are skipped."""
        last = max(0, len(self.groups) - 1)
        found = np.searchsorted(self.groups.first_row, rows, side="right") - 1
        return np.minimum(found, last)

    @lazy
    def _kept(self) -> KeptRows:
        groups, tally, kinds = self.groups, self.groups.tally, self.groups.kinds(self.spec)
        few = self.line.documents < limits().min_cached_packing_documents
        return KeptRows(
            kinds,
            groups.first_row,
            None if few else plan_identity(self.line, self.spec),
            capacity=limits().packing_table_bytes // kinds.piece_bytes,
            total=tally.segments + tally.rows,  # a piece in a look-ahead cell is no segment
        )

    def plan(self, number: int) -> Columns:
        """The rows of a group, planned."""
        _, begin, rows = group_rows(self.line, self.spec, self.groups, number)
        return columns_of(rows, begin - self.groups.address[number])


class Bounded(Protocol):
    """Documents in order, of which only the lengths matter; a `Line` is one."""

    @property
    def documents(self) -> int:
        """Number of documents."""

    @property
    def tokens(self) -> int:
        """Number of tokens in all documents."""

    @property
    def identity(self) -> str:
        """Identifies the documents: the same for the same documents in the same order."""

    def bounds(self, first: int, last: int) -> tuple[Int64, Int64]:
        """Documents [first, last): their numbers [N], and their edges [N + 1]."""


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of a line.

    Attributes:
        document: first document of each group, then the number of documents [groups + 1].
        address: first token of each group, then the end of the line [groups + 1].
        rows: rows of each group [groups].
        tally: what became of all documents.
        tokens: tokens of each row; None if they are cached in a file [rows].
    """

    document: Int64
    address: Int64
    rows: Int64
    tally: Tally
    tokens: NDArray[Any] | None = None

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.rows)

    @lazy
    def first_row(self) -> Int64:
        """First row of each group, then the number of rows [groups + 1]."""
        return np.concatenate([[0], np.cumsum(self.rows)]).astype(np.int64)

    def as_json(self) -> dict[str, Any]:
        """What a file keeps of them."""
        return {
            "document": self.document.tolist(),
            "address": self.address.tolist(),
            "rows": self.rows.tolist(),
            "tally": asdict(self.tally),
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Groups:
        """The groups of `as_json`; the tokens of their rows are in a file of their own."""
        document, address, rows = (
            np.array(value[name], np.int64) for name in ("document", "address", "rows")
        )
        return Groups(document, address, rows, Tally(**value["tally"]))

    def kinds(self, spec: PackSpec) -> Kinds:
        """The dtypes in which rows are kept."""
        sizes = (np.diff(part).max(initial=1) for part in (self.document, self.address))
        return Kinds(spec.width, *map(int, sizes))


def plan_identity(line: Bounded, spec: PackSpec) -> dict[str, Any]:
    """Names a plan in the plan cache."""
    return {"line": line.identity, "pack": unbind(spec)}
