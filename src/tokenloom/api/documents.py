"""`Documents`: all or some documents of a store, to be laid out: where every dataset starts.

Every argument of a layout is a parameter with a type and a default, so `help`, an editor and a type
checker know it. The fields of `WindowsSpec`, `PackSpec`, `SpliceSpec` and `RenderSpec` have the
same defaults. A default of None depends on something else; the docstrings say on what.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api import rebuild  # noqa: F401 - registers how a dataset is pickled
from tokenloom.api.dataset import Dataset
from tokenloom.api.source import Source, usual_render
from tokenloom.api.specials import check_used, named_token, special, tell_cuts, tell_losses
from tokenloom.api.splice import say_what_it_costs, splice_settings, tell
from tokenloom.arguments import field_names, near_misses
from tokenloom.batch.spec import RenderSpec
from tokenloom.documents.conditions import documents_where
from tokenloom.documents.line import Line
from tokenloom.documents.select import Selection, choose_documents, line_of, tell_documents
from tokenloom.documents.spec import Choice, SelectSpec, SplitSpec, training_cutoff, with_selector
from tokenloom.errors import ConfigError, plural, warn
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.windows import WindowsSpec
from tokenloom.order.shuffle import FullShuffle
from tokenloom.order.spec import MAIN, LayoutSpec, SourceConfig, make_layout
from tokenloom.store.handles import lazy
from tokenloom.store.reader import Reader

log = logging.getLogger("tokenloom")

Numbers = Sequence[float] | NDArray[Any]

OF_RUNS = (
    *("shuffle", "era_shuffle", "block_shuffle", "epochs", "seed", "take", "render"),
    *("batch", "spans", "at", "where", "audit", "simulate"),
)

INSTEAD = dict.fromkeys(OF_RUNS, "Lay out its documents first: store.pack(2048).shuffle().")

FOUND = ("pad_id", "label_layout")  # of a rendering: None depends on the store and the layout


class Documents:
    """Some documents of a store, which can be laid out like a whole store.

    Made by `Store.split` and `Store.select`; a `Store` is all of its documents. A copy or a pickle
    has the same documents of the same snapshot, which it opens by its absolute path.
    """

    def __init__(self, reader: Reader, path: str, choice: Choice | None) -> None:
        self._reader, self._path, self._choice = reader, path, choice

    if not TYPE_CHECKING:  # with it, a type checker would accept any name

        def __getattr__(self, name: str) -> object:
            if name in INSTEAD:
                kind = type(self).__name__
                raise AttributeError(f"{kind!r} object has no attribute {name!r}. {INSTEAD[name]}")
            return object.__getattribute__(self, name)  # raises Python's own error

    @near_misses("windows")
    def windows(
        self,
        seq_len: int,
        *,
        tail: str = "drop",
        lookahead: bool = False,
        overlap: int | None = None,
        align: bool | int = False,
        label_layout: str | None = None,
        mask_boundary_loss: bool = True,
        position_scheme: str = "reset",
        ignore_id: int | None = None,
        train_on_eos: bool = True,
        eos_mask: str = "all",
        segments: str = "documents",
        eos_id: int | None = None,
        pad_id: int | None = None,
        trailing: str = "filler",
        attend_prefix: bool = False,
        position_offset: int = 0,
    ) -> Dataset:
        """Token windows: the documents end to end, cut every `seq_len` tokens.

        Args:
            seq_len: tokens of a frame.
            tail: "drop" the last, short row or "keep" it, padded with filler.
            lookahead: one more token for each row, as the label of its last cell.
            overlap: tokens that adjacent rows share, 0 or 1; None: 1 with `lookahead`, else 0.
            align: True ends blocks of rows where io blocks end; a number, where blocks of that
                many tokens end.
            label_layout: "aligned" or "shifted"; None: "shifted" with `lookahead`, because
                aligned labels have no cell for the extra token, else "aligned".
            mask_boundary_loss: do not train the first token of a document on the document before.
            position_scheme: positions start from 0 in every document ("reset") or frame
                ("absolute").
            ignore_id: a token that is never trained on.
            train_on_eos: train the prediction of EOS.
            eos_mask: which EOS `train_on_eos` applies to: "all" that equal `eos_id`, or only
                "inserted" ones.
            segments: documents end as stored ("documents") or after each `eos_id` ("eos").
            eos_id: the token that ends a document; None: the tokenizer's, if one is needed.
            pad_id: the token in filler cells; None: the tokenizer's pad, else its EOS, else 0.
            trailing: the segment of filler at the end of a frame: 0 ("filler") or that of the last
                document ("doc").
            attend_prefix: filler at the start of a frame belongs to the first document.
            position_offset: added to every position.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdef"}], folder + "/toy", tokenizer="bytes")
        ...     store.windows(2)[1].tokens.tolist()
        [[99, 100]]
        """
        render = _rendering(locals())
        layout = WindowsSpec(
            seq_len=seq_len,
            tail=tail,
            lookahead=lookahead,
            overlap=int(bool(lookahead)) if overlap is None else overlap,
            align=self._reader.manifest.chunk_tokens if align is True else align or 0,
        )
        layout.warn_if_unaligned(self._reader.manifest.chunk_tokens)
        return self._laid_out(layout, render)

    @near_misses("pack")
    def pack(
        self,
        seq_len: int,
        *,
        strategy: str = "best_fit_decreasing",
        overflow: str = "split",
        stride: int = 0,
        mask_overlap: bool = True,
        min_len: int = 1,
        max_len: int | None = None,
        max_doc_tokens: int | None = None,
        min_row_len: int = 1,
        max_docs_per_bin: int | None = None,
        add_bos: bool = False,
        add_eos: bool = False,
        bos_id: int | None = None,
        eos_id: int | None = None,
        strict_special_tokens: bool = False,
        lookahead: bool = False,
        overlap: int = 0,
        shuffle_output: bool = False,
        shuffle_seed: int = 0,
        group_docs: int = 10_000,
        group_tokens: int = 1 << 25,
        label_layout: str | None = None,
        mask_boundary_loss: bool = True,
        position_scheme: str = "reset",
        ignore_id: int | None = None,
        train_on_eos: bool = True,
        eos_mask: str = "all",
        segments: str = "documents",
        pad_id: int | None = None,
        trailing: str = "filler",
        attend_prefix: bool = False,
        position_offset: int = 0,
    ) -> Dataset:
        r"""Documents packed into frames, planned from their lengths; nothing is lost by default.

        Args:
            seq_len: tokens of a frame.
            strategy: "best_fit_decreasing", "first_fit_decreasing" (or "bin"), "best_fit",
                "first_fit", "greedy", "one_doc", or "sequential" (end to end, cut when full).
            overflow: what to do with longer documents: "split", "truncate", "drop", "error".
            stride: tokens that adjacent pieces of a split document share.
            mask_overlap: do not train shared tokens a second time.
            min_len: skip documents with fewer tokens.
            max_len: skip documents with more tokens.
            max_doc_tokens: use at most that many tokens of a document.
            min_row_len: skip rows with fewer tokens, counting inserted ones.
            max_docs_per_bin: maximum segments of a row.
            add_bos: put BOS before every document; the store is not changed.
            add_eos: put EOS after every document.
            bos_id: the BOS to insert; None: the tokenizer's.
            eos_id: the EOS to insert, and the token that ``train_on_eos=False`` masks; None: the
                tokenizer's.
            strict_special_tokens: raise if there is no such token; otherwise warn and insert none.
            lookahead: one more cell for each row, as the label of its last one.
            overlap: tokens that adjacent rows share, 0 or 1; for "sequential" with `lookahead`.
            shuffle_output: shuffle the rows of each group.
            shuffle_seed: seed of that shuffle.
            group_docs: maximum documents of a group; each group is packed by itself.
            group_tokens: a group also ends with the document that brings it to this many tokens.
            label_layout: as in `windows`, like all arguments that follow.
            mask_boundary_loss: do not train the first token of a document on the document before.
            position_scheme: positions start from 0 in every document ("reset") or frame
                ("absolute").
            ignore_id: a token that is never trained on.
            train_on_eos: train the prediction of EOS.
            eos_mask: which EOS `train_on_eos` applies to: "all" that equal `eos_id`, or only
                "inserted" ones.
            segments: documents end as stored ("documents") or after each `eos_id` ("eos").
            pad_id: the token in filler cells; None: the tokenizer's pad, else its EOS, else 0.
            trailing: the segment of filler at the end of a frame: 0 ("filler") or that of the last
                document ("doc").
            attend_prefix: filler at the start of a frame belongs to the first document.
            position_offset: added to every position.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = [{"text": "abc"}, {"text": "de"}, {"text": "fgh"}]
        ...     batch = tl.build(rows, folder + "/toy", tokenizer="bytes").pack(10)[0]
        ...     bytes(batch.tokens[0].astype("uint8")), batch.segment_ids[0].tolist()
        (b'abcfghde\x00\x00', [1, 1, 1, 2, 2, 2, 3, 3, 0, 0])
        """
        given = locals()
        render = _rendering(given)
        check_used(render, add_bos, bos_id, add_eos, eos_id)
        if add_bos and bos_id is None:
            bos_id = special(self._reader, self._path, "bos", strict=strict_special_tokens)
        if add_eos and eos_id is None:
            eos_id = special(self._reader, self._path, "eos", strict=strict_special_tokens)
        specials = {"bos_id": bos_id, "eos_id": eos_id if add_eos else None}
        layout = PackSpec(**{name: given[name] for name in field_names(PackSpec)} | specials)
        made = self._laid_out(layout, render | {"eos_id": eos_id})
        packed = made.sources[MAIN].layout
        assert isinstance(packed, Packed)
        tell_losses(self._path, packed.groups.tally)
        tell_cuts(self._path, packed.groups.tally, self._reader.manifest.columns)
        return made

    @near_misses("splice")
    def splice(
        self,
        seq_len: int,
        *,
        position_scheme: str | None = None,
        content_start_mode: str = "coverage_balanced",
        content_length: int | Mapping[int, int] | None = None,
        content_stride: int = 1,
        offset_stride: int = 1,
        min_copy_len: int = 2,
        mode: str = "splice",
        placement: str = "fit",
        include_tail: bool = False,
        edge: str | None = None,
        fill: str | None = None,
        alpha: float = 0.0,
        edge_mode: str = "continuous",
        adaptive_k: bool = True,
        offset_jitter: int = 0,
        jitter_mode: str = "uniform",
        sampler: str | None = None,
        balance_mode: str = "by_temperature",
        balance_tau: float = 1.0,
        balance_measure: str | None = None,
        epoch_length: int | None = None,
        max_epochs: float | None = None,
        doc_weights: Numbers | None = None,
        doc_strides: Numbers | None = None,
        doc_alphas: Numbers | None = None,
        doc_groups: Sequence[Any] | NDArray[Any] | None = None,
        doc_schedule: Mapping[int, int] | None = None,
        doc_growth: Mapping[int, int] | None = None,
        schedule_batch_size: int | None = None,
        shuffle_offsets: bool | int = False,
        offset_seed: int = 0,
        shuffle_content: bool | int = False,
        content_seed: int = 0,
        shuffle_per_epoch: bool = True,
        grid: Sequence[int] | None = None,
        roll_loss: bool = False,
        filler: str = "pad",
        bos: bool | int = False,
        eos_before: bool | int = False,
        label_layout: str | None = None,
        mask_boundary_loss: bool = True,
        ignore_id: int | None = None,
        train_on_eos: bool = True,
        eos_mask: str = "all",
        segments: str = "documents",
        eos_id: int | None = None,
        pad_id: int | None = None,
        trailing: str = "filler",
        attend_prefix: bool = False,
        position_offset: int = 0,
    ) -> Dataset:
        """Documents placed at chosen positions of frames, each (document, t, s) as requested.

        A splice is K tokens of a document from document offset t on, at frame offset s.
        docs/splice.md shows what each argument does.

        Args:
            seq_len: tokens of a frame.
            position_scheme: "relative" for models with RoPE, NoPE or ALiBi: clipped windows,
                several to a frame; "absolute" for learned positions: one to a frame, where it was
                placed; "reset": one to a frame, with positions from 0. None: "absolute", as
                published.
            content_start_mode: which (t, s) are shown: "coverage_balanced" (every t that leaves K
                tokens, at the right end), "slide_within" (every t at every s), "anchor_start"
                (t = 0 at every s), "cyclic_roll" (like slide_within, with documents as rings).
            content_length: K, tokens of a splice; None: as many as fit; a mapping {example: K}
                changes it during the run.
            content_stride: tokens from one t to the next.
            offset_stride: cells from one s to the next.
            min_copy_len: skip splices with fewer tokens.
            mode: "splice", or "slide": frames filled by one document, from every start.
            placement: where s is swept, "fit" the splice into the frame or "truncate" its end.
            include_tail: also show the last start L - K if the stride does not reach it.
            edge: starts stay "inside" the document, or ("clip") run past both ends, so that every
                token is a target equally often; None depends on `position_scheme`.
            fill: "one" splice to a frame, or "pack" as many as fit; None depends on
                `position_scheme`.
            alpha: prefer starts near the ends by (K / distance)^alpha.
            edge_mode: "continuous" weights, or "duplicate" starts near the ends at random.
            adaptive_k: splice documents shorter than K as a whole; if False, skip them.
            offset_jitter: J; move splices left by 0 to J cells, differently at each visit.
            jitter_mode: "uniform" or "low_discrepancy".
            sampler: "enumerate": every (t, s) once; "quota": an exact share of an epoch for every
                document; "stream": like "quota", endless and shuffled. None: "quota" for
                "coverage_balanced", else "enumerate".
            balance_mode: shares of documents: "by_coverage", "by_document", "by_temperature".
            balance_tau: the temperature: 1 is proportional, 0 is equal.
            balance_measure: the measure of a document, "length" or "starts"; None: "starts" with
                edge="clip", else "length".
            epoch_length: examples of an epoch (frames, also with fill="pack"); None: as many as
                show every choice once.
            max_epochs: at most how often one epoch shows the choices of a document.
            doc_weights: a factor for each document, in the order of selection.
            doc_strides: a `content_stride` for each document.
            doc_alphas: an `alpha` for each document.
            doc_groups: a group for each document; groups get equal shares.
            doc_schedule: {example: documents}: start with that many of them, in the order of
                selection.
            doc_growth: {epoch: documents}: like `doc_schedule`, by epochs; earlier epochs stay the
                same.
            schedule_batch_size: read the keys of schedules as steps of that many examples.
            shuffle_offsets: enumerate offsets in random order; a number shuffles inside stretches
                of that length.
            offset_seed: seed of that order, and of jitter.
            shuffle_content: enumerate starts in random order; a number shuffles inside stretches of
                that length.
            content_seed: seed of that order, and of duplicates.
            shuffle_per_epoch: use another such order in every epoch.
            grid: (starts, offsets): that many of each document, evenly spaced.
            roll_loss: train across the seam of "cyclic_roll".
            filler: "pad" or "eos": the token in cells without a document.
            bos: put BOS before every document: True for the tokenizer's, or a token.
            eos_before: put EOS into the last filler cell before a splice: True, or a token.
            label_layout: "aligned" (also None) or "shifted"; all that follow are as in `windows`.
            mask_boundary_loss: do not train the first token of a document on the document before.
            ignore_id: a token that is never trained on.
            train_on_eos: train the prediction of EOS.
            eos_mask: which EOS `train_on_eos` applies to: "all" that equal `eos_id`, or only
                "inserted" ones.
            segments: documents end as stored ("documents") or after each `eos_id` ("eos").
            eos_id: the token that ends a document; None: the tokenizer's, if one is needed.
            pad_id: the token in filler cells; None depends on `filler`.
            trailing: the segment of filler at the end of a frame: 0 ("filler") or that of the last
                document ("doc").
            attend_prefix: filler at the start of a frame belongs to the first document.
            position_offset: added to every position.

        >>> import tempfile, tokenloom as tl
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = tl.build([{"text": "abcdef"}], folder + "/toy", tokenizer="bytes")
        ...     store.splice(6, content_length=4, pad_id=0).batch([0, 1, 2]).tokens.tolist()
        [[0, 0, 97, 98, 99, 100], [0, 0, 98, 99, 100, 101], [0, 0, 99, 100, 101, 102]]
        """
        given = {name: value for name, value in locals().items() if name not in ("self", "seq_len")}
        tokenizer = self._reader.manifest.tokenizer
        given["bos"] = named_token(self._reader, self._path, "bos", bos)
        given["eos_before"] = named_token(self._reader, self._path, "eos_before", eos_before)
        layout, render = splice_settings(seq_len, eos=tokenizer.eos if tokenizer else None, **given)
        made = self._laid_out(layout, render)
        spliced = made.sources[MAIN].layout
        assert isinstance(spliced, Spliced)
        say_what_it_costs(spliced, made.sources[MAIN].render, position_scheme)
        tell(spliced, self._path, selected=isinstance(self._choice, SelectSpec))
        if layout.sampler == "stream":
            made = made.epochs(None).shuffle(FullShuffle())
        return made

    def _laid_out(self, layout: LayoutSpec, render: dict[str, Any]) -> Dataset:
        """The dataset, with the defaults that depend on the store and the layout filled in."""
        source = Source(
            reader=self._reader,
            path=self._path,
            config=SourceConfig(layout=layout, choice=self._choice),
            layout=make_layout(layout, self.line),
            render=RenderSpec(**usual_render(layout, self._reader, render)),
        )
        return Dataset({MAIN: source})

    @lazy
    def line(self) -> Line:
        """The documents, end to end."""
        known = None if self._choice is None else self._selection
        return line_of(self._reader, self._choice, known)

    @lazy
    def _selection(self) -> Selection:
        return choose_documents(self._reader, self._choice)

    @property
    def indices(self) -> NDArray[np.int64]:
        """The numbers of these documents in the store: as stored, or in order of selection."""
        return self._selection.documents

    def __reduce__(self) -> tuple[Any, ...]:
        known = {name: self.__dict__[name] for name in ("_selection",) if name in self.__dict__}
        return Documents, (self._reader, self._path, self._choice), known

    @near_misses("select")
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

        The choice depends on lengths, so no token is read. The result is logged. A warning says so
        if it differs from what was requested and no argument allows that.

        Args:
            num_docs: the number of documents; default: 1.
            doc_index: the number of a document in the store, or several.
            doc_key: conditions on the metadata, such as ``"lang==en and year>=1999"``; or a
                function that takes the metadata of a document and returns whether it may be chosen.
            doc_hash: 8 to 32 hex digits, the start of the hash of a document's tokens, as
                `Store.document_hashes` gives it.
            doc_selector: a mapping with `min_len`, `max_len` and `hash`: other names of
                `min_doc_length`, `max_doc_length` and `doc_hash`.
            doc_select_mode: "longest" or "shortest" (ties: lowest number first), "first" (in stored
                order) or "random" (without replacement; the same for the same store, `num_docs`,
                lengths and `seed`).
            min_doc_length: minimum tokens of a document.
            max_doc_length: maximum tokens of a document.
            restrict_to_training_subset: choose only documents that lie entirely inside the first
                `max_train_batches` x `initial_batch_size` x `seq_len` tokens of the store.
            max_train_batches: batches that are trained on; only needed with the restriction.
            initial_batch_size: rows of a batch; only needed with the restriction.
            seq_len: tokens of a row; only needed with the restriction.
            on_shortage: what to do if too few documents qualify: "error" (the default for several
                documents), "fewer", or "backfill_longest", which fills up with the longest others
                (the default for a single document, with a warning).
            doc_index_policy: what to do if a document of `doc_index` does not qualify: "fallback"
                (the mode chooses another one, with a warning), "honor" (take it whatever its
                length) or "error".
            seed: seed of "random".

        Raises:
            ConfigError: an invalid setting, no such document, or too few of them.

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
                "doc_index: found together with doc_key; each of them selects documents. Leave "
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
        if by_function:  # a function cannot be described; its result can
            spec = replace(spec, documents=tuple(sorted(chosen.documents.tolist())))
        made = Documents(self._reader, self._path, spec)
        made._selection = chosen
        made._tell()
        return made

    def _tell(self) -> None:
        """Log what was selected and why, and warn if it is not what was requested."""
        if self._selection.warning is not None:
            warn(f"{self._path}: {self._selection.warning}")
        log.info("%s: selected %s.", self._path, self._selection.why)
        tell_documents("", self.indices, self.lengths)

    def load(self) -> tuple[list[NDArray[np.int32]], NDArray[np.int64]]:
        """The tokens of every document, in one coalesced read, and their numbers in the store."""
        start, stop = self._reader.bounds(self.indices)
        views = self._reader.read(start, stop)
        flat = np.concatenate([np.empty(0, np.int32), *views], dtype=np.int32, casting="unsafe")
        return np.split(flat, np.cumsum(stop - start)[:-1]) if len(start) else [], self.indices

    @lazy
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each document [num_documents]; reads offsets only, no token."""
        start, stop = self._reader.bounds(self.indices)
        lengths = stop - start
        lengths.flags.writeable = False
        return lengths

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return len(self.indices)

    @property
    def num_tokens(self) -> int:
        """The number of tokens in these documents."""
        return int(self.lengths.sum())

    def __repr__(self) -> str:
        if "_selection" not in self.__dict__ and isinstance(self._choice, SplitSpec):
            return f"Documents({self._path!r}: {self._choice.words})"  # counts would read it
        documents, tokens = plural(self.num_documents, "document"), plural(self.num_tokens, "token")
        return f"Documents({self._path!r}: {documents}, {tokens}; {self._selection.why})"


def _as_listed(doc_index: Any) -> Any:
    """Several numbers as a tuple, whatever their container; anything else unchanged."""
    if isinstance(doc_index, range | np.ndarray):
        doc_index = np.asarray(doc_index).tolist()
    if isinstance(doc_index, list | tuple):
        return tuple(one.item() if isinstance(one, np.generic) else one for one in doc_index)
    return doc_index


def _rendering(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `RenderSpec` among arguments, without those that are not yet known."""
    found = {name: given[name] for name in field_names(RenderSpec)}
    return {name: one for name, one in found.items() if name not in FOUND or one is not None}
