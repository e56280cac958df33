"""Whether any row can show a document, and why not.

One idea: what a layout leaves out follows from lengths and settings, so a document that no row of
any epoch holds is told at once, with the setting that keeps it out, instead of being looked for in
an endless run.

`Offsets` are document offsets [first, last); an inserted BOS has offset -1, an EOS the number of
tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import plural
from tokenloom.layout.joined import Joined
from tokenloom.layout.layout import Layout
from tokenloom.layout.pack.rows import Packed
from tokenloom.layout.pack.spec import PackSpec
from tokenloom.layout.splice.phase import SplicePhase
from tokenloom.layout.splice.rows import Spliced
from tokenloom.layout.windows import Windows
from tokenloom.trace.cell_runs import cell_runs

__all__ = ["Offsets", "can_show", "why_never"]

Int64 = NDArray[np.int64]

Offsets = tuple[int, int]


def can_show(layout: Layout, phase: int, document: int, tokens: Offsets | None) -> bool:
    """Whether a row of an epoch of a phase holds a document, or some of these tokens of it.

    Args:
        layout: the layout.
        phase: number of the phase.
        document: its number in the store.
        tokens: document offsets; None for any.
    """
    if isinstance(layout, Spliced):
        return _is_spliced(layout, phase, document, tokens)
    rows = layout.find(0, document)
    if tokens is None or not len(rows):
        return bool(len(rows))
    low, high = _in_rows(layout, document, rows)
    return bool(((low < tokens[1]) & (high > tokens[0])).any())


def _in_rows(layout: Layout, document: int, rows: Int64) -> tuple[Int64, Int64]:
    """The document offsets of the stretches of a document in some rows of a constant layout [N]."""
    spans = layout.spans(0, rows)
    cut = cell_runs(spans.where(spans.document == document), layout.seq_len, layout.line.reader)
    return cut.start, cut.start + cut.length


def _is_spliced(layout: Spliced, phase: int, document: int, tokens: Offsets | None) -> bool:
    part = layout.parts[phase]
    for place in layout.line.places(document).tolist():
        if not part.quota[place]:
            continue
        if tokens is None:
            return True
        low, high = _choices(part, place, layout.lead)
        end = int(part.length[place]) - layout.lead
        # a ring continues after the end with its first token
        wraps = (low < tokens[1] + end + layout.lead) & (high > tokens[0] + end + layout.lead)
        if (((low < tokens[1]) & (high > tokens[0])) | wraps).any():
            return True
    return False


def _choices(part: SplicePhase, place: int, lead: int) -> tuple[Int64, Int64]:
    """The document offsets of every choice that a document has [choices]."""
    choices, count = part.choices_of(place), int(part.choices[place])
    length = np.full(count, part.length[place])
    found = choices.splice(*choices.place(np.arange(count), length), length)
    return found.start - lead, found.start - lead + found.length


def why_never(layout: Layout, document: int, tokens: Offsets | None) -> str | None:
    """Why no row of any epoch shows a document, or these tokens of it; None if one does."""
    phases = len(layout.parts) if isinstance(layout, Spliced) else 1
    if any(can_show(layout, phase, document, tokens) for phase in range(phases)):
        return None
    line = layout.line
    places = line.places(document).tolist()
    if not places:
        every = line.reader.manifest.documents
        return (
            f"document {document:,} is not selected: the source takes {line.documents:,} of the "
            f"{plural(every, 'document')} of its store."
        )
    begin, end = line.bounds(places[0], places[0] + 1)[1].tolist()
    if begin == end:
        return f"document {document:,} is empty: it has no token to show."
    size = end - begin
    if tokens is not None and any(
        can_show(layout, phase, document, None) for phase in range(phases)
    ):
        return _cut_off(layout, document, size, tokens)
    return f"document {document:,}, of {plural(size, 'token')}, is " + _left_out(layout, document)


def _cut_off(layout: Layout, document: int, size: int, tokens: Offsets) -> str:
    """Why some tokens of a document that is shown are not."""
    asked = f"tokens {tokens[0]:,} to {tokens[1] - 1:,} of document {document:,}"
    if tokens[0] >= size + 1 or tokens[1] <= -1:
        return f"{asked} do not exist: it has {plural(size, 'token')}."
    if isinstance(layout, Spliced):
        return f"{asked} are cut off: no start of a splice shows them."
    low, high = _in_rows(layout, document, layout.find(0, document))
    shown = f"{int(low.min()):,} to {int(high.max()) - 1:,}"
    return f"{asked} are cut off: rows have its tokens {shown} only."


def _left_out(layout: Layout, document: int) -> str:
    """What a layout does with a document that it does not show."""
    if isinstance(layout, Joined):
        parts = [part for part in layout.parts if len(part.line.places(document))]
        return _left_out(parts[0], document)
    if isinstance(layout, Windows):
        return "in the tail: it is after the last whole row, and tail='drop' leaves that out."
    (place, *_) = layout.line.places(document).tolist()
    begin, end = layout.line.bounds(place, place + 1)[1].tolist()
    if isinstance(layout, Packed):
        return _not_packed(layout.spec, end - begin)
    assert isinstance(layout, Spliced)
    return _not_spliced(layout, place)


def _not_packed(spec: PackSpec, size: int) -> str:
    if size < spec.min_len:
        return f"dropped: min_len={spec.min_len:,} leaves it out."
    if spec.max_len is not None and size > spec.max_len:
        return f"dropped: max_len={spec.max_len:,} leaves it out."
    if spec.overflow == "drop":
        return f"dropped: it is longer than a frame of {spec.width:,} cells, and overflow='drop'."
    return f"dropped: its row has fewer than min_row_len={spec.min_row_len:,} tokens."


def _not_spliced(layout: Spliced, place: int) -> str:
    if not any(part.length[place] for part in layout.parts):
        return "not selected: the schedule of documents never takes it in."
    if not any(part.content[place] for part in layout.parts):
        spec = layout.spec
        return (
            f"dropped: it is too short for content_length={spec.content_length} and "
            f"min_copy_len={spec.min_copy_len}; adaptive_k=True would take it in."
        )
    return "left out with quota 0: its share of an epoch is less than one example."
