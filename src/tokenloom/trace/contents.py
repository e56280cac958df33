"""What documents hold, for people: text and metadata of the spans of some rows, read on request.

One idea: tokens are read in one coalesced request for all spans, and decoded by the tokenizer that
the store keeps; opening a store never runs code that it names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tokenloom.errors import ConfigError
from tokenloom.layout.spans import Spans
from tokenloom.order.run import SourceRun
from tokenloom.store import snapshots
from tokenloom.store.reader import Reader
from tokenloom.tokenizer.stored import StoredTokenizer

__all__ = ["Contents", "decoder_of"]


class Contents:
    """Texts of spans, and metadata of documents, as far as they were asked for.

    Args:
        texts: the text of each span; None if nobody asked.
        reader: where to look up metadata; None if nobody asked.
    """

    def __init__(self, texts: list[str] | None, reader: Reader | None) -> None:
        self._texts, self._reader = texts, reader
        self._known: dict[int, dict[str, Any]] = {}

    @staticmethod
    def of(run: SourceRun, spans: Spans, text: bool, metadata: bool) -> Contents:
        """What is asked for of some spans of a source."""
        reader = run.layout.line.reader
        return Contents(_texts(run, spans) if text else None, reader if metadata else None)

    def text(self, span: int) -> str | None:
        """The stored tokens of a span as text."""
        return None if self._texts is None else self._texts[span]

    def metadata(self, document: int) -> dict[str, Any] | None:
        """What was kept about a document."""
        if self._reader is None:
            return None
        if document not in self._known:
            self._known[document] = self._reader.named_metadata(document)
        return self._known[document]


def _texts(run: SourceRun, spans: Spans) -> list[str]:
    line = run.layout.line
    decoder = decoder_of(line.reader)
    if decoder is None:
        raise ConfigError(
            f"text: source {run.name!r} was built from ready-made ids without a tokenizer, so "
            "there is nothing to decode them with. Ask without text, or build with tokenizer=…."
        )
    views = line.read(spans.address, spans.address + spans.length)
    flat = np.concatenate([np.empty(0, np.int32), *views], dtype=np.int32, casting="unsafe")
    ends = np.cumsum(spans.length).tolist()
    return [
        decoder.decode(flat[b - n : b]) for b, n in zip(ends, spans.length.tolist(), strict=True)
    ]


def decoder_of(reader: Reader) -> StoredTokenizer | None:
    """The tokenizer that made the ids of a store; None for ready-made ids."""
    manifest, root, source = reader.manifest, reader.place, reader.source
    if manifest.tokenizer is None:
        return None
    return StoredTokenizer(
        manifest.tokenizer, lambda name: snapshots.read_sidecar(source, root, manifest, name)
    )
