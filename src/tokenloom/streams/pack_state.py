"""The options, state and counters of a streaming packer, and how they are written as JSON.

One idea: in every mode, a packer holds *pieces* (stretches of documents) in two queues: rows that
are made but not popped (`ready`), and after them the pieces that wait (`pending`). So there is one
state for all modes, checked by the same few laws.

The JSON is flat. Two rows of 2 and 1 pieces are ready, a piece of 5 tokens waits::

    rows 2 1    documents 0 1 3 2    continues 0 0 0 0    lengths 3 4 8 5    tokens (20 of them)

`tokenloom.streams.state` writes and reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import MAX_COUNT, check_between, one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.streams.state import as_json, broken, check_same, damaged, not_counts, read_as, shown

__all__ = ["FORMAT", "HeldPieces", "PackerSpec", "Piece", "RowStats", "StreamStats", "dump", "load"]

FORMAT = "tokenloom.packer/1"

MAX_TOKEN = (1 << 31) - 1

COMMON = ("mode", "seq_len", "window", "overlap", "pad_id", "bos_id", "eos_id", "max_doc_tokens")

USES = {  # options that only some modes use
    "sequential": (),
    "bin": ("packing_buffer_docs", "packing_max_docs_per_bin", "bins_per_pack"),
    "multipack": ("packing_max_docs_per_bin", "group_docs"),
    "one_doc": (),
}

Int64 = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackerSpec:
    """How to pack a stream.

    Attributes:
        mode: "sequential", "bin", "multipack" or "one_doc" (`tokenloom.streams.pack`).
        seq_len: tokens of a frame.
        window: "T" gives rows of `seq_len` cells, "T+1" one cell more, which is only a label.
        overlap: tokens that a row shares with the row that continues its last document, 0 or 1; 1
            trains every transition once and is the default for "T+1"; "T" has 0.
        pad_id: the token of filler cells.
        bos_id, eos_id: inserted before and after every document, if not None.
        max_doc_tokens: maximum tokens of a document to keep; the rest are only counted.
        packing_buffer_docs: pieces that "bin" waits for, at least `bins_per_pack`.
        packing_max_docs_per_bin: maximum pieces of a row ("bin" and "multipack").
        bins_per_pack: rows that "bin" makes together.
        group_docs: pieces that "multipack" packs together.

    A document that fits a row is one piece. Options that a mode does not use are ignored, so a
    configuration can change just its mode.
    """

    mode: str
    seq_len: int
    window: Literal["T", "T+1"] = "T"
    overlap: int | None = None
    pad_id: int = 0
    bos_id: int | None = None
    eos_id: int | None = None
    max_doc_tokens: int | None = None
    packing_buffer_docs: int = 128
    packing_max_docs_per_bin: int | None = None
    bins_per_pack: int = 1
    group_docs: int = 128

    def __post_init__(self) -> None:
        check_fields(self)
        one_of("mode", self.mode, USES)
        check_between("seq_len", self.seq_len, 2, 1 << 29, unit="tokens")
        for name in ("pad_id", "bos_id", "eos_id"):
            check_between(name, getattr(self, name), 0, MAX_TOKEN)
        for name in ("max_doc_tokens", *USES["bin"], "group_docs"):
            check_between(name, getattr(self, name), 1, MAX_TOKEN)
        if self.overlap not in (None, 0, 1) or (self.overlap == 1 and self.window == "T"):
            raise ConfigError(f"overlap: found {self.overlap}, allowed: 0, or 1 with window='T+1'.")
        if self.mode == "bin" and self.packing_buffer_docs < self.bins_per_pack:
            raise ConfigError(
                f"packing_buffer_docs: found {self.packing_buffer_docs}, allowed: bins_per_pack "
                f"({self.bins_per_pack}) or more; each bin is opened by its own piece."
            )

    @property
    def width(self) -> int:
        """Cells of a row."""
        return self.seq_len + (self.window == "T+1")

    @property
    def shared(self) -> int:
        """The overlap, or the default of the window."""
        return int(self.window == "T+1") if self.overlap is None else self.overlap

    def options(self) -> dict[str, Any]:
        """The options that determine the rows, as JSON."""
        named = {name: getattr(self, name) for name in (*COMMON, *USES[self.mode])}
        return named | {"overlap": self.shared}


@dataclass(frozen=True, eq=False, slots=True)
class Piece:
    """A stretch of one document, including inserted tokens.

    Attributes:
        document: the number of the document.
        continues: whether an earlier piece of the document is in another row.
        tokens: int32 [cells], at least one.
    """

    document: int
    continues: bool
    tokens: NDArray[np.int32]

    def __len__(self) -> int:
        """The number of cells."""
        return len(self.tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowStats:
    """How full rows are.

    Attributes:
        rows: the number of rows.
        cells: cells of all rows, including filler.
        tokens: cells that are not filler.
        segments: stretches of documents.
        transitions: places where one segment follows another in a row.
    """

    rows: int
    cells: int
    tokens: int
    segments: int
    transitions: int

    @property
    def utilisation(self) -> float:
        """The fraction of cells that are not filler."""
        return self.tokens / self.cells if self.cells else 0.0

    @property
    def segments_per_row(self) -> float:
        """The mean number of segments in a row."""
        return self.segments / self.rows if self.rows else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamStats(RowStats):
    """What was added to a packer, and the rows that were popped.

    Attributes:
        documents_seen: documents added, including empty ones: the position in the stream.
        documents_empty: those of them without a token; they give no piece.
        documents_truncated: those of them longer than `max_doc_tokens`.
        tokens_observed: tokens of all documents before truncation, without inserted ones.
        tokens_retained: those of them that were kept.
    """

    documents_seen: int
    documents_empty: int
    documents_truncated: int
    tokens_observed: int
    tokens_retained: int

    @property
    def tokens_discarded(self) -> int:
        """The tokens beyond `max_doc_tokens`."""
        return self.tokens_observed - self.tokens_retained

    @classmethod
    def none(cls) -> StreamStats:
        """The statistics of a new packer."""
        return cls(**{each.name: 0 for each in fields(cls)})


@dataclass(frozen=True, eq=False, slots=True)
class HeldPieces:
    """Everything that a packer holds.

    Attributes:
        stats: its counters.
        finished: whether the input has ended.
        pending: pieces that wait, in order of arrival.
        ready: rows that were made and not popped.
    """

    stats: StreamStats
    finished: bool
    pending: Sequence[Piece]
    ready: Sequence[Sequence[Piece]]

    @property
    def pieces(self) -> list[Piece]:
        """The pieces of the rows, then those that wait."""
        return [*(piece for row in self.ready for piece in row), *self.pending]

    def undelivered(self, shared: int) -> int:
        """The tokens in no popped row; a shared token counts where it first appears."""
        return sum(len(piece) - shared * piece.continues for piece in self.pieces)


# -- writing and reading -----------------------------------------------------------------------
def dump(spec: PackerSpec, held: HeldPieces) -> dict[str, Any]:
    """The state as JSON."""
    pieces = held.pieces
    return as_json(
        FORMAT,
        spec.options(),
        counters=asdict(held.stats),
        finished=held.finished,
        rows=[len(row) for row in held.ready],
        documents=[piece.document for piece in pieces],
        continues=[int(piece.continues) for piece in pieces],
        lengths=[len(piece) for piece in pieces],
        tokens=np.concatenate([p.tokens for p in pieces]).tolist() if pieces else [],
    )


@dataclass(frozen=True, slots=True)
class _State:
    format: Literal["tokenloom.packer/1"]
    options: PackerSpec
    counters: StreamStats
    finished: bool
    rows: Any
    documents: Any
    continues: Any
    lengths: Any
    tokens: Any


def load(
    spec: PackerSpec, state: Any, *, other_mode: bool = False
) -> tuple[PackerSpec, HeldPieces]:
    """What a state holds, and the spec of the packer that wrote it.

    Args:
        spec: the spec of the packer that resumes.
        state: what `dump` returned, or its JSON.
        other_mode: let the mode differ, and the options that only some modes use.

    Raises:
        StateError: it is damaged, or of another packer; the message lists every problem.
    """
    read = read_as(_State, state)
    saved = read.options
    _check_keys(state["options"], saved)
    _check_same(saved, spec, other_mode)
    problems = _counter_problems(read.counters, saved.width)
    ready, pending = _pieces(read, problems)
    held = HeldPieces(read.counters, read.finished, pending, ready)
    problems += [] if problems else _queue_problems(saved, held)
    if problems:
        raise damaged(problems)
    return saved, held


def _check_keys(found: dict[str, Any], saved: PackerSpec) -> None:
    named = saved.options()
    wrong = [f"state.options.{key}: missing" for key in named if key not in found]
    wrong += [
        f"state.options.{key}: not an option of mode {saved.mode!r}"
        for key in found
        if key not in named
    ]
    if wrong:
        raise damaged(wrong)


def _check_same(saved: PackerSpec, spec: PackerSpec, other_mode: bool) -> None:
    then, now = saved.options(), spec.options()
    but = {*then, *now} - {*COMMON} if saved.mode != spec.mode else set()
    but |= {"mode"} if other_mode else set()
    only = all(then[key] == now[key] for key in COMMON if key != "mode")
    hint = ", or pass on_mode_change='discard' to keep its position and lose what is buffered"
    check_same(
        "packer", then, now, but=but, remedy=hint if only and saved.mode != spec.mode else ""
    )


def _counter_problems(stats: StreamStats, width: int) -> list[str]:
    wrong = not_counts({f"counters.{key}": value for key, value in asdict(stats).items()})
    lost, cut = stats.tokens_discarded, stats.documents_truncated
    filled = stats.documents_seen - stats.documents_empty
    laws = {
        "cells = rows x width": stats.cells == stats.rows * width,
        "rows <= segments <= tokens": stats.rows <= stats.segments <= stats.tokens,
        "tokens <= cells": stats.tokens <= stats.cells,
        "transitions = segments - rows": stats.transitions == stats.segments - stats.rows,
        "truncated <= seen - empty <= retained": cut <= filled <= stats.tokens_retained,
        "truncated <= observed - retained": cut <= lost and (cut > 0) == (lost > 0),
    }
    return wrong or broken(laws, "state.counters")


def _ints(key: str, value: Any, low: int, high: int, problems: list[str]) -> list[int]:
    """A list of integers within bounds; anything wrong with it is added to `problems`."""
    if type(value) is not list or not set(map(type, value)) <= {int}:
        problems.append(f"state.{key}: found {type(value).__name__}, allowed: a list of integers")
    elif value and not low <= min(value) <= max(value) <= high:
        seen = min(value) if min(value) < low else max(value)
        problems.append(f"state.{key}: found {shown(seen)}, allowed: {low} to {high}")
    else:
        return value
    return []


def _pieces(read: _State, problems: list[str]) -> tuple[list[list[Piece]], list[Piece]]:
    """The ready rows, and the waiting pieces."""
    rows = _ints("rows", read.rows, 1, MAX_TOKEN, problems)
    documents = _ints("documents", read.documents, 0, MAX_COUNT, problems)
    continues = _ints("continues", read.continues, 0, 1, problems)
    lengths = _ints("lengths", read.lengths, 1, MAX_TOKEN, problems)
    tokens = _ints("tokens", read.tokens, 0, MAX_TOKEN, problems)
    count, cells = len(lengths), sum(lengths)
    for ok, text in (
        (len(documents) == count, f"documents: found {len(documents)} for {count} lengths"),
        (len(continues) == count, f"continues: found {len(continues)} for {count} lengths"),
        (sum(rows) <= count, f"rows: they add up to {sum(rows)} pieces, there are {count}"),
        (cells == len(tokens), f"lengths: they add up to {cells}, there are {len(tokens)} tokens"),
    ):
        problems += [] if ok else [f"state.{text}"]
    if problems:
        return [], []
    stops = np.cumsum(lengths, dtype=np.int64)
    parts = np.split(np.array(tokens, np.int32), stops[:-1]) if count else []
    pieces = [Piece(d, c > 0, t) for d, c, t in zip(documents, continues, parts, strict=True)]
    edges = [0, *np.cumsum(rows, dtype=np.int64).tolist()]
    ready = [pieces[a:b] for a, b in pairwise(edges)]
    return ready, pieces[edges[-1] :]


def _queue_problems(spec: PackerSpec, held: HeldPieces) -> list[str]:
    """Problems of queues that this spec cannot produce."""
    line, single, width = spec.mode == "sequential", spec.mode == "one_doc", spec.width
    waiting = {"bin": spec.packing_buffer_docs, "multipack": spec.group_docs, "one_doc": 1}
    most = (1 if single else spec.packing_max_docs_per_bin or MAX_TOKEN) if not line else MAX_TOKEN
    cells = sum(map(len, held.pending))
    full = held.ready[:-1] if held.finished else held.ready  # the last one may be short
    laws = {
        "a finished packer leaves nothing waiting": not (held.finished and held.pending),
        "no piece has more cells than a row": all(len(p) <= width for p in held.pieces),
        "no row has more tokens than cells": all(sum(map(len, r)) <= width for r in held.ready),
        f"no row has more than {most} pieces": all(len(row) <= most for row in held.ready),
        "pieces are packed as soon as there are enough": (
            cells < width if line else len(held.pending) < waiting[spec.mode]
        ),
        "sequential rows are full": not line or all(sum(map(len, row)) == width for row in full),
        "a document continues only at the start of a row": (
            not line or not any(p.continues for row in (*held.ready, held.pending) for p in row[1:])
        ),
    }
    return broken(laws)
