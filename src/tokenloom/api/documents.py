"""`Documents`: all or some documents of a store, to be laid out: where every dataset begins."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.dataset import Dataset, SourceConfig, with_known_eos
from tokenloom.api.specials import check_used, filler_token, named_token, special, tell_losses
from tokenloom.api.splice import say_what_it_costs, splice_settings, tell
from tokenloom.arguments import check_options, field_names
from tokenloom.batch.spec import RenderSpec
from tokenloom.documents.conditions import documents_where
from tokenloom.documents.line import Line
from tokenloom.documents.resolve import Choice, choose_documents, line_of
from tokenloom.documents.select import Selection
from tokenloom.documents.spec import SelectSpec, training_cutoff, with_selector
from tokenloom.documents.split import SplitSpec
from tokenloom.errors import ConfigError, plural, warn
from tokenloom.layout.kinds import LayoutSpec
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.windows import WindowsSpec
from tokenloom.order.shuffle import FullShuffle
from tokenloom.store.reader import Reader

__all__ = ["Documents"]

LOGGED = 20  # documents of a selection that are named one by one

log = logging.getLogger("tokenloom")


class Documents:
    """Some documents of a store, to be laid out like a whole one.

    Made by `Store.split` and `Store.select`.
    """

    def __init__(self, reader: Reader, path: str, choice: Choice | None) -> None:
        self._reader, self._path, self._choice = reader, path, choice

    def windows(
        self,
        seq_len: int,
        *,
        tail: str = "drop",
        lookahead: bool = False,
        overlap: int | None = None,
        align: bool | int = False,
        **render: Any,
    ) -> Dataset:
        """Token windows: the documents end to end, cut every `seq_len` tokens.

        Args:
            seq_len: tokens of a frame.
            tail: "drop" the last, short row or "keep" it, filled up.
            lookahead: one more token for each row, as the label of its last cell; labels are then
                "shifted" unless told otherwise, because aligned ones have no cell for it.
            overlap: tokens that rows share; with `lookahead` 1 unless told otherwise, else 0.
            align: let blocks of rows end where io blocks end; or where blocks of so many tokens do.
            render: fields of `RenderSpec`, such as ``label_layout="shifted"``.
        """
        check_options("windows", render, [*field_names(WindowsSpec), *field_names(RenderSpec)])
        layout = WindowsSpec(
            seq_len=seq_len,
            tail=tail,
            lookahead=lookahead,
            overlap=int(lookahead) if overlap is None else overlap,
            align=self._reader.manifest.chunk_tokens if align is True else align or 0,
        )
        made = self._laid_out(layout, render)
        made.run.layout.warn_if_unaligned()
        return made

    def pack(
        self,
        seq_len: int,
        *,
        strategy: str = "best_fit_decreasing",
        overflow: str = "split",
        add_bos: bool = False,
        add_eos: bool = False,
        bos_id: int | None = None,
        eos_id: int | None = None,
        strict_special_tokens: bool = False,
        **options: Any,
    ) -> Dataset:
        """Documents packed into frames, planned from their lengths; nothing is lost by default.

        Args:
            seq_len: tokens of a frame.
            strategy: "best_fit_decreasing", "first_fit_decreasing" (or "bin"), "best_fit",
                "first_fit", "greedy", "one_doc", or "sequential" (end to end, cut when full).
            overflow: what to do with longer documents: "split", "truncate", "drop", "error".
            add_bos: put BOS before every document; the store stays as it is.
            add_eos: put EOS behind every document.
            bos_id: which token that is; the tokenizer's own if nothing is said.
            eos_id: the same for EOS; also the one that ``train_on_eos=False`` means.
            strict_special_tokens: raise if there is no such token; else it is left out, with a
                warning.
            options: further fields of `PackSpec` and `RenderSpec`.
        """
        packing = [name for name in field_names(PackSpec) if name not in ("bos_id", "eos_id")]
        rendering = field_names(RenderSpec)
        named = ("add_bos", "add_eos", "bos_id", "eos_id", "strict_special_tokens")
        check_options("pack", options, sorted({*packing, *rendering, *named}))
        render = {name: options.pop(name) for name in list(options) if name in rendering}
        check_used(render, add_bos, bos_id, add_eos, eos_id)
        if add_bos and bos_id is None:
            bos_id = special(self._reader, self._path, "bos", strict=strict_special_tokens)
        if add_eos and eos_id is None:
            eos_id = special(self._reader, self._path, "eos", strict=strict_special_tokens)
        specials: dict[str, Any] = {"bos_id": bos_id, "eos_id": eos_id if add_eos else None}
        layout = PackSpec(
            seq_len=seq_len, strategy=strategy, overflow=overflow, **specials, **options
        )
        made = self._laid_out(layout, render | {"eos_id": eos_id})
        tell_losses(self._path, made.run.layout)
        return made

    def splice(
        self,
        seq_len: int,
        *,
        position_scheme: str | None = None,
        content_length: int | Mapping[int, int] | None = None,
        filler: str = "pad",
        bos: bool | int = False,
        eos_before: bool | int = False,
        doc_schedule: Mapping[int, int] | None = None,
        doc_growth: Mapping[int, int] | None = None,
        schedule_batch_size: int | None = None,
        **options: Any,
    ) -> Dataset:
        """Documents placed at chosen positions of frames, each (document, t, s) exactly as asked.

        Args:
            seq_len: tokens of a frame.
            position_scheme: "relative" for models with RoPE, NoPE or ALiBi: clipped windows,
                several to a frame; "absolute" for learned positions: one to a frame, where it was
                placed. With nothing said it is as published: one to a frame, absolute positions.
            content_length: tokens of a splice; None is as many as fit; a mapping {example: length}
                changes it on the way.
            filler: "pad" or "eos": what stands in cells without a document.
            bos: put BOS before every document: the tokenizer's, or this token.
            eos_before: put EOS into the last filler cell before a splice, the same way.
            doc_schedule: {example: documents}: begin with some of them, in the order of selection.
            doc_growth: {epoch: documents}: the same by epochs; earlier epochs stay as they are.
            schedule_batch_size: read the keys of schedules as steps of so many examples.
            options: further fields of `SpliceSpec` and `RenderSpec`; see docs/splice.md.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdef"}], folder + "/toy", tokenizer="bytes")
        ...     store.splice(6, content_length=4, pad_id=0).batch([0, 1, 2]).tokens.tolist()
        [[0, 0, 97, 98, 99, 100], [0, 0, 98, 99, 100, 101], [0, 0, 99, 100, 101, 102]]
        """
        tokenizer = self._reader.manifest.tokenizer
        layout, render = splice_settings(
            seq_len,
            position_scheme=position_scheme,
            filler=filler,
            bos=named_token(self._reader, self._path, "bos", bos),
            eos_before=named_token(self._reader, self._path, "eos_before", eos_before),
            eos=tokenizer.eos if tokenizer else None,
            content_length=content_length,
            doc_schedule=doc_schedule,
            doc_growth=doc_growth,
            schedule_batch_size=schedule_batch_size,
            **options,
        )
        made = self._laid_out(layout, render)
        spliced = made.run.layout
        assert isinstance(spliced, Spliced)
        say_what_it_costs(spliced, made.config.render, position_scheme)
        tell(spliced, self._path, selected=isinstance(self._choice, SelectSpec))
        if layout.sampler == "stream":
            made = made.epochs(None).shuffle(FullShuffle())
        return made

    def select(
        self,
        *,
        num_docs: int | None = None,
        doc_index: int | Sequence[int] | None = None,
        doc_key: str | Callable[[dict[str, Any]], Any] | None = None,
        doc_hash: str | None = None,
        doc_selector: Mapping[str, Any] | None = None,
        doc_select_mode: str = "longest",
        min_doc_length: int | None = None,
        max_doc_length: int | None = None,
        restrict_to_training_subset: bool = False,
        max_train_batches: int | None = None,
        initial_batch_size: int | None = None,
        seq_len: int | None = None,
        on_shortage: str | None = None,
        doc_index_policy: str = "fallback",
        seed: int = 0,
    ) -> Documents:
        """Some of these documents, in the order of the mode; empty ones are never chosen.

        Lengths decide, so no token is read to choose. What was chosen is logged; where something
        else is taken than was asked for, and nobody said so, a warning tells.

        Args:
            num_docs: how many; a single one if nothing is said.
            doc_index: the number of a document in the store, or several.
            doc_key: conditions on the metadata, such as ``"lang==en and year>=1999"``; or a
                function that gets the metadata of each document and says whether it may be chosen.
            doc_hash: 8 to 32 hex digits, the start of the hash of a document's tokens, as
                `Store.document_hashes` gives it.
            doc_selector: a mapping that says `min_len`, `max_len` and `hash`: other names of
                `min_doc_length`, `max_doc_length` and `doc_hash`.
            doc_select_mode: "longest" or "shortest" (of equal ones the lowest number first),
                "first" (as they stand) or "random" (without replacement; the same for the same
                store, `num_docs`, lengths and `seed`).
            min_doc_length: tokens that a document must have.
            max_doc_length: tokens that it may have.
            restrict_to_training_subset: only documents that lie wholly inside the first
                `max_train_batches` x `initial_batch_size` x `seq_len` tokens of the store.
            max_train_batches: batches that are trained on; needed with the restriction only.
            initial_batch_size: rows of a batch; the same.
            seq_len: tokens of a row; the same.
            on_shortage: if too few documents qualify, "error" (what several are treated to if
                nothing is said), "fewer", or "backfill_longest": the longest others fill up (what a
                single one is treated to, with a warning).
            doc_index_policy: if a document of `doc_index` does not qualify, "fallback" (the mode
                chooses another one, with a warning), "honor" (take it whatever its length) or
                "error".
            seed: of "random".

        Raises:
            ConfigError: a setting that cannot be meant, no such document, or too few of them.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = [{"text": "abc"}, {"text": "defgh"}, {"text": "ij"}]
        ...     store = tl.build(rows, folder + "/toy", tokenizer="bytes")
        ...     store.select(num_docs=2).indices.tolist(), store.select(doc_index=2).load()[0]
        ([1, 0], [array([105, 106], dtype=int32)])
        """
        by_function = callable(doc_key)
        if by_function and doc_index is not None:
            raise ConfigError(
                "doc_index: found together with doc_key; each says which document is meant. Leave "
                "one of them out."
            )
        fields = {
            "num_docs": num_docs,
            "doc_index": _as_listed(doc_index),
            "doc_key": None if by_function else doc_key,
            "doc_hash": doc_hash,
            "doc_select_mode": doc_select_mode,
            "min_doc_length": min_doc_length,
            "max_doc_length": max_doc_length,
            "training_tokens": training_cutoff(
                restrict_to_training_subset, max_train_batches, initial_batch_size, seq_len
            ),
            "on_shortage": on_shortage,
            "doc_index_policy": doc_index_policy,
            "seed": seed,
            "within": self._choice,
        }
        spec = SelectSpec(**with_selector(doc_selector, fields))
        among = None if self._choice is None else self.indices
        if callable(doc_key):
            among = documents_where(self._reader, doc_key, among)
        chosen = choose_documents(self._reader, spec, among)
        if by_function:  # a function cannot be written down; what it came down to can
            spec = replace(spec, documents=tuple(sorted(chosen.documents.tolist())))
        made = Documents(self._reader, self._path, spec)
        made._selection = chosen
        made._tell()
        return made

    def _tell(self) -> None:
        """Log what was selected and why, and warn if it is not what was asked for."""
        if self._selection.warning is not None:
            warn(f"{self._path}: {self._selection.warning}")
        log.info("%s: selected %s.", self._path, self._selection.why)
        numbers, lengths = self.indices[:LOGGED].tolist(), self.lengths[:LOGGED].tolist()
        for document, length in zip(numbers, lengths, strict=True):
            log.info("Selected doc_idx=%d, length=%d", document, length)
        if self.num_documents > LOGGED:
            log.info("Selected %d more documents", self.num_documents - LOGGED)

    def load(self) -> tuple[list[NDArray[np.int32]], NDArray[np.int64]]:
        """The tokens of every document, in one coalesced read, and their numbers in the store."""
        start, stop = self._reader.bounds(self.indices)
        views = self._reader.read(start, stop)
        flat = np.concatenate([np.empty(0, np.int32), *views], dtype=np.int32, casting="unsafe")
        return np.split(flat, np.cumsum(stop - start)[:-1]) if len(start) else [], self.indices

    def _laid_out(self, layout: LayoutSpec, render: dict[str, Any]) -> Dataset:
        """The dataset, with what is usual where nothing was said."""
        usual: dict[str, Any] = {"pad_id": filler_token(self._reader), "label_layout": "aligned"}
        if layout.lookahead:
            usual["label_layout"] = "shifted"
        render = with_known_eos(usual | render, self._reader)
        config = SourceConfig(layout=layout, choice=self._choice, render=RenderSpec(**render))
        return Dataset(self._reader, self._path, config, self.line)

    @functools.cached_property
    def line(self) -> Line:
        """The documents, end to end."""
        known = None if self._choice is None else self._selection
        return line_of(self._reader, self._choice, known)

    @functools.cached_property
    def _selection(self) -> Selection:
        return choose_documents(self._reader, self._choice)

    @property
    def indices(self) -> NDArray[np.int64]:
        """Which documents of the store these are: as stored, or in the order of a selection."""
        return self._selection.documents

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each of them [num_documents]; reads offsets only, no token."""
        start, stop = self._reader.bounds(self.indices)
        lengths = stop - start
        lengths.flags.writeable = False
        return lengths

    @property
    def num_documents(self) -> int:
        """How many there are."""
        return len(self.indices)

    @property
    def num_tokens(self) -> int:
        """Their tokens."""
        return int(self.lengths.sum())

    def __repr__(self) -> str:
        if "_selection" not in self.__dict__ and isinstance(self._choice, SplitSpec):
            return f"Documents({self._path!r}: {self._choice.words})"  # to count reads the store
        documents, tokens = plural(self.num_documents, "document"), plural(self.num_tokens, "token")
        return f"Documents({self._path!r}: {documents}, {tokens}; {self._selection.why})"


def _as_listed(doc_index: Any) -> Any:
    """Several numbers as a tuple, wherever they come from; anything else as it is."""
    if isinstance(doc_index, range | np.ndarray):
        doc_index = np.asarray(doc_index).tolist()
    if isinstance(doc_index, list | tuple):
        return tuple(one.item() if isinstance(one, np.generic) else one for one in doc_index)
    return doc_index
