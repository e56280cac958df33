"""Streaming packers: documents one by one → rows, when lengths are not known in advance.

One idea: in every mode, a document becomes pieces, pieces wait in a queue, and as soon as there are
enough of them, inside `add`, a pure rule turns them into rows. So the rows are a function of the
documents and the options alone: neither batching nor the timing of `pop` can change them.

===========  ================  ===================================================================
mode         enough            rule
===========  ================  ===================================================================
sequential   a row of tokens   documents end to end, cut every row
bin          a buffer of       the oldest `bins_per_pack` pieces open a row each, the others fill
             pieces            them up, longest first; the rest wait, in order of arrival
multipack    a group           first fit decreasing of the group, into as many rows as needed
one_doc      a piece           a row of its own
===========  ================  ===================================================================

A document longer than a row is cut into pieces of a row (sequential: wherever a row ends); nothing
is lost. With overlap 1 a piece starts with the last token of the one before. So every transition
inside a document, and in sequential mode every transition of the stream, is in one row.

Nothing starves. In "bin" a piece with p pieces before it leaves with the (p // bins_per_pack + 1)th
pack from then on at the latest, and p < packing_buffer_docs. A group leaves as a whole.

Worked example, rows of 8, mode "bin", one bin, a buffer of 3, documents of 5, 6 and 3 tokens: the
first opens the row, the third fills it; the second waits, and opens the next.

If documents are in a store, lengths are known: use a layout, which has random access and no state.
Cost: no Python per token, some NumPy calls per document and per row. In "bin" a pack examines the
whole buffer, so large `bins_per_pack` are cheaper than 1.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenloom.arguments import MAX_COUNT, field_names, near_misses, one_of
from tokenloom.errors import ConfigError, InputError, plural
from tokenloom.layout.pack.packers import Bins, pack
from tokenloom.layout.pack.slices import slice_each, slice_line
from tokenloom.streams.pack_state import (
    MAX_TOKEN,
    HeldPieces,
    PackerSpec,
    Piece,
    RowStats,
    StreamStats,
    dump,
    load,
)

Int32 = NDArray[np.int32]

Int64 = NDArray[np.int64]

Pieces = list[Piece]


def _whole(number: int, cells: Int32, ends: bool, spec: PackerSpec) -> Pieces:
    return [Piece(number, False, cells)]


def _cut(number: int, cells: Int32, ends: bool, spec: PackerSpec) -> Pieces:
    """A document in pieces of at most a row, none of which is EOS alone.

    Rows of 4, overlap 0: a b c d EOS would leave EOS alone, so it is a b c | d EOS.
    """
    size = len(cells)
    if size <= spec.width:
        return [Piece(number, False, cells)]
    made = slice_each(np.array([size]), spec.width, spec.shared, eos=np.array([ends]))
    edges = zip(made.start.tolist(), made.stop.tolist(), strict=True)
    return [Piece(number, start > 0, cells[start:stop].copy()) for start, stop in edges]


def _windows(pending: Pieces, spec: PackerSpec) -> tuple[list[Pieces], Pieces]:
    """All full rows of the pieces end to end; the last piece continues in the next row."""
    lengths = np.array([len(piece) for piece in pending])
    total, step = int(lengths.sum()), spec.width - spec.shared
    full = 1 + (total - spec.width) // step
    # one more row for what keeps waiting, if anything does
    made = slice_line(lengths, spec.width, np.arange(full + (full * step < total)) * step)
    parts = (made.document, made.start, made.stop, made.repeated)
    pieces = [
        _part(pending[which], start, stop, again > 0)
        for which, start, stop, again in zip(*(part.tolist() for part in parts), strict=True)
    ]
    rows = [pieces[a:b] for a, b in pairwise(made.edges.tolist())]
    return rows[:full], [piece for row in rows[full:] for piece in row]


def _part(piece: Piece, start: int, stop: int, again: bool) -> Piece:
    """A stretch of a piece; `again`: its first token is also at the end of the row before."""
    goes_on = piece.continues or start > 0 or again
    return Piece(piece.document, goes_on, piece.tokens[start:stop].copy())


def _last_window(pending: Pieces, spec: PackerSpec) -> list[Pieces]:
    """The rest, unless it is only the token that the row before ended with."""
    fresh = sum(map(len, pending)) - spec.shared * sum(piece.continues for piece in pending)
    return [pending] if fresh else []


def _filled(pending: Pieces, spec: PackerSpec) -> tuple[list[Pieces], Pieces]:
    """The oldest pieces open the bins; the others fill them up, longest first.

    `pack` cannot start from opened bins, so bins get twice the room and openers are one row longer:
    5 of 8 becomes 13 of 16, which leaves the same room of 3, and two openers never share a bin.
    Pieces in later bins wait; because those bins come later, they did not affect the first ones.
    """
    count, width = spec.bins_per_pack, spec.width
    lengths = np.array([len(piece) for piece in pending])
    order = np.concatenate([np.arange(count), count + _longest_first(lengths[count:])])
    sizes = lengths[order]
    sizes[:count] += width
    made = pack(sizes, 2 * width, "first_fit", spec.packing_max_docs_per_bin)
    bins = [order[items] for items in _split(made)]
    rows = [items[_longest_first(lengths[items])] for items in bins[:count]]
    left = np.sort(np.concatenate([np.empty(0, np.int64), *bins[count:]]))
    return [[pending[i] for i in row] for row in rows], [pending[i] for i in left]


def _decreasing(pending: Pieces, spec: PackerSpec) -> list[Pieces]:
    lengths = np.array([len(piece) for piece in pending], np.int64)
    made = pack(lengths, spec.width, "first_fit_decreasing", spec.packing_max_docs_per_bin)
    return [[pending[i] for i in items] for items in _split(made)]


def _group(pending: Pieces, spec: PackerSpec) -> tuple[list[Pieces], Pieces]:
    return _decreasing(pending, spec), []


def _longest_first(lengths: Int64) -> Int64:
    return np.argsort(-lengths, kind="stable")


def _split(made: Bins) -> list[Int64]:
    return np.split(made.items, made.edges[1:-1]) if len(made) else []


@dataclass(frozen=True, slots=True)
class Mode:
    """The rules of a mode, and when `take` is called."""

    cut: Callable[[int, Int32, bool, PackerSpec], Pieces]  # a document → pieces
    enough: Callable[[int, int, PackerSpec], bool]  # waiting pieces, their cells → pack now?
    take: Callable[[Pieces, PackerSpec], tuple[list[Pieces], Pieces]]  # → rows, what keeps waiting
    rest: Callable[[Pieces, PackerSpec], list[Pieces]]  # → rows, at the end


MODES = {
    "sequential": Mode(_whole, lambda _, cells, spec: cells >= spec.width, _windows, _last_window),
    "bin": Mode(_cut, lambda n, _, spec: n >= spec.packing_buffer_docs, _filled, _decreasing),
    "multipack": Mode(_cut, lambda n, _, spec: n >= spec.group_docs, _group, _decreasing),
    "one_doc": Mode(_cut, lambda n, _, spec: n > 0, lambda p, spec: ([p], []), lambda p, spec: []),
}

log = logging.getLogger("tokenloom")


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Row:
    """One packed row.

    Attributes:
        tokens: the tokens, `pad_id` in filler cells; int32 [width].
        segment_ids: 1 to n in every row, 0 for filler; int32 [width].
        document_starts: the first cell of each segment, the first is 0; int32 [n].
        continues: whether a segment continues a document of an earlier row; bool [n].
        documents: the number of each segment's document; int64 [n].
    """

    tokens: Int32
    segment_ids: Int32
    document_starts: Int32
    continues: NDArray[np.bool_]
    documents: Int64


@near_misses("stream_packer")
def stream_packer(
    mode: str,
    seq_len: int,
    *,
    window: Literal["T", "T+1"] = "T",
    overlap: int | None = None,
    pad_id: int = 0,
    bos_id: int | None = None,
    eos_id: int | None = None,
    max_doc_tokens: int | None = None,
    packing_buffer_docs: int = 128,
    packing_max_docs_per_bin: int | None = None,
    bins_per_pack: int = 1,
    group_docs: int = 128,
) -> StreamPacker:
    """A packer for documents that come one by one.

    Options that a mode does not use are ignored, so a configuration can change just its mode.

    Args:
        mode: "sequential", "bin", "multipack" or "one_doc".
        seq_len: tokens of a frame.
        window: "T" gives rows of `seq_len` cells, "T+1" one cell more, which is only a label.
        overlap: tokens that a row shares with the next row of its last document, 0 or 1; None: 1
            for "T+1", so that every transition is trained once, else 0.
        pad_id: the token of filler cells.
        bos_id: put before every document, if not None.
        eos_id: put after every document, if not None.
        max_doc_tokens: maximum tokens of a document to keep; the rest are only counted.
        packing_buffer_docs: pieces that "bin" waits for, at least `bins_per_pack`.
        packing_max_docs_per_bin: maximum pieces of a row ("bin" and "multipack").
        bins_per_pack: rows that "bin" makes together.
        group_docs: pieces that "multipack" packs together.

    >>> packer = stream_packer("sequential", 4, eos_id=2)
    >>> for row in packer.rows([[10, 11, 12], [20, 21]]):
    ...     print(row.tokens, row.segment_ids, row.documents, row.continues)
    [10 11 12  2] [1 1 1 1] [0] [False]
    [20 21  2  0] [1 1 1 0] [1] [False]
    """
    given = locals()
    return StreamPacker(PackerSpec(**{name: given[name] for name in field_names(PackerSpec)}))


def packing_stats(segment_ids: ArrayLike) -> RowStats:
    """How full rows are, from their segment ids alone; 0 is filler [rows, width].

    >>> stats = packing_stats([[1, 1, 2, 0], [3, 3, 3, 3]])
    >>> stats.utilisation, stats.transitions, stats.segments_per_row
    (0.875, 1, 1.5)
    """
    ids = np.asarray(segment_ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        given = f"segment_ids: found {ids.dtype} in {ids.ndim}-D"
        raise ConfigError(f"{given}, allowed: integers in 2-D, [rows, width].")
    held, changes = ids != 0, ids[:, 1:] != ids[:, :-1]
    return RowStats(
        rows=len(ids),
        cells=ids.size,
        tokens=int(held.sum()),
        segments=int(held[:, :1].sum() + (held[:, 1:] & changes).sum()),
        transitions=int((held[:, 1:] & held[:, :-1] & changes).sum()),
    )


# -- the packer --------------------------------------------------------------------------------
class StreamPacker:
    """Documents in, rows out; `stream_packer` makes one.

    Args:
        spec: how it packs.
    """

    def __init__(self, spec: PackerSpec) -> None:
        self.spec, self._mode = spec, MODES[spec.mode]
        self._bos, self._eos = _one(spec.bos_id), _one(spec.eos_id)
        self._hold(HeldPieces(StreamStats.none(), False, [], []))

    def _hold(self, held: HeldPieces) -> None:
        self._counts, self._finished = asdict(held.stats), held.finished
        self._pending, self._ready = list(held.pending), deque(held.ready)
        self._cells = sum(map(len, self._pending))

    @property
    def stats(self) -> StreamStats:
        """What was added, and how full the popped rows were."""
        return StreamStats(**self._counts)

    def add(self, tokens: ArrayLike, *, document: int | None = None) -> None:
        """Add one document: token ids, and its number; default: its place in the stream."""
        counts, spec = self._counts, self.spec
        seen = counts["documents_seen"]
        if self._finished:
            raise InputError(
                f"document {seen}: it comes after finish(), when no more are allowed. Make a "
                "new packer for it."
            )
        number = _number(document, seen)
        found = _tokens(tokens, seen)  # from here on nothing fails
        kept = found[: spec.max_doc_tokens]
        counts["documents_seen"] += 1
        counts["documents_empty"] += len(found) == 0
        counts["documents_truncated"] += len(kept) < len(found)
        counts["tokens_observed"] += len(found)
        counts["tokens_retained"] += len(kept)
        if len(kept):
            ends = len(kept) == len(found)  # a truncated document does not end
            last = self._eos if ends else self._eos[:0]
            cells = np.concatenate([self._bos, kept, last])  # always a copy
            for piece in self._mode.cut(number, cells, ends and len(last) > 0, spec):
                self._put(piece)

    def _put(self, piece: Piece) -> None:
        """Add one piece; one at a time, so that a rule never sees more than it waited for."""
        self._pending.append(piece)
        self._cells += len(piece)
        while self._mode.enough(len(self._pending), self._cells, self.spec):
            made, self._pending = self._mode.take(self._pending, self.spec)
            self._ready.extend(made)
            self._cells = sum(map(len, self._pending))

    def finish(self) -> None:
        """End the input: waiting pieces become rows, padded with filler."""
        if not self._finished:
            self._finished = True
            self._ready.extend(self._mode.rest(self._pending, self.spec))
            self._pending, self._cells = [], 0

    def can_pop(self) -> bool:
        """Whether a row is ready."""
        return bool(self._ready)

    def pop(self) -> Row:
        """The next row."""
        if not self._ready:
            todo = "There are no more." if self._finished else "Add documents, or call finish()."
            raise IndexError(f"pop: no row is ready. {todo}")
        pieces = self._ready.popleft()
        counts = self._counts
        counts["rows"] += 1
        counts["cells"] += self.spec.width
        counts["tokens"] += sum(map(len, pieces))
        counts["segments"] += len(pieces)
        counts["transitions"] += len(pieces) - 1
        return _row(pieces, self.spec)

    def rows(self, documents: Iterable[ArrayLike]) -> Iterator[Row]:
        """Yield all rows of these documents and finish the packer.

        At every row, `stats.documents_seen` documents have been added.
        """
        yield from self._popped()  # rows of a restored state, before any document is added
        for tokens in documents:
            self.add(tokens)
            yield from self._popped()
        self.finish()
        yield from self._popped()

    def _popped(self) -> Iterator[Row]:
        while self._ready:
            yield self.pop()

    def state_dict(self) -> dict[str, Any]:
        """Everything that it holds, as JSON."""
        held = HeldPieces(self.stats, self._finished, self._pending, self._ready)
        return dump(self.spec, held)

    def load_state_dict(self, state: Any, *, on_mode_change: str = "refuse") -> int:
        """Resume where a state was saved; returns the number of buffered tokens discarded."""
        one_of("on_mode_change", on_mode_change, ("refuse", "discard"))
        saved, held = load(self.spec, state, other_mode=on_mode_change == "discard")
        if saved.mode == self.spec.mode:
            self._hold(held)
            return 0
        lost = held.undelivered(saved.shared)
        modes, at = (saved.mode, self.spec.mode), plural(held.stats.documents_seen, "document")
        log.warning(
            "packer: the mode was %r and is %r: the position after %s is kept, %s that waited in "
            "the packer are discarded.",
            *modes,
            at,
            plural(lost, "token"),
        )
        self._hold(HeldPieces(held.stats, False, [], []))
        return lost


def _number(document: Any, seen: int) -> int:
    """The caller's own number of a document, or its place in the stream."""
    if document is None:
        return seen
    plain = document.item() if isinstance(document, np.integer) else document
    if type(plain) is not int or not 0 <= plain <= MAX_COUNT:
        given = f"document {seen}: its number is {document!r}"
        raise InputError(f"{given}, allowed: an integer from 0 to 2^63 - 1, or None.")
    return plain


def _tokens(tokens: ArrayLike, seen: int) -> Int32:
    """Token ids as an array, checked."""
    wrong = f"document {seen}: its tokens are {{}}, allowed: integers from 0 to 2^31 - 1, in 1-D."
    if isinstance(tokens, (list, tuple)) and not {bool, np.bool_}.isdisjoint(map(type, tokens)):
        raise InputError(wrong.format("partly bool"))  # NumPy would take True for 1
    try:
        found = np.asarray(tokens)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(wrong.format(f"not an array ({error})")) from None
    if found.ndim != 1:
        raise InputError(wrong.format(f"{found.dtype} in {found.ndim}-D"))
    if not found.size and not isinstance(tokens, np.ndarray):
        return np.empty(0, np.int32)  # NumPy takes [] for floats
    if found.dtype.kind not in "iu":
        raise InputError(wrong.format(found.dtype))
    if found.size and not 0 <= found.min() <= found.max() <= MAX_TOKEN:
        raise InputError(wrong.format(f"from {found.min()} to {found.max()}"))
    return found.astype(np.int32, copy=False)


def _one(token: int | None) -> Int32:
    return np.array([] if token is None else [token], np.int32)


def _row(pieces: Sequence[Piece], spec: PackerSpec) -> Row:
    tokens = np.empty(spec.width, np.int32)
    segment_ids = np.empty(spec.width, np.int32)
    starts, at = [], 0
    for number, piece in enumerate(pieces, 1):
        starts.append(at)
        tokens[at : at + len(piece)] = piece.tokens
        segment_ids[at : at + len(piece)] = number
        at += len(piece)
    tokens[at:] = spec.pad_id
    segment_ids[at:] = 0
    return Row(
        tokens=tokens,
        segment_ids=segment_ids,
        document_starts=np.array(starts, np.int32),
        continues=np.array([piece.continues for piece in pieces]),
        documents=np.array([piece.document for piece in pieces], np.int64),
    )
