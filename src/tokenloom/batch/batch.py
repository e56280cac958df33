"""`Batch`: the arrays of one step, each made on first use.

One idea: whoever asks for tokens pays for tokens only. Labels, masks, segments and positions follow
from the spans of the rows, so they are derived on first use (or by the loader, which knows the
requested fields) and kept. All arrays have the same shape and dtype in every step; only
`document_starts`, `continues` and `cu_seqlens` vary.

Rows of several sources may be rendered in different ways (`Kind`): positions of a spliced row
count from the start of its frame, those of a packed row from the start of each document. Each kind
then makes a field marked `by_row` for its own rows, and the results are combined. So a new array
takes one method here and one law in `tokenloom.batch.check`.

Memory comes from a pool and stays valid as long as any array made from it is alive. A copy or a
pickle has its own memory and no tie to a store or a loader.

What is known about the rows of a batch in addition to their tokens.

A batch asks its `Details` for spans, tiles and stored weights when a field needs them. A
fresh batch has the rows of a plan (`tokenloom.batch.render.RowsOf`), which may have to be read; the
rows of one kind have some of these (`SomeRows`), and a copy has them in memory (`KnownRows`).

What the tokens of rows stand for, by the tokenizer of each row's store.

A row comes from one source, and a source keeps its tokenizer; a row without one, or whose
tokenizer cannot be loaded here, shows its ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tokenloom.arrays import Array, Bool, Float32, Int32, Int64
from tokenloom.batch import paint
from tokenloom.batch.cells import new_array
from tokenloom.batch.paint import Tiles, lent, tile, tiles_from_eos
from tokenloom.batch.spec import RenderSpec
from tokenloom.batch.views.annexes import annex
from tokenloom.batch.views.named import ROWWISE, Folded, KnownStep, Named, Step, by_row
from tokenloom.errors import ConfigError, NoTrainedTokens, TokenloomError
from tokenloom.layout.spans import EOS, EOS_BEFORE, Spans
from tokenloom.page.document import SHOWN, View
from tokenloom.store.handles import lazy
from tokenloom.store.reader import Reader
from tokenloom.trace.forward import decoder_of

_UNJUDGED = {"loss_mask": "_trained", "labels": "_labels"}  # where they are kept until judged

CELLS = ("labels", "loss_mask", "_trained", "_labels")  # cut with the rows, beside arrays by row

"""What is kept as an array with a row for each row of the batch."""

SHARED = frozenset({"labels", "loss_mask", "loss_weights", "document_starts", "continues", "spans"})

"""Fields that do not depend on the segment given to filler."""


class Details(ABC):
    """What is known about the rows of a batch in addition to their tokens."""

    __slots__ = ()

    @abstractmethod
    def spans(self) -> Spans:
        """Which part of which document is where."""

    def tiles(self, width: int) -> Tiles:
        """The first `width` cells of every row, as tiles."""
        return tile(self.spans(), width)

    @abstractmethod
    def weights(self) -> Float32 | None:
        """The stored loss weight of every cell [B, width]; None if the store has none."""

    @abstractmethod
    def metadata(self) -> list[list[dict[str, Any]]]:
        """The metadata of the documents of each row."""

    @abstractmethod
    def readers(self) -> Mapping[str, Reader]:
        """The store of each source, by name; none of a copy that came without its stores."""


@dataclass(frozen=True)
class KnownRows(Details):
    """The `Details` of a copied batch, without a store."""

    known_spans: Spans
    known_weights: Float32 | None

    def spans(self) -> Spans:
        """See `Details`."""
        return self.known_spans

    def weights(self) -> Float32 | None:
        """See `Details`."""
        return self.known_weights

    def metadata(self) -> list[list[dict[str, Any]]]:
        """See `Details`."""
        raise ConfigError(
            "metadata: this batch is a copy without its store. Read batch.metadata before it is "
            "copied or pickled, or ask the store: store.metadata(document)."
        )

    def readers(self) -> Mapping[str, Reader]:
        """See `Details`."""
        return {}


@dataclass(frozen=True)
class OfBatch(Details):
    """What a batch knows of which some rows are taken: what it has looked up is kept."""

    batch: Any

    def spans(self) -> Spans:
        """See `Details`."""
        return self.batch.spans

    def weights(self) -> Float32 | None:
        """See `Details`."""
        return self.batch._stored_weights

    def metadata(self) -> list[list[dict[str, Any]]]:
        """See `Details`."""
        return self.batch.metadata

    def readers(self) -> Mapping[str, Reader]:
        """See `Details`."""
        return self.batch._details.readers()


class SomeRows(Details):
    """The `Details` of some rows of a batch."""

    def __init__(self, details: Details, rows: Int64) -> None:
        self._details, self._rows = details, rows

    def spans(self) -> Spans:
        """See `Details`."""
        return self._spans

    @lazy
    def _spans(self) -> Spans:
        return self._details.spans().take(self._rows)

    def weights(self) -> Float32 | None:
        """See `Details`."""
        found = self._details.weights()
        return None if found is None else found[self._rows]

    def metadata(self) -> list[list[dict[str, Any]]]:
        """See `Details`."""
        every = self._details.metadata()
        return [every[row] for row in self._rows.tolist()]

    def readers(self) -> Mapping[str, Reader]:
        """See `Details`."""
        return self._details.readers()


class Kind(NamedTuple):
    """How some rows of a batch are rendered.

    Attributes:
        render: how to render them.
        rows: the rows, ascending; None for all.
    """

    render: RenderSpec
    rows: Int64 | None

    def between(self, first: int, last: int) -> Kind:
        """The same for rows [first, last) alone."""
        if self.rows is None:
            return self
        low, high = np.searchsorted(self.rows, (first, last))
        return self._replace(rows=self.rows[low:high] - first)


class Batch(Named):
    """Arrays of B rows of S tokens.

    Args:
        cells: tokens, including the look-ahead cell if there is one [B, width].
        index: the index of each row in its run [B].
        seq_len: S.
        kinds: how to derive the rest; several if rows are rendered in different ways.
        details: what else is known about the rows, looked up on demand.
        step: the step of a loader that it is a share of; None: it was made from indices.
        woven: arrays that were made together with the tokens.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "abc"}, {"text": "defgh"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     batch = store.pack(8, strategy="sequential")[0]
    ...     batch.segment_ids.tolist(), batch.labels[0, :5].tolist(), batch.loss_tokens
    ([[1, 1, 1, 2, 2, 2, 2, 2]], [-100, 98, 99, -100, 101], 6)
    """

    def __init__(
        self,
        cells: Int32,
        index: Int64,
        seq_len: int,
        kinds: Sequence[Kind],
        details: Details,
        step: Step | None = None,
        woven: paint.Woven | None = None,
    ) -> None:
        if woven is not None:
            self._keep(zip(woven.names, woven.arrays[1:], strict=True), judged=woven.trained)
        self._is_woven = woven is not None
        self._cells, self.index, self._kinds, self._details = cells, index, kinds, details
        self._render, self._step = kinds[0].render, step
        self.tokens: Int32 = cells if cells.shape[1] == seq_len else cells[:, :seq_len]
        self._parts = [] if len(kinds) == 1 else self._split()

    def _split(self) -> list[tuple[Int64, Batch]]:
        """A batch for each kind, with the kind's padding token in its filler."""
        found = []
        for kind in self._kinds:
            rows = np.arange(len(self.index)) if kind.rows is None else kind.rows
            details = SomeRows(self._details, rows)
            alone = [Kind(kind.render, None)]
            seq_len = self.tokens.shape[1]
            part = Batch(self._cells[rows], self.index[rows], seq_len, alone, details)
            if kind.render.pad_id != self._render.pad_id:
                part._cells[part._is_filler()] = kind.render.pad_id
                self._cells[rows] = part._cells
            found.append((rows, part))
        return found

    def _is_filler(self) -> Bool:
        """Which cells hold the padding token [B, width]."""
        spans, width = self.spans, self._cells.shape[1]
        tiles = self._tiles_of(width)
        filler = np.repeat(tiles.segment == 0, tiles.length)
        before = (spans.flags & EOS_BEFORE) != 0  # an EOS is in the filler cell before these
        filler[(spans.row * width + spans.at - 1)[before]] = False
        return filler.reshape(self._cells.shape)

    def __copy__(self) -> Batch:
        made = Batch.__new__(Batch)
        made.__dict__.update(self.__dict__)  # the same arrays
        return made

    def __getstate__(self) -> dict[str, Any]:
        """What a deep copy or a pickle takes along: arrays, spans and settings."""
        state = {**self.__dict__, "_step": self._known_step()}
        state["_details"] = KnownRows(self.spans, self._stored_weights)
        state["tokens"] = self.shape[1]  # a view of the cells there, too
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.tokens = self._cells[:, : state["tokens"]]

    def _known_step(self) -> KnownStep | None:
        """The step of a copy, which may be where there is no run to look at."""
        step, untrained = self._step, None
        if step is None:
            return None
        if "loss_mask" not in self.__dict__ and not self._trained.any():
            try:
                step.judge()
            except NoTrainedTokens as error:
                untrained = str(error)
        return KnownStep(step.number, step.examples_after, untrained)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.index)

    @property
    def shape(self) -> tuple[int, int]:
        """(B, S)."""
        rows, seq_len = self.tokens.shape
        return rows, seq_len

    @property
    def label_layout(self) -> str:
        """The layout of `labels`, "aligned" or "shifted"; see `RenderSpec`."""
        return self._render.label_layout

    @lazy
    def spans(self) -> Spans:
        """Which part of which document is where."""
        return self._details.spans()

    @property
    def document(self) -> Int64:
        """The first document of each row, by its number in its store; -1 for none [B]."""
        first = self.spans.frame[:-1]
        found = np.append(self.spans.document, -1)[first]
        return np.where(np.diff(self.spans.frame) > 0, found, -1)

    @property
    def source(self) -> list[str]:
        """The name of each row's source [B]."""
        return [self.spans.sources[i] for i in self.spans.source.tolist()]

    @lazy
    def metadata(self) -> list[list[dict[str, Any]]]:
        """What the store keeps about the documents of each row, in order of their cells.

        Read on first use, a document at a time: for looking at examples, not for every step.
        """
        return self._details.metadata()

    @property
    def plain(self) -> Batch:
        """A copy with segment 0 for all filler and positions from 0, as the laws require."""
        if not any(kind.render.is_lent or kind.render.position_offset for kind in self._kinds):
            return self
        usual: dict[str, Any] = {"trailing": "filler", "attend_prefix": False, "position_offset": 0}
        kinds = [kind._replace(render=replace(kind.render, **usual)) for kind in self._kinds]
        seq_len = self.shape[1]
        made = Batch(self._cells, self.index, seq_len, kinds, self._details, self._step)
        made.__dict__.update({k: v for k, v in self.__dict__.items() if k in SHARED})
        return made

    @lazy
    def _tiles(self) -> Tiles:
        return self._tiles_of(self.shape[1])

    def _tiles_of(self, width: int) -> Tiles:
        if self._render.segments == "eos":
            assert self._render.eos_id is not None  # checked by the spec
            return tiles_from_eos(self.spans, self._cells, self._render.eos_id, width)
        return self._details.tiles(width)

    @by_row
    def segment_ids(self) -> Int32:
        """1, 2, … for the documents of a row, 0 for filler [B, S]."""
        if self._render.is_lent:
            return paint.paint(self._lent, ["segment_ids"])["segment_ids"]
        return self._painted("segment_ids")

    @lazy
    def _lent(self) -> Tiles:
        """The tiles, with filler in the segments that `RenderSpec` lends it."""
        render = self._render
        trailing = render.trailing == "doc"
        return lent(self._tiles, leading=render.attend_prefix, trailing=trailing)

    @by_row
    def position_ids(self) -> Int32:
        """Position of each token in its document, or in its row [B, S]."""
        if self._render.position_scheme == "absolute":
            found = paint.positions(*self.shape)
        else:
            found = self._painted("position_ids")
        if self._render.position_offset:
            found += np.int32(self._render.position_offset)
        return found

    @by_row
    def attention_mask(self) -> Bool:
        """Whether a cell holds a token, or filler that may be attended to [B, S]."""
        if self._render.trailing == "filler":
            return self.segment_ids > 0
        tiles = lent(self._tiles, leading=self._render.attend_prefix, trailing=False)
        return paint.paint(tiles, ["segment_ids"])["segment_ids"] > 0

    @by_row
    def loss_weights(self) -> Float32:
        """Weight of predicting token i + 1 at cell i, 0 where it does not count [B, S]."""
        weights = self._stored_weights
        if weights is None:
            return self.loss_mask.astype(np.float32)
        out = np.zeros(self.shape, np.float32)
        ahead = weights[:, 1 : self.shape[1] + 1]  # a stored weight belongs to the token itself
        out[:, : ahead.shape[1]] = ahead
        out[~(self._trainable & (out > 0))] = 0  # a negative or missing weight trains nothing
        return out

    @lazy
    def loss_mask(self) -> Bool:
        """Whether the prediction of token i + 1 at cell i counts [B, S].

        Raises:
            NoTrainedTokens: none does in the whole step of a loader, which would divide by zero;
                see `Loader`. A batch of a dataset is never judged.
        """
        mask = self._trained
        if self._step is not None and not mask.any():
            self._step.judge()
        return mask

    def trained(self) -> Bool:
        """As `loss_mask`, without asking whether anything is trained at all."""
        return self._trained

    @by_row
    def _trained(self) -> Bool:
        return self._trainable if self._stored_weights is None else self.loss_weights > 0

    @lazy
    def _stored_weights(self) -> Float32 | None:
        return self._details.weights()

    @lazy
    def _trainable(self) -> Bool:
        """Which cells may be trained, judged by position, boundary and id."""
        render, seq_len = self._render, self.shape[1]
        # the look-ahead cell is also a target; aligned labels have no cell for it
        ahead = render.label_layout == "shifted" and self._cells.shape[1] > seq_len
        tiles = self._tiles_of(seq_len + 1) if ahead else self._tiles
        if render.mask_boundary_loss:
            out: Bool = paint.paint(tiles, ["loss_mask"])["loss_mask"]
        else:
            out = paint.trained_across(tiles)
        paint.untrain(out, tiles.blank)
        if not render.train_on_eos and render.eos_mask == "inserted":
            paint.untrain(out, self._inserted_eos(out.shape[1]))
        if ahead:
            out = np.ascontiguousarray(out[:, :seq_len])
        for token in self._untrained_ids:
            ignored = self._cells[:, 1 : seq_len + 1] == token
            out[:, : ignored.shape[1]] &= ~ignored
        return out

    @property
    def _untrained_ids(self) -> list[int]:
        """Tokens that are never trained on, wherever they are."""
        render = self._render
        found = [] if render.ignore_id is None else [render.ignore_id]
        if not render.train_on_eos and render.eos_mask == "all" and render.eos_id is not None:
            found.append(render.eos_id)
        return found

    def _inserted_eos(self, width: int) -> Int64:
        """Cells among the first `width` of every row that hold an EOS inserted by the layout."""
        spans = self.spans
        place = spans.at + spans.cells - 1
        ends = ((spans.flags & EOS) != 0) & (place < width)
        return (spans.row * width + place)[ends]

    @lazy
    def labels(self) -> Int32:
        """Targets, laid out as `label_layout`, -100 where not trained [B, S]."""
        _ = self.loss_mask  # judges
        return self._labels

    @by_row
    def _labels(self) -> Int32:
        if self._render.is_plain and self._is_usual:
            return self._painted("labels")
        mask = self._trained
        out: Int32 = new_array(self.shape, self._cells.dtype)
        if self._render.label_layout == "aligned":
            paint.labels_from(self.tokens, mask, out)
            return out
        ahead = self._cells[:, 1 : self.shape[1] + 1]
        out[:, : ahead.shape[1]] = ahead
        out[~mask] = paint.IGNORE
        return out

    @property
    def _is_usual(self) -> bool:
        """Whether no stored weight and no blank cell changes what is trained."""
        return self._stored_weights is None and not len(self._tiles.blank)

    def _painted(self, name: str) -> Int32:
        return paint.paint(self._tiles, [name], self.tokens)[name]

    @property
    def loss_tokens(self) -> int:
        """The number of predictions that count."""
        return int(self.loss_mask.sum())

    @by_row
    def document_starts(self) -> Int32:
        """First cell of each document of a row, padded with -1 [B, D]."""
        return paint.document_starts(self._tiles)[0]

    @by_row
    def continues(self) -> Bool:
        """Whether each document of a row continues from an earlier row [B, D]."""
        return paint.document_starts(self._tiles)[1]

    @lazy
    def cu_seqlens(self) -> Int32:
        """Edges of all documents and filler stretches over the flattened [B S] cells."""
        if not self._parts:
            return (self._lent if self._render.is_lent else self._tiles).cu_seqlens()
        width = self.shape[1]
        edges = [np.array([len(self) * width], np.int64)]
        for rows, part in self._parts:
            row, at = np.divmod(part.cu_seqlens[:-1].astype(np.int64), width)
            edges.append(rows[row] * width + at)
        return np.sort(np.concatenate(edges)).astype(np.int32)

    @property
    def max_seqlen(self) -> int:
        """The longest sequence of `cu_seqlens`, in cells."""
        return int(np.diff(self.cu_seqlens).max(initial=0))

    def prepare(self, fields: Sequence[str]) -> Batch:
        """This batch with these fields already made, several in one call where that is cheaper."""
        if not (self._parts or self._is_woven):
            names = self._render.painted_of(tuple(fields), usual=self._is_usual)
            if len(names) > 1:
                self._keep(paint.paint(self._tiles, names, self.tokens).items())
        for name in fields:
            getattr(self, name)
        return self

    def _keep(self, painted: Iterable[tuple[str, Array]], *, judged: bool = False) -> None:
        """Keep painted arrays; what is trained may not have been judged yet."""
        own = self.__dict__
        for name, array in painted:
            unjudged = _UNJUDGED.get(name)
            if unjudged is not None:
                own[unjudged] = array
            if judged or unjudged is None:
                own[name] = array

    def folded(self, groups: int) -> Batch:
        """The same batch with its rows in groups, for gradient accumulation.

        Every array of rows is [groups, B / groups, …]; what differs in shape from group to group
        (`cu_seqlens`, `max_seqlen`, `source`, `spans`) is a list with one for each.
        """
        return cast(Batch, Folded(self, groups))

    def part(self, first: int, last: int) -> Batch:
        """Rows [first, last) as a batch of the same step; what was made already is not copied."""
        kinds = [kind.between(first, last) for kind in self._kinds]
        made = Batch(
            self._cells[first:last],
            self.index[first:last],
            self.shape[1],
            [kind for kind in kinds if kind.rows is None or len(kind.rows)],
            SomeRows(OfBatch(self), np.arange(first, last)),
            self._step,
        )
        own = self.__dict__
        made.__dict__.update(
            {name: own[name][first:last] for name in (*CELLS, *ROWWISE) if name in own}
        )
        return made

    @property
    def renders(self) -> list[RenderSpec]:
        """How its rows are rendered."""
        return [kind.render for kind in self._kinds]

    def _repr_html_(self) -> str:
        """The first rows as strips of documents, for notebooks."""
        return annex("report").show_batch(self)

    def view(self, rows: int = SHOWN) -> View:
        """The first rows for a notebook: strips of documents, and every token in its segment.

        Args:
            rows: how many of them.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
        ...     store.windows(4)[:2].view()
        Batch(2 x 4, index [0, 1]…)
        row 0, index 0: a b c d
        row 1, index 1: e f g h
        """
        return annex("report").view_batch(self, rows)

    def token_strings(self, rows: int = SHOWN) -> list[list[str]]:
        """What the tokens of the first rows stand for; their ids where no tokenizer is known."""
        return token_strings(self.tokens[:rows], self.source[:rows], self._details.readers())

    def __repr__(self) -> str:
        rows, seq_len = self.shape
        return f"Batch({rows} x {seq_len}, index {self.index[:3].tolist()}…)"


def token_strings(
    tokens: NDArray[Any], sources: Sequence[str], readers: Mapping[str, Reader]
) -> list[list[str]]:
    """One text for each token of each row.

    Args:
        tokens: of the rows [B, S].
        sources: the name of each row's source.
        readers: the store of each source that is known.

    >>> import numpy as np
    >>> token_strings(np.array([[7, 9]]), ["main"], {})
    [['7', '9']]
    """
    decoders = {
        name: decoder_of(readers[name]) for name in dict.fromkeys(sources) if name in readers
    }
    found = []
    for row, name in zip(tokens, sources, strict=True):
        decoder = decoders.get(name)
        try:
            strings = None if decoder is None else decoder.token_strings(row)
        except TokenloomError:  # its library is not here, or it was somebody's own function
            strings = decoders[name] = None
        found.append([str(one) for one in row.tolist()] if strings is None else strings)
    return found
