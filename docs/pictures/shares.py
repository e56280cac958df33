"""The picture of shares in docs/mixing.md: who has consumed how much, from a real run.

::

    python docs/pictures/shares.py > docs/pictures/shares.svg

Three sources by tokens; weights change at example 300, a fourth joins at 600. The same bytes every
time: what is drawn is what `tokenloom.mix` gives.
"""

from __future__ import annotations

import sys
import tempfile
from xml.sax.saxutils import escape

import numpy as np

import tokenloom as tl

EXAMPLES, RECENT = 900, 60  # drawn, and averaged over
LEFT, TOP, WIDTH, HEIGHT = 60, 46, 720, 240  # pixels
COLORS = {"wiki": "#2f6db5", "code": "#c46a1b", "books": "#3d8a4b", "news": "#8a4b9c"}
INK, PALE, GRID = "#1c1c1c", "#767676", "#e4e4e4"


def mixed(folder: str) -> tl.Dataset:
    """The run that is drawn."""
    stores = {}
    for number, name in enumerate(COLORS):
        texts = [{"text": "abcdefgh" * (5 + (i * (number + 3)) % 23)} for i in range(200)]
        path = f"{folder}/{name}"
        stores[name] = tl.build(texts, path, tokenizer="bytes", progress=False)
    packed = {name: store.pack(512).shuffle().epochs(None) for name, store in stores.items()}
    first = {name: packed[name] for name in ("wiki", "code", "books")}
    run = tl.mix(first, weights={"wiki": 3, "code": 2, "books": 1}).seed(7)
    run = run.edit(at=300, weights={"code": 4})
    return run.edit(at=600, add={"news": packed["news"]}, weights={"news": 2})


def shares(run: tl.Dataset) -> dict[str, np.ndarray]:
    """Tokens of each source over the last examples, as a share of all."""
    batch = run.batch(np.arange(EXAMPLES))
    tokens = (batch.segment_ids > 0).sum(axis=1)
    found = {}
    for name in COLORS:
        own = np.cumsum(np.where([one == name for one in batch.source], tokens, 0))
        every = np.cumsum(tokens)
        found[name] = np.array(
            [
                (own[i] - own[max(0, i - RECENT)]) / (every[i] - every[max(0, i - RECENT)])
                for i in range(1, EXAMPLES)
            ]
        )
    return found


def text(x: float, y: float, said: str, *, anchor: str = "middle", color: str = INK) -> str:
    """One word."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{color}">{escape(said)}</text>'


def draw() -> str:
    """The picture."""
    with tempfile.TemporaryDirectory() as folder:
        lines = shares(mixed(folder))
    width, height = LEFT + WIDTH + 90, TOP + HEIGHT + 50
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    font = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font} role="img">',
        "<title>Shares of tokens over a run with two edits</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        text(LEFT, 20, f"share of the tokens of the last {RECENT} examples", anchor="start"),
    ]
    top = 0.7
    for share in (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        y = TOP + HEIGHT * (1 - share / top)
        parts.append(f'<path d="M{LEFT} {y:g}h{WIDTH}" stroke="{GRID}"/>')
        parts.append(text(LEFT - 8, y + 4, f"{share:.0%}", anchor="end", color=PALE))
    for at in (0, 300, 600, 900):
        x = LEFT + WIDTH * at / EXAMPLES
        parts.append(text(x, TOP + HEIGHT + 18, str(at), color=PALE))
        if at in (300, 600):
            dashes = f'stroke="{PALE}" stroke-dasharray="4 3"'
            parts.append(f'<path d="M{x:g} {TOP}v{HEIGHT}" {dashes}/>')
    parts.append(text(LEFT + WIDTH / 2, TOP + HEIGHT + 38, "example", color=PALE))
    parts.append(text(LEFT + WIDTH / 3, TOP - 8, "edit: weight of code 2 → 4", color=PALE))
    parts.append(text(LEFT + WIDTH * 2 / 3, TOP - 8, "edit: news joins", color=PALE))
    for name, line in lines.items():
        begin = 600 if name == "news" else RECENT  # before, few examples are averaged
        points = [
            f"{LEFT + WIDTH * (i + 1) / EXAMPLES:.1f},{TOP + HEIGHT * (1 - line[i] / top):.1f}"
            for i in range(begin, EXAMPLES - 1, 3)
        ]
        style = f'fill="none" stroke="{COLORS[name]}" stroke-width="2"'
        parts.append(f'<polyline points="{" ".join(points)}" {style}/>')
        y = TOP + HEIGHT * (1 - line[-1] / top) + 4
        parts.append(text(LEFT + WIDTH + 8, y, name, anchor="start", color=COLORS[name]))
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(draw())
