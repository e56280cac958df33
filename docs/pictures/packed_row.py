"""The picture of one packed row in docs/boundaries.md, from a real batch.

::

    python docs/pictures/packed_row.py > docs/pictures/packed-row.svg

The same bytes every time: what is drawn is what `store.pack` gives.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise

import tokenloom as tl
from tokenloom.page.axes import drawing, label, rule
from tokenloom.page.markup import Markup, tag
from tokenloom.page.standalone import DRAWN, Panel, standalone

TEXTS = ["abcdefghijklmno", "pqr", "s"]
SEQ_LEN, ROW, EOS = 12, 1, ord("|")
LEFT, CELL, LINE, TOP = 120, 30, 26, 46  # pixels
MARGIN = 18  # between a name and its cells: a word may be around the first edge
CAPTION = "twelve cells: the end of document 0, documents 1 and 2, and filler"
COLOURS = ("filler", "s1 pale", "s2 pale", "s3 pale")  # filler, document 1, 2, 3


def packed() -> tl.Batch:
    """The batch that is drawn: one row of twelve cells."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"text": text} for text in TEXTS]
        store = tl.build(rows, f"{folder}/toy", tokenizer="bytes", progress=False)
        batch = store.pack(SEQ_LEN, add_eos=True, eos_id=EOS)[ROW]
        return batch.prepare(("tokens", "labels", "cu_seqlens", "continues", "spans"))


def words(ids: Sequence[int], segments: Sequence[int]) -> list[str]:
    """Tokens as they are drawn: letters, EOS and PAD."""
    names = {EOS: "EOS"}
    return [names.get(i, chr(i)) if s else "PAD" for i, s in zip(ids, segments, strict=True)]


def lines_of(batch: tl.Batch) -> list[tuple[str, list[str]]]:
    """One line of cells for each array [B, S]: its name and what its cells hold."""
    segments = batch.segment_ids[0].tolist()
    tokens = words(batch.tokens[0].tolist(), segments)
    labels = batch.labels[0].tolist()
    return [
        ("tokens", tokens),
        ("segment_ids", [str(s) for s in segments]),
        ("position_ids", [str(p) for p in batch.position_ids[0].tolist()]),
        ("loss_mask", [str(int(m)) for m in batch.loss_mask[0].tolist()]),
        ("labels, aligned", ["-100" if one < 0 else tokens[i] for i, one in enumerate(labels)]),
    ]


def mark(x: float, y: float, said: object) -> list[Markup]:
    """A tick on an edge of cells, with a word below."""
    return [rule(f"M{x:g} {y:g}v7", "mark"), label(x, y + 20, said, anchor="middle")]


def above(batch: tl.Batch) -> list[Markup]:
    """Brackets over the cells of each document, and over filler."""
    spans, edges = batch.spans, batch.cu_seqlens.tolist()
    told = []
    for document, start, length in zip(spans.document, spans.start, spans.length, strict=True):
        last = f"s {start} to {start + length - 1}" if length > 1 else f" {start}"
        told.append((f"document {document}", f"token{last}"))
    parts = []
    for (low, high), (name, rest) in zip(pairwise(edges), [*told, ("filler", "")], strict=True):
        first, last = LEFT + low * CELL + 3, LEFT + high * CELL - 3
        middle = (first + last) / 2
        parts.append(rule(f"M{first} {TOP - 5}v-6H{last}v6"))
        parts.append(label(middle, TOP - 32, name, anchor="middle"))
        parts.append(label(middle, TOP - 16, rest, anchor="middle", soft=True))
    return parts


def below(batch: tl.Batch, y: int) -> list[Markup]:
    """What is at edges and not in cells."""
    starts, goes_on = batch.document_starts[0].tolist(), batch.continues[0].tolist()
    parts = [
        label(LEFT - MARGIN, y + place, name, anchor="end")
        for name, place in (("document_starts", 20), ("continues", 42), ("cu_seqlens", 76))
    ]
    for at, one in zip(starts, goes_on, strict=True):
        parts += mark(LEFT + at * CELL, y, at)
        parts.append(label(LEFT + at * CELL, y + 42, one, anchor="middle"))
    for at in batch.cu_seqlens.tolist():
        parts += mark(LEFT + at * CELL, y + 56, at)
    return parts


def draw(batch: tl.Batch) -> str:
    """The picture."""
    lines = lines_of(batch)
    segments = batch.segment_ids[0].tolist()
    parts = above(batch)
    for line, (name, cells) in enumerate(lines):
        y = TOP + line * LINE
        parts.append(label(LEFT - MARGIN, y + 17, name, anchor="end"))
        for cell, said in enumerate(cells):
            x = LEFT + cell * CELL
            size = {"x": x, "y": y, "width": CELL - 1, "height": LINE - 2}
            parts.append(tag("rect", **size, class_=COLOURS[segments[cell]]))
            quiet = said in ("-100", "PAD")
            parts.append(label(x + (CELL - 1) / 2, y + 17, said, anchor="middle", soft=quiet))
    bottom = TOP + len(lines) * LINE + 2
    names = ", ".join(name for name, _ in lines)
    drawn = drawing(DRAWN, bottom + 82, f"the cells of {names}", [*parts, *below(batch, bottom)])
    return standalone("One packed row", [CAPTION], [Panel(drawn)])


if __name__ == "__main__":
    sys.stdout.write(draw(packed()))
