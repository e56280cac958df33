"""`Documents`: all or some documents of a store, to be laid out: where every dataset starts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.api.layable import Layable
from tokenloom.arguments import near_misses
from tokenloom.documents.conditions import documents_where
from tokenloom.documents.resolve import Choice, choose_documents
from tokenloom.documents.select import Selection, tell_documents
from tokenloom.documents.spec import SelectSpec, training_cutoff, with_selector
from tokenloom.documents.split import SplitSpec
from tokenloom.errors import ConfigError, plural, warn
from tokenloom.store.handles import lazy
from tokenloom.store.reader import Reader

__all__ = ["Documents"]

log = logging.getLogger("tokenloom")


class Documents(Layable):
    """Some documents of a store, which can be laid out like a whole store.

    Made by `Store.split` and `Store.select`; a `Store` is all of its documents. A copy or a pickle
    has the same documents of the same snapshot, which it opens by its absolute path.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        known = self.__dict__.get("_selection")
        return _copied, (self._reader, self._path, self._choice, known)

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


def _copied(
    reader: Reader, path: str, choice: Choice | None, selection: Selection | None
) -> Documents:
    made = Documents(reader, path, choice)
    if selection is not None:
        made._selection = selection
    return made


def _as_listed(doc_index: Any) -> Any:
    """Several numbers as a tuple, whatever their container; anything else unchanged."""
    if isinstance(doc_index, range | np.ndarray):
        doc_index = np.asarray(doc_index).tolist()
    if isinstance(doc_index, list | tuple):
        return tuple(one.item() if isinstance(one, np.generic) else one for one in doc_index)
    return doc_index
