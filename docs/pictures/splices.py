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

import numpy as np

import tokenloom as tl
from tokenloom.page.axes import drawing, label, rule
from tokenloom.page.markup import Markup, tag
from tokenloom.page.standalone import DRAWN, Panel, standalone

TEXT, SEQ_LEN, CONTENT = "abcdefg", 8, 4
FIRST_T, LAST_T = -2, 6
CELL, LEFT, TOP, FRAME = 22, 44, 40, 20  # pixels
ACROSS = LEFT + SEQ_LEN * CELL + 20  # from panel to panel
COLOURS = ("ground", "s1 pale", "s2 pale", "s3 pale")  # filler, splice 1, 2, 3
KEY = (
    "A dot is a splice: the tokens",
    f"t … t + {CONTENT - 1} of the document",
    f"are in the cells s … s + {CONTENT - 1}.",
    "Grey: t is in the document.",
)
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


def panel(x: float, y: float, name: str, pairs: list[tuple[int, int]]) -> Iterator[Markup]:
    """One schedule: a dot for every (t, s)."""
    left, top = x + LEFT, y + TOP
    shown = f"{len(pairs)} pairs" + (" in three epochs" if "jitter" in name else "")
    yield tag("text", name, x=f"{left:g}", y=f"{y + 14:g}", class_="heading")
    yield label(left, y + 31, shown, soft=True)
    yield label(left - 8, y + 31, "t", anchor="end", soft=True)
    inside = {"x": f"{left:g}", "width": SEQ_LEN * CELL, "height": len(TEXT) * CELL}
    yield tag("rect", **inside, y=f"{top - FIRST_T * CELL:g}", class_="ground")
    rows = LAST_T - FIRST_T + 1
    across = "".join(f"M{left:g} {top + n * CELL:g}h{SEQ_LEN * CELL}" for n in range(rows + 1))
    down = "".join(f"M{left + n * CELL:g} {top:g}v{rows * CELL}" for n in range(SEQ_LEN + 1))
    yield rule(across + down)
    for line, t in enumerate(range(FIRST_T, LAST_T + 1)):
        letter = TEXT[t] if 0 <= t < len(TEXT) else ""
        middle = top + line * CELL + CELL / 2
        yield label(left - 8, middle + 4, f"{letter} {t:>2}", anchor="end", soft=True)
        for s in (s for at, s in pairs if at == t):
            place = {"cx": f"{left + s * CELL + CELL / 2:g}", "cy": f"{middle:g}"}
            yield tag("circle", **place, r=6.5, class_="s1")
    bottom = top + rows * CELL
    for s in range(SEQ_LEN):
        yield label(left + s * CELL + CELL / 2, bottom + 16, s, anchor="middle", soft=True)
    middle = left + SEQ_LEN * CELL / 2
    yield label(middle, bottom + 33, "s, offset in the frame", anchor="middle", soft=True)


def panels(store: tl.Store) -> Markup:
    """All schedules, two beside each other."""
    parts: list[Markup] = []
    high = TOP + (LAST_T - FIRST_T + 1) * CELL + 56
    for number, (name, options) in enumerate(PANELS):
        place = number % 2 * ACROSS, number // 2 * high
        parts += panel(*place, name, splices(store, options))
    for line, said in enumerate(KEY):
        parts.append(label(ACROSS + LEFT, 2 * high + TOP + 60 + 18 * line, said, soft=True))
    return drawing(DRAWN, -(-len(PANELS) // 2) * high - 16, "the (t, s) of five schedules", parts)


def frames(store: tl.Store) -> Markup:
    """What some rows look like."""
    told: list[tuple[str, dict[str, Any], int]] = [
        ("", {}, 2),
        ("fewer than K tokens are left", {"content_start_mode": "slide_within"}, 27),
        ("side by side: edge='clip', fill='pack'", {"position_scheme": "relative"}, 0),
    ]
    parts: list[Markup] = []
    for number, (said, options, row) in enumerate(told):
        usual = {"position_scheme": "absolute", "pad_id": 0, **options}
        run = store.splice(SEQ_LEN, content_length=CONTENT, **usual)
        batch = run[row]
        found = run.run.layout.triples(0, np.array([row]))  # type: ignore[attr-defined]
        pairs = zip(found.t.tolist(), found.s.tolist(), strict=True)
        y = number * (FRAME + 20)
        for cell in range(SEQ_LEN):
            segment = int(batch.segment_ids[0, cell])
            size = {"x": LEFT + cell * CELL, "y": y, "width": CELL - 1, "height": FRAME}
            parts.append(tag("rect", **size, class_=COLOURS[segment]))
            letter = chr(int(batch.tokens[0, cell])) if segment else "·"
            middle = LEFT + cell * CELL + (CELL - 1) / 2
            parts.append(label(middle, y + 14, letter, anchor="middle"))
        right = LEFT + SEQ_LEN * CELL + 14
        where = "(t, s) = " + ", ".join(map(str, pairs))
        parts.append(label(right, y + (7 if said else 14), where))
        parts.append(label(right, y + 23, said, soft=True))
    return drawing(DRAWN, len(told) * (FRAME + 20), "three frames", parts)


def draw() -> str:
    """The picture."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")
        store = tl.build([{"text": TEXT}], f"{folder}/toy", tokenizer="bytes", progress=False)
        pieces = [
            Panel(panels(store)),
            Panel(frames(store), heading="Rows of these schedules"),
        ]
    return standalone(
        "Which (t, s) each schedule has",
        [f"frames of S = {SEQ_LEN} cells, splices of K = {CONTENT} tokens, a document {TEXT}"],
        pieces,
    )


if __name__ == "__main__":
    sys.stdout.write(draw())
