"""`Packed`: packed documents by row number.

One idea: row i belongs to one group (`tokenloom.layout.pack.groups`), and the plan of that group
says which documents are in the row. A group is planned on first use and its rows are kept
(`tokenloom.layout.pack.piece_table`), in memory up to 256 MiB; when all groups of a large
store have been planned, they are also kept in the plan cache, and no other process plans them
again. So a row of a full shuffle costs a gather.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import grouped
from tokenloom.documents.line import Line, WholeLine
from tokenloom.errors import StoreCorrupt
from tokenloom.layout.allowance import about_to_visit, is_limited
from tokenloom.layout.blocks import Blocks
from tokenloom.layout.layout import Phases
from tokenloom.layout.pack.cut import Tally
from tokenloom.layout.pack.estimated_groups import estimated_groups, may_sample, spread
from tokenloom.layout.pack.groups import (
    Bounded,
    Groups,
    LookedAt,
    PlannedGroups,
    Share,
    documents_in,
    join_groups,
    plan_identity,
)
from tokenloom.layout.pack.kept_rows import KeptRows
from tokenloom.layout.pack.piece_table import Columns, columns_of
from tokenloom.layout.pack.plan import PackedRows, plan_group
from tokenloom.layout.pack.row_file import digest_of, part_bytes
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.spans import Spans
from tokenloom.limits import limits
from tokenloom.progress import Progress
from tokenloom.store.derived.on_disk import FEW, OnDisk, recall_on_disk
from tokenloom.store.handles import lazy
from tokenloom.store.plan_cache import (
    Remembered,
    cache_dir,
    forget,
    is_kept,
    random_places,
    recall,
    remember,
    remember_array,
    remembered_array,
)

__all__ = [
    "Packed",
    "group_pieces",
    "group_rows",
    "groups_of",
    "plan_groups",
    "tokens_of",
]

Int64 = NDArray[np.int64]

ROW_SECONDS = 0.15e-6  # that planning a row takes, about; for people

log = logging.getLogger("tokenloom")


def group_rows(
    line: Bounded, spec: PackSpec, groups: Groups, number: int
) -> tuple[Int64, Int64, PackedRows]:
    """One group: its documents in the store, where each starts on the line, and the rows."""
    first, last = groups.document[number : number + 2].tolist()
    documents, edges = line.bounds(first, last)
    return documents, edges[:-1], plan_group(np.diff(edges), spec, number)


def groups_of(line: Bounded, spec: PackSpec, share: Share | None = None) -> Groups:
    """The groups of a line, from the plan cache or computed.

    Args:
        line: the documents.
        spec: how to pack.
        share: has them planned elsewhere, if they are worth keeping; see `group_pieces`.
    """
    if line.documents < limits().min_cached_packing_documents:
        return _work_out(line, spec)
    identity = plan_identity(line, spec)
    found = recall("pack", identity)
    if found is not None:
        known = _checked(found, line, spec)
        if known is not None:
            return known.signed()
        forget("pack", identity)
    if may_sample(max(line.documents, line.tokens // spec.seq_len)):
        return _estimated(line, spec)
    groups = _work_out(line, spec) if share is None else _shared_out(line, spec, share)
    remember("pack", identity, groups.as_json())
    return _without_tokens(groups, identity).signed()


def _estimated(line: Bounded, spec: PackSpec) -> Groups:
    return estimated_groups(
        line,
        spec.group_docs,
        lambda bounds: documents_in(bounds, spec),
        lambda number, first: _group_from(line, spec, number, first)[1],
    )


def tokens_of(line: Bounded, spec: PackSpec, groups: Groups) -> Remembered:
    """Stored tokens in the frame of each row, in the smallest dtype that fits [rows]."""
    if groups.tokens is not None:
        return Remembered(groups.tokens, groups.tokens_digest)
    first, tokens = groups.first_row, groups.tally.frame_tokens

    def agrees(known: NDArray[Any]) -> bool:
        """Whether the sum is right, and every row of the groups that were planned again."""
        return int(known.sum(dtype=np.int64)) == tokens and all(
            np.array_equal(known[first[one] : first[one + 1]], right.tokens)
            for one, right in groups.looked_at.items()
        )

    def make() -> NDArray[Any]:
        made = _work_out(line, spec).tokens
        assert made is not None
        return made

    shape = np.min_scalar_type(spec.seq_len), int(first[-1])
    return remembered_array("packed-tokens", plan_identity(line, spec), shape, agrees, make)


def _without_tokens(groups: Groups, identity: dict[str, Any]) -> Groups:
    """A copy whose row tokens are in a cache file, if one could be written."""
    assert groups.tokens is not None
    digest, kept = remember_array("packed-tokens", identity, groups.tokens)
    if not kept:
        return replace(groups, tokens_digest=digest)
    first, some = groups.first_row, random_places(len(groups)).tolist()
    looked_at = {one: LookedAt(groups.tokens[first[one] : first[one + 1]].copy()) for one in some}
    return replace(groups, tokens=None, looked_at=looked_at, tokens_digest=digest)


def _announce(line: Bounded, spec: PackSpec) -> None:
    """Say what making the plan of many documents costs."""
    rows = max(line.documents // 2, line.tokens // spec.seq_len)
    took = max(rows, line.documents) * ROW_SECONDS
    said = "packing %s documents into about %s rows: the plan is made once, in about %.0f s, and "
    log.info(f"{said}kept in %s", f"{line.documents:,}", f"{rows:,}", took, cache_dir())


def _work_out(line: Bounded, spec: PackSpec) -> Groups:
    many = line.documents >= limits().min_progress_packing_documents
    if many:
        _announce(line, spec)
    shown = None if many else False
    with Progress("packing", total=line.documents, unit=" documents", show=shown) as progress:
        made = plan_groups(line, spec, 0, 0, None, progress.reach)
    return join_groups([made], spec)


def _shared_out(line: Bounded, spec: PackSpec, share: Share) -> Groups:
    found = share(list(group_pieces(line, spec)))
    return join_groups((PlannedGroups.of(one, spec) for one in found), spec)


def group_pieces(line: Bounded, spec: PackSpec) -> Iterator[dict[str, int]]:
    """The pieces in which the groups of a line may be planned; takes their lengths alone."""
    piece = limits().packing_piece_groups
    number = document = 0
    while document < line.documents:
        if number % piece == 0:
            yield {"number": number, "document": document, "groups": piece}
        _, bounds = line.bounds(document, min(document + spec.group_docs, line.documents))
        document += documents_in(bounds, spec)
        number += 1


def plan_groups(
    line: Bounded,
    spec: PackSpec,
    number: int,
    document: int,
    groups: int | None,
    reach: Callable[[int], None] = lambda _: None,
) -> PlannedGroups:
    """Some groups, planned.

    Args:
        line: the documents.
        spec: how to pack.
        number: the number of the first group.
        document: its first document on the line.
        groups: how many, at most; None is all that are left.
        reach: told up to which document they are planned.
    """
    ends, address, rows, tally = list[int](), list[int](), list[int](), Tally()
    kind = np.min_scalar_type(spec.seq_len)
    tokens: list[NDArray[Any]] = [np.empty(0, kind)]
    while document < line.documents and (groups is None or len(rows) < groups):
        bounds, planned = _group_from(line, spec, number + len(rows), document)
        document += len(bounds) - 1
        ends.append(document)
        address.append(int(bounds[-1]))
        rows.append(len(planned))
        tokens.append(planned.tokens.astype(kind))
        tally += planned.tally
        reach(document)
    after, at, counts = (np.array(part, np.int64) for part in (ends, address, rows))
    return PlannedGroups(after, at, counts, np.concatenate(tokens), tally)


def _group_from(line: Bounded, spec: PackSpec, number: int, first: int) -> tuple[Int64, PackedRows]:
    """The group that starts at document `first`: edges of its documents on the line, its rows."""
    numbers, bounds = line.bounds(first, min(first + spec.group_docs, line.documents))
    count = documents_in(bounds, spec)
    planned = plan_group(np.diff(bounds[: count + 1]), spec, number, numbers)
    return bounds[: count + 1], planned


def _checked(found: dict[str, Any], line: Bounded, spec: PackSpec) -> Groups | None:
    """The cached groups if the laws hold, and random groups are planned again as recorded."""
    try:
        document, address, rows = (
            np.array(found[name], np.int64) for name in ("document", "address", "rows")
        )
        groups = Groups(document, address, rows, Tally(**found["tally"]))
        whole = len(document) == len(address) == len(rows) + 1
        whole = whole and bool((np.diff(document) > 0).all() and (np.diff(address) >= 0).all())
        whole = whole and (document[0], document[-1]) == (0, line.documents)
        whole = whole and (address[0], address[-1]) == (0, line.tokens)
        whole = whole and bool((rows >= 0).all()) and groups.tally.rows == rows.sum()
        looked_at = _look_at(line, spec, groups) if whole else None
    except (KeyError, TypeError, ValueError, OverflowError, IndexError):
        return None
    return None if looked_at is None else replace(groups, looked_at=looked_at)


def _look_at(line: Bounded, spec: PackSpec, groups: Groups) -> dict[int, LookedAt] | None:
    """Random groups, all planned again; None if one differs."""
    kind, kinds, found = np.min_scalar_type(spec.seq_len), groups.kinds(spec), {}
    rows_kept = is_kept("packed-rows", plan_identity(line, spec))  # else nothing to compare
    for number in random_places(len(groups)).tolist():
        first, last = groups.document[number : number + 2].tolist()
        bounds, planned = _group_from(line, spec, number, first)
        here = first + len(bounds) - 1, bounds[0], bounds[-1], len(planned)
        if here != (last, *groups.address[number : number + 2], groups.rows[number]):
            return None
        digest = b""
        if rows_kept:
            digest = digest_of(columns_of(planned, bounds[:-1] - bounds[0]), kinds)
        found[number] = LookedAt(planned.tokens.astype(kind), digest)
    return found


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

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, (self.spec, self.line, self.groups)

    row_tokens: tuple[int, int] | None = None

    is_constant: bool = True

    def is_steady(self, epoch: int) -> bool:
        """Whether all epochs have the same number of tokens."""
        return True

    @property
    def phases(self) -> Phases:
        """Rows of every epoch."""
        return Phases.constant(int(self.groups.first_row[-1]))

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
            rows = self._kept.of(np.array([group]), self).group(group)
            pieces = np.flatnonzero(rows.document == place - self.groups.document[group])
            inside = np.searchsorted(rows.edges, pieces, side="right") - 1
            found.append(self.groups.first_row[group] + inside)
        return np.unique(np.concatenate(found))

    def price(self, rows: Int64) -> int:
        """Rows that count as visited when spans of these are asked; see `layout.allowance`."""
        return self._kept.price(self._group_of(rows), rows, self)

    def _gathered(self, group: Int64, rows: Int64) -> Spans:
        """The documents in each row, given the group of each."""
        groups = self.groups
        base = {"document": groups.document[group], "address": groups.address[group]}
        found = self._kept.take(group, rows, base, self)
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
        if self.groups.sampled:  # spread evenly
            shared = self.groups.tally.frame_tokens, max(1, self.groups.tally.rows)
            return spread(rows + 1, *shared) - spread(rows, *shared)
        found = None
        if is_limited() and self._is_large and len(rows) <= FEW and self._on_disk is not None:
            found = self._on_disk.take(rows)
        return (self._tokens[rows] if found is None else found).astype(np.int64)

    @property
    def _is_large(self) -> bool:
        """Whether the tokens of its rows are not in memory, and too many for who waits."""
        in_memory = limits().packing_memory_rows
        return "_tokens" not in self.__dict__ and self.groups.tally.rows > in_memory

    @lazy
    def _on_disk(self) -> OnDisk | None:
        """The tokens of rows where they are kept: a page shows few of 10^9."""
        return recall_on_disk("packed-tokens", plan_identity(self.line, self.spec))

    def total(self, least: int) -> int:
        """The sum of the costs of all rows, where a row costs at least 0 or 1."""
        assert least in (0, 1)
        # every row has a stored token, or so it is taken
        if not least or not self.groups.tally.inserted or self.groups.sampled:
            return self.groups.tally.frame_tokens
        empty = len(self._tokens) - int(np.count_nonzero(self._tokens))
        return int(self._tokens.sum(dtype=np.int64)) + empty

    @lazy
    def _tokens(self) -> NDArray[Any]:
        return self._remembered.array

    @lazy
    def _remembered(self) -> Remembered:
        if self._is_large:
            about_to_visit(self.groups.tally.rows, "the tokens of all packed rows")
        return tokens_of(self.line, self.spec, self.groups)

    @property
    def plan_digests(self) -> tuple[str, ...]:
        """Digests of the cached arrays that its rows follow from."""
        return (self.groups.digest,) if self.groups.digest else ()

    @property
    def cost_digests(self) -> tuple[str, ...]:
        """Digests of the cached arrays that `costs` reads."""
        if self.groups.sampled:
            return ()
        return (self._remembered.digest,) if self._remembered.digest else ()

    def _group_of(self, rows: Int64) -> Int64:
        """The group of each row [N]; groups without rows are skipped."""
        last = max(0, len(self.groups) - 1)
        found = np.searchsorted(self.groups.first_row, rows, side="right") - 1
        return np.minimum(found, last)

    @lazy
    def _kept(self) -> KeptRows:
        groups, tally, kinds = self.groups, self.groups.tally, self.groups.kinds(self.spec)
        return KeptRows(
            kinds,
            groups.first_row,
            self.kept_as,
            capacity=limits().packing_table_bytes // kinds.piece_bytes,
            total=tally.segments + tally.rows,  # a piece in a look-ahead cell is no segment
        )

    @property
    def kept_as(self) -> dict[str, Any] | None:
        """Names its plans in the plan cache; None if they are not worth a file."""
        few = self.line.documents < limits().min_cached_packing_documents
        return None if few or self.groups.sampled else plan_identity(self.line, self.spec)

    def keep_rows(self, share: Share | None = None) -> bool:
        """Have the plan cache keep the rows of all groups; whether this call made the file.

        Args:
            share: has pieces planned elsewhere, see `row_bytes`.
        """
        ends = [*range(0, len(self.groups), limits().packing_piece_groups), len(self.groups)]
        pieces = [{"low": a, "high": b} for a, b in itertools.pairwise(ends)]
        made = map(self._piece, pieces) if share is None else share(pieces)
        return self._kept.keep_all(one for piece in made for one in piece["groups"])

    def _piece(self, piece: dict[str, int]) -> dict[str, list[bytes]]:
        return {"groups": self.row_bytes(**piece)}

    def row_bytes(self, low: int, high: int) -> list[bytes]:
        """The parts of some groups, planned, as the plan cache keeps them."""
        kinds = self.groups.kinds(self.spec)
        return [one for number in range(low, high) for one in part_bytes(self.plan(number), kinds)]

    def looked_at(self) -> dict[int, bytes]:
        """Random groups → digest of their rows, planned in this process."""
        looked_at = self.groups.looked_at
        return {number: one.digest for number, one in looked_at.items() if one.digest}

    def plan(self, number: int) -> Columns:
        """The rows of a group, planned."""
        _, begin, rows = group_rows(self.line, self.spec, self.groups, number)
        found = columns_of(rows, begin - self.groups.address[number])
        if self.groups.sampled:
            return found.filled(int(self.groups.rows[number]))
        if len(rows) != self.groups.rows[number]:
            self._refuse(number, "pack")
        self._compare(number, rows.tokens)
        return found

    def check(self, number: int, rows: Columns, first: int = 0) -> bool:
        """Whether rows that were kept fit the group, and the tokens that were kept of them."""
        groups = self.groups
        documents = int(groups.document[number + 1] - groups.document[number])
        tokens = int(groups.address[number + 1] - groups.address[number])
        if not rows.is_lawful(self.width, documents, tokens):
            return False
        if "_remembered" in self.__dict__:
            self._compare(number, rows.tokens(self.seq_len), first)
        return True

    def _compare(self, number: int, tokens: Int64, first: int = 0) -> None:
        """Refuse rows of a group, from `first` on, whose tokens are not those that were kept."""
        known = self.__dict__.get("_remembered")  # if they were needed
        low = int(self.groups.first_row[number]) + first
        if known and not np.array_equal(known.array[low : low + len(tokens)], tokens):
            self._refuse(number, "packed-tokens")

    def _refuse(self, number: int, kind: str) -> NoReturn:
        """Remove a file that says something wrong about a group, and say so."""
        forget(kind, plan_identity(self.line, self.spec))
        raise StoreCorrupt(
            f"plan cache: what it says about documents {self.groups.document[number]:,} to "
            f"{self.groups.document[number + 1] - 1:,} is wrong, and an order may follow from "
            f"it. The file is removed; run again. ({cache_dir()})"
        )
