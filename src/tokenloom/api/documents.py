"""`Documents`: all or some documents of a store, to be laid out: where every dataset begins."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.layable import Layable
from tokenloom.arguments import near_misses
from tokenloom.documents.conditions import documents_where
from tokenloom.documents.resolve import choose_documents
from tokenloom.documents.spec import SelectSpec, training_cutoff, with_selector
from tokenloom.documents.split import SplitSpec
from tokenloom.errors import ConfigError, plural, warn

__all__ = ["Documents"]

LOGGED = 20  # documents of a selection that are named one by one

log = logging.getLogger("tokenloom")


class Documents(Layable):
    """Some documents of a store, to be laid out like a whole one.

    Made by `Store.split` and `Store.select`; a `Store` is all of its documents.
    """

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
