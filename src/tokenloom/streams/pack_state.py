"""The options, state and counters of a streaming packer, and how they are written as JSON.

One idea: in every mode, a packer holds *pieces* (stretches of documents) in two queues: rows that
are made but not popped (`ready`), and after them the pieces that wait (`pending`). So there is one
state for all modes.

The JSON is flat. Two rows of 2 and 1 pieces are ready, a piece of 5 tokens waits::

    rows 2 1    documents 0 1 3 2    continues 0 0 0 0    lengths 3 4 8 5    tokens (20 of them)

`tokenloom.streams.state` writes and reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import accumulate, pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import check_between, one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError
from tokenloom.streams.state import check_same, opened, sealed

FORMAT = "tokenloom.packer/2"

MAX_TOKEN = (1 << 31) - 1

COMMON = ("mode", "seq_len", "window", "overlap", "pad_id", "bos_id", "eos_id", "max_doc_tokens")

USES = {  # options that only some modes use
    "sequential": (),
    "bin": ("packing_buffer_docs", "packing_max_docs_per_bin", "bins_per_pack"),
    "multipack": ("packing_max_docs_per_bin", "group_docs"),
    "one_doc": (),
}


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
    return sealed(
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


def load(
    spec: PackerSpec, state: Any, *, other_mode: bool = False
) -> tuple[PackerSpec, HeldPieces]:
    """What a state holds, and the spec of the packer that wrote it.

    Args:
        spec: the spec of the packer that resumes.
        state: what `dump` returned, or its JSON.
        other_mode: let the mode differ, and the options that only some modes use.

    Raises:
        StateError: it was changed, or is of another packer.
    """
    read = opened(FORMAT, state)
    saved = PackerSpec(**read["options"])
    _check_same(saved, spec, other_mode)
    lengths, tokens = read["lengths"], np.array(read["tokens"], np.int32)
    parts = np.split(tokens, np.cumsum(lengths, dtype=np.int64)[:-1]) if lengths else []
    rows = zip(read["documents"], read["continues"], parts, strict=True)
    pieces = [Piece(document, continues > 0, part) for document, continues, part in rows]
    edges = [0, *accumulate(read["rows"])]
    ready = [pieces[a:b] for a, b in pairwise(edges)]
    stats = StreamStats(**read["counters"])
    return saved, HeldPieces(stats, read["finished"], pieces[edges[-1] :], ready)


def _check_same(saved: PackerSpec, spec: PackerSpec, other_mode: bool) -> None:
    then, now = saved.options(), spec.options()
    but = {*then, *now} - {*COMMON} if saved.mode != spec.mode else set()
    but |= {"mode"} if other_mode else set()
    only = all(then[key] == now[key] for key in COMMON if key != "mode")
    hint = ", or pass on_mode_change='discard' to keep its position and lose what is buffered"
    check_same(
        "packer", then, now, but=but, remedy=hint if only and saved.mode != spec.mode else ""
    )
