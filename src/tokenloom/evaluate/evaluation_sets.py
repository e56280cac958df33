"""Evaluation sets that stay what they are: rows of given documents, named by their content.

One idea: what is evaluated must not depend on how one trains. A pinned set has one document a row,
so no packing of training moves it, and its name is a hash of the documents' own hashes, in order:
equal in every store that holds them, and different when one token is.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from tokenloom.api.dataset import Dataset
from tokenloom.api.documents import Documents
from tokenloom.arguments import integer
from tokenloom.errors import ConfigError
from tokenloom.store.hashes import stored_hashes

PINNED: dict[str, Any] = {
    "strategy": "one_doc",
    "overflow": "split",
    "lookahead": True,  # the target of the last cell is the first token of the next row,
    "stride": 1,  # which both rows therefore have
}
"""Arguments of `pack` that put one document into a row, and longer ones into several.

Row k of a document holds tokens k·S to (k + 1)·S, as a run that is packed with ``one_doc`` has
them, so a token is judged at the position where training showed it. Its targets are one later.
"""


def content_hash(what: Documents | Dataset) -> str:
    """The identity of some documents in their order, 64 hex digits; no token is read.

    Args:
        what: documents, or a run: then those of its sources, whatever their layout is.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     one = tl.build([{"text": "ab"}, {"text": "c"}], folder + "/one", tokenizer="bytes")
    ...     two = tl.build([{"text": "c"}], folder + "/two", tokenizer="bytes")
    ...     content_hash(one.select(doc_index=1)) == content_hash(two) == content_hash(two.pack(8))
    True
    """
    if isinstance(what, Documents):
        return _hash(what)
    parts = [_hash(one) for one in documents_of(what).values()]
    whole = hashlib.sha256(" ".join(parts).encode()).hexdigest()
    return parts[0] if len(parts) == 1 else whole


def documents_of(run: Dataset) -> dict[str, Documents]:
    """The documents of every source of a run, by its name."""
    return {
        name: Documents(source.reader, source.path, source.config.choice)
        for name, source in run.sources.items()
    }


def _hash(documents: Documents) -> str:
    sha256 = hashlib.sha256(b"tokenloom documents")
    numbers = np.asarray(documents.indices, np.int64)
    edges = np.flatnonzero(np.diff(numbers) != 1) + 1  # stretches of consecutive ones
    for some in np.split(numbers, edges):
        if len(some):
            found = stored_hashes(documents.line.reader, int(some[0]), int(some[-1]) + 1)
            sha256.update(found.astype("<u8").tobytes())
    return sha256.hexdigest()


def one_document_rows(documents: Documents, seq_len: int | None, overlap: int = 0) -> Dataset:
    r"""One document a row, longer ones in several: rows that no setting of training moves.

    Every row has the token after it as a label, so every token but the first of a document is
    judged, once.

    Args:
        documents: what is evaluated.
        seq_len: tokens of a row, as many as the model takes.
        overlap: tokens that rows of one document share; shared ones are judged once.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/one", tokenizer="bytes")
    ...     rows = one_document_rows(store, 5)
    ...     [bytes(row.tolist()) for row in rows[:2].tokens], rows[:2].loss_tokens
    ([b'abcde', b'fgh\x00\x00'], 7)
    """
    if seq_len is None:
        raise ConfigError(
            "seq_len: found None together with documents, allowed: the tokens of a row, as many as "
            "the model takes; longer documents are cut into several rows"
        )
    integer("seq_len", seq_len, 2)
    integer("overlap", overlap, 0, seq_len - 1)
    return documents.pack(seq_len, **{**PINNED, "stride": overlap + 1}).epochs(1)
