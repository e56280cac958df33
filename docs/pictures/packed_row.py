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
from xml.sax.saxutils import escape

import tokenloom as tl

TEXTS = ["abcdefghijklmno", "pqr", "s"]
SEQ_LEN, ROW, EOS = 12, 1, ord("|")
LEFT, CELL, LINE, TOP = 160, 46, 34, 64  # pixels
FILL = ["#e4e4e4", "#cfe3f7", "#fbe3c0", "#d5efd3"]  # filler, document 1, 2, 3
INK, PALE = "#1c1c1c", "#767676"
MARGIN = 28  # between a name and its cells: a word may be around the first edge


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


def text(x: float, y: float, said: str, *, anchor: str = "middle", color: str = INK) -> str:
    """One word."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}">{escape(said)}</text>'


def mark(x: float, y: float, said: str) -> str:
    """A tick on an edge of cells, with a word below."""
    return f'<path d="M{x:g} {y:g}v8" stroke="{INK}" stroke-width="1.5"/>' + text(x, y + 22, said)


def above(batch: tl.Batch) -> list[str]:
    """Brackets over the cells of each document, and over filler."""
    spans, edges = batch.spans, batch.cu_seqlens.tolist()
    told = []
    for document, start, length in zip(spans.document, spans.start, spans.length, strict=True):
        last = f"s {start} to {start + length - 1}" if length > 1 else f" {start}"
        told.append(f"document {document}, token{last}")
    parts = []
    for (low, high), said in zip(pairwise(edges), [*told, "filler"], strict=True):
        first, last = LEFT + low * CELL + 3, LEFT + high * CELL - 3
        bracket = f"M{first} {TOP - 6}v-8H{last}v8"
        parts.append(f'<path d="{bracket}" fill="none" stroke="{INK}"/>')
        name, _, rest = said.partition(", ")
        parts.append(text((first + last) / 2, TOP - 36, name))
        parts.append(text((first + last) / 2, TOP - 20, rest, color=PALE))
    return parts


def below(batch: tl.Batch, y: int) -> list[str]:
    """What is at edges and not in cells."""
    starts = batch.document_starts[0].tolist()
    goes_on = batch.continues[0].tolist()
    parts = [text(LEFT - MARGIN, y + 22, "document_starts", anchor="end")]
    parts += [mark(LEFT + at * CELL, y, str(at)) for at in starts]
    parts.append(text(LEFT - MARGIN, y + 52, "continues", anchor="end"))
    parts += [
        text(LEFT + at * CELL, y + 52, str(one)) for at, one in zip(starts, goes_on, strict=True)
    ]
    parts.append(text(LEFT - MARGIN, y + 90, "cu_seqlens", anchor="end"))
    parts += [mark(LEFT + at * CELL, y + 68, str(at)) for at in batch.cu_seqlens.tolist()]
    return parts


def draw(batch: tl.Batch) -> str:
    """The picture."""
    lines = lines_of(batch)
    segments = batch.segment_ids[0].tolist()
    bottom = TOP + len(lines) * LINE
    width, height = LEFT + SEQ_LEN * CELL + 30, bottom + 108
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    font = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="13"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font} role="img">',
        "<title>One packed row: tokens, segment_ids, position_ids, loss_mask, labels</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *above(batch),
    ]
    for line, (name, cells) in enumerate(lines):
        y = TOP + line * LINE
        parts.append(text(LEFT - MARGIN, y + 22, name, anchor="end"))
        for cell, said in enumerate(cells):
            x = LEFT + cell * CELL
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL}" height="{LINE - 4}" '
                f'fill="{FILL[segments[cell]]}" stroke="#ffffff"/>'
            )
            color = PALE if said in ("-100", "PAD") else INK
            parts.append(text(x + CELL / 2, y + 20, said, color=color))
    return "\n".join([*parts, *below(batch, bottom + 4), "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(draw(packed()))
