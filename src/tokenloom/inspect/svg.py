"""Pieces of pictures: SVG elements as strings, in the colours and letters of all our pictures.

One idea: a picture is a list of strings, made by functions that know nothing of what is drawn. A
file needs no network, no script and no font of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

__all__ = ["GREY", "INK", "box", "drawing", "filled", "line", "text", "ticks"]

INK, GREY = "#1c1c1c", "#666666"


def drawing(
    *, title: str, caption: Sequence[str], size: tuple[int, int], left: int, parts: Iterable[str]
) -> str:
    """A picture with its title, and one or two lines below it.

    Args:
        title: what it shows.
        caption: lines below the title.
        size: width and height in pixels.
        left: where title and caption start, in pixels.
        parts: what is drawn.
    """
    width, height = size
    font = 'font-family="DejaVu Sans, Verdana, sans-serif" font-size="12"'
    place = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {place} {font} role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape('; '.join(caption))}</desc>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="28" font-size="15" fill="{INK}">{escape(title)}</text>',
        *(text(left, 50 + 17 * i, one, color=GREY) for i, one in enumerate(caption)),
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, said: str, *, anchor: str = "start", color: str = INK) -> str:
    """Words at a point; `anchor` is start, middle or end."""
    place = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
    return f'<text {place} fill="{color}">{escape(said)}</text>'


def line(path: str, color: str = INK) -> str:
    """The line along a path."""
    return f'<path d="{path}" fill="none" stroke="{color}"/>'


def box(x: float, y: float, width: float, height: float) -> str:
    """The path of a rectangle.

    >>> box(1, 2, 3, 4)
    'M1 2h3v4h-3z'
    """
    return f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z"


def filled(path: str, color: str, *, crisp: bool = True) -> str:
    """The inside of a path."""
    sharp = ' shape-rendering="crispEdges"' if crisp else ""
    return f'<path d="{path}" fill="{color}"{sharp}/>'


def ticks(low: int, high: int, most: int) -> list[int]:
    """Round numbers from low to high, at most `most` of them.

    >>> ticks(0, 7, 5), ticks(-30, 1000, 6)
    ([0, 2, 4, 6], [0, 200, 400, 600, 800, 1000])
    """
    step, factors = 1, (2, 2.5, 2)  # 1 2 5 10 20 50
    turn = 0
    while high // step - -(-low // step) + 1 > most:
        step = int(step * factors[turn % 3])
        turn += 1
    return list(range(-(-low // step) * step, high + 1, step))
