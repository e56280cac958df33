"""Evaluation sets that stay what they are: rows of given documents, named by their content.

One idea: what is evaluated must not depend on how one trains. A pinned set has one document a row,
so no packing of training moves it, and its name is a hash of the documents' own hashes, in order:
equal in every store that holds them, and different when one token is.
"""

from __future__ import annotations

import hashlib

import numpy as np

from tokenloom.api.documents import Documents
from tokenloom.store.derived.hashes import stored_hashes

__all__ = ["content_hash"]


def content_hash(documents: Documents) -> str:
    """The identity of some documents in their order, 64 hex digits; no token is read.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     one = tl.build([{"text": "ab"}, {"text": "c"}], folder + "/one", tokenizer="bytes")
    ...     two = tl.build([{"text": "c"}], folder + "/two", tokenizer="bytes")
    ...     content_hash(one.select(doc_index=1)) == content_hash(two)
    True
    """
    sha256 = hashlib.sha256(b"tokenloom documents")
    numbers = np.asarray(documents.indices, np.int64)
    edges = np.flatnonzero(np.diff(numbers) != 1) + 1  # stretches of consecutive ones
    for some in np.split(numbers, edges):
        if len(some):
            found = stored_hashes(documents.line.reader, int(some[0]), int(some[-1]) + 1)
            sha256.update(found.astype("<u8").tobytes())
    return sha256.hexdigest()
