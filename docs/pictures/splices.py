"""The picture of (t, s) in docs/splice.md: which splices each schedule has, from real runs.

::

    python docs/pictures/splices.py > docs/pictures/splices.svg

The same bytes every time: what is drawn is what `store.splice` gives.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

import tokenloom as tl

TEXT, SEQ_LEN, CONTENT = "abcdefg", 8, 4
FIRST_T, LAST_T = -2, 6
CELL, LEFT, TOP, GAP, FRAME = 24, 70, 70, 44, 22  # pixels
INK, PALE, DOT, GRID, FILL = "#1c1c1c", "#767676", "#2f6db5", "#e4e4e4", "#cfe3f7"
PANELS: list[tuple[str, dict[str, Any]]] = [
    ("anchor_start", {"content_start_mode": "anchor_start"}),
    ("slide_within", {"content_start_mode": "slide_within"}),
    ("coverage_balanced", {}),
    ("… with offset_jitter=2", {"offset_jitter": 2, "jitter_mode": "low_discrepancy"}),
    ("… with edge='clip'", {"edge": "clip"}),
]


def splices(store: tl.Store, options: dict[str, Any]) -> list[tuple[int, int]]:
    """Every (t, s) of three epochs."""
    run = store.splice(SEQ_LEN, content_length=CONTENT, position_scheme="absolute", **options)
    epochs, rows = run.epochs(3).locate(np.arange(3 * len(run)))
    found = run.run.layout.triples(epochs, rows)  # type: ignore[attr-defined]
    return sorted(set(zip(found.t.tolist(), found.s.tolist(), strict=True)))


def text(
    x: float, y: float, said: str, *, anchor: str = "middle", color: str = INK, size: int = 12
) -> str:
    """One word."""
    style = f'text-anchor="{anchor}" fill="{color}" font-size="{size}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(said)}</text>'


def panel(x: float, name: str, pairs: list[tuple[int, int]]) -> Iterator[str]:
    """One schedule: a dot for every (t, s)."""
    yield text(x + SEQ_LEN * CELL / 2, TOP - 30, name, size=13)
    shown = f"{len(pairs)} pairs" + (" in three epochs" if "jitter" in name else "")
    yield text(x + SEQ_LEN * CELL / 2, TOP - 13, shown, color=PALE, size=11)
    for line, t in enumerate(range(FIRST_T, LAST_T + 1)):
        for s in range(SEQ_LEN):
            at = x + s * CELL, TOP + line * CELL
            cell = f'x="{at[0]:g}" y="{at[1]:g}" width="{CELL}" height="{CELL}"'
            inside = FILL if 0 <= t < len(TEXT) else "#ffffff"
            yield f'<rect {cell} fill="{inside}" stroke="{GRID}"/>'
            if (t, s) in pairs:
                middle = f'cx="{at[0] + CELL / 2:g}" cy="{at[1] + CELL / 2:g}"'
                yield f'<circle {middle} r="7" fill="{DOT}"/>'
    bottom = TOP + (LAST_T - FIRST_T + 1) * CELL
    for s in range(SEQ_LEN):
        yield text(x + s * CELL + CELL / 2, bottom + 15, str(s), color=PALE, size=11)
    yield text(x + SEQ_LEN * CELL / 2, bottom + 32, "s, offset in the frame", color=PALE, size=11)


def starts() -> Iterator[str]:
    """The axis of the document."""
    for line, t in enumerate(range(FIRST_T, LAST_T + 1)):
        y = TOP + line * CELL + CELL / 2 + 4
        letter = TEXT[t] if 0 <= t < len(TEXT) else "·"
        yield text(LEFT - 10, y, f"{letter}  {t}", anchor="end", color=PALE, size=11)
    yield text(LEFT - 10, TOP - 13, "t", anchor="end", color=PALE, size=11)


def frames(store: tl.Store, top: float) -> Iterator[str]:
    """Below: what some rows look like."""
    told: list[tuple[str, dict[str, Any], int]] = [
        ("", {}, 2),
        (": fewer than K tokens are left", {"content_start_mode": "slide_within"}, 27),
        (" side by side: edge='clip', fill='pack'", {"position_scheme": "relative"}, 0),
    ]
    for number, (said, options, row) in enumerate(told):
        usual = {"position_scheme": "absolute", "pad_id": 0, **options}
        run = store.splice(SEQ_LEN, content_length=CONTENT, **usual)
        batch = run[row]
        found = run.run.layout.triples(0, np.array([row]))  # type: ignore[attr-defined]
        pairs = zip(found.t.tolist(), found.s.tolist(), strict=True)
        said = "(t, s) = " + ", ".join(map(str, pairs)) + said
        y = top + number * (FRAME + 14)
        for cell in range(SEQ_LEN):
            segment = int(batch.segment_ids[0, cell])
            color = ["#f4f4f4", FILL, "#fbe3c0", "#d5efd3"][segment]
            box = f'x="{LEFT + cell * CELL}" y="{y:g}" width="{CELL}" height="{FRAME}"'
            yield f'<rect {box} fill="{color}" stroke="#ffffff"/>'
            letter = chr(int(batch.tokens[0, cell])) if segment else "·"
            yield text(LEFT + cell * CELL + CELL / 2, y + 15, letter)
        yield text(LEFT + SEQ_LEN * CELL + 14, y + 15, said, anchor="start")


def draw() -> str:
    """The picture."""
    step = SEQ_LEN * CELL + GAP
    bottom = TOP + (LAST_T - FIRST_T + 1) * CELL + 60
    width, height = LEFT + len(PANELS) * step, bottom + 3 * (FRAME + 14) + 10
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    font = 'font-family="DejaVu Sans, Verdana, sans-serif"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font} role="img">',
        "<title>Which (t, s) each schedule has: S = 8, K = 4, a document of 7 tokens</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        text(LEFT, 20, "S = 8, K = 4, document abcdefg", anchor="start", size=13),
        *starts(),
    ]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        store = tl.build([{"text": TEXT}], f"{folder}/toy", tokenizer="bytes", progress=False)
        for number, (name, options) in enumerate(PANELS):
            parts += panel(LEFT + number * step, name, splices(store, options))
        parts += frames(store, bottom)
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(draw())
