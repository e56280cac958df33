"""From an index to what is trained there: `look_at`.

One idea: everything about an example is known before a token is read, so the answer is a view of
the same numbers that a batch is made from, with the numbers on the way kept.

What documents hold, for people: text and metadata of the spans of some rows, read on request.

Tokens are read in one coalesced request for all spans, and decoded by the tokenizer that
the store keeps; opening a store never runs code that it names.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np

from tokenloom.arrays import Int64, grouped
from tokenloom.errors import ConfigError
from tokenloom.layout.spans import Spans
from tokenloom.order.block_order import BlockOrder
from tokenloom.order.run import Placed, Run, SourceRun
from tokenloom.order.schedule import Steps, rows_in_steps
from tokenloom.store import snapshots
from tokenloom.store.reader import Reader
from tokenloom.tokenizer.stored import StoredTokenizer
from tokenloom.trace.answers import CellRun, Example, Route, TracedSpan, cell_runs


def look_at(
    run: Run,
    indices: Int64,
    *,
    edits: Sequence[int] = (),
    steps: Steps | None = None,
    text: bool = False,
    metadata: bool = False,
) -> list[Example]:
    """What is trained at some indices, in this order.

    Args:
        run: the run.
        indices: inside the run [N].
        edits: the first index of each edit, ascending.
        steps: the steps to count in, for `Example.step` and `Example.row`.
        text: decode the stored tokens; this reads them.
        metadata: look up what was kept about each document.
    """
    found: list[Example | None] = [None] * len(indices)
    places = [(None, None)] * len(indices) if steps is None else rows_in_steps(run, steps, indices)
    for part in run.placed(indices) if len(indices) else ():
        at = np.arange(len(indices)) if part.at is None else part.at
        spans = part.run.layout.spans(part.epoch, part.row)
        routes = _routes(run, part, [bisect.bisect_right(edits, i) for i in indices[at].tolist()])
        documents = _documents(part, spans, Contents.of(part.run, spans, text, metadata))
        edges = spans.frame.tolist()
        for number, place in enumerate(at.tolist()):
            step, row = places[place]
            found[place] = Example(
                index=int(indices[place]),
                source=part.run.name,
                width=run.width,
                route=routes[number],
                spans=tuple(documents[edges[number] : edges[number + 1]]),
                step=step,
                row=row,
            )
    return [one for one in found if one is not None]


def _documents(part: Placed, spans: Spans, contents: Contents) -> list[TracedSpan]:
    """The spans of some rows, as records."""
    cut = cell_runs(spans, part.run.seq_len, part.run.layout.line.reader)
    cells: list[list[CellRun]] = [[] for _ in range(len(spans.document))]
    for span, *rest in zip(*(column.tolist() for column in cut), strict=True):
        cells[span].append(CellRun(*rest))
    blank = np.zeros(len(spans.document), np.bool_)
    if part.run.blanks is not None:
        blank = part.run.blanks.covers(spans.document, part.item[spans.row])
    epoch = part.epoch[spans.row].tolist()
    return [
        TracedSpan(
            source=part.run.name,
            epoch=epoch[number],
            document=document,
            cells=tuple(cells[number]),
            blank=bool(blank[number]),
            text=contents.text(number),
            metadata=contents.metadata(document),
        )
        for number, document in enumerate(spans.document.tolist())
    ]


def _routes(run: Run, part: Placed, stages: Sequence[int]) -> list[Route]:
    """The way to each row."""
    band: list[int | None] = [None] * len(part.item)
    lane: list[int | None] = [None] * len(part.item)
    phases = part.run.phases
    for epoch, here in grouped(part.epoch):
        order = part.run.order(epoch)
        if isinstance(order, BlockOrder):
            pair = order.bands(part.item[here] - phases.start(epoch))
            for place, b, h in zip(here.tolist(), *(one.tolist() for one in pair), strict=True):
                band[place], lane[place] = b, h
    items, epochs, rows = (one.tolist() for one in (part.item, part.epoch, part.row))
    return [
        Route(
            stage, run.moment(part.number, items[k]), items[k], epochs[k], band[k], lane[k], rows[k]
        )
        for k, stage in enumerate(stages)
    ]


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
