"""Where in which document a model remembers: a picture with a row for each document.

One idea: P(z) over the tokens of a document is a line of colours, and documents below each other
show at a glance what is remembered: whole documents, their starts, or single places. The file is
SVG without anything from elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import integer
from tokenloom.errors import plural
from tokenloom.evaluate.windows.extraction import Extraction
from tokenloom.inspect.svg import GREY, box, drawing, filled, text, ticks

__all__ = ["heat_map", "pieces_of"]

Float64 = NDArray[np.float64]

LEFT, TOP, WIDE, HIGH = 150, 84, 600, 14  # pixels; HIGH is of a document

# from P(z) = 10^-LOWEST and less to 1, in nine steps
COLOURS = (
    *("#fff7ec", "#fee8c8", "#fdd49e", "#fdbb84", "#fc8d59"),
    *("#ef6548", "#d7301f", "#b30000", "#7f0000"),
)
LOWEST = 16
NO_WINDOW = "#ececec"


def heat_map(
    found: Extraction,
    *,
    documents: Sequence[int] | None = None,
    names: Mapping[int, str] | None = None,
    columns: int = 120,
    most: int = 40,
    over: str = "suffix",
) -> str:
    """A picture of P(z) over the tokens of documents.

    Args:
        found: what `tokenloom.evaluate.pz` gave.
        documents: which ones, from top to bottom; None: those with the largest P(z).
        names: what to write beside a document instead of its number.
        columns: pieces of the longest document; a piece has the colour of its largest P(z).
        most: documents that are drawn if `documents` is None; the caption says how many there are.
        over: as for `Extraction.heat`.

    >>> import tempfile, tokenloom as tl
    >>> from tokenloom.evaluate import pz
    >>> uniform = lambda tokens, segment_ids, position_ids: np.zeros((*tokens.shape, 256))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     texts = [{"text": "to be or not to be"}, {"text": "that is the question"}]
    ...     store = tl.build(texts, folder + "/toy", tokenizer="bytes")
    ...     picture = heat_map(pz(uniform, store, prefix=4, suffix=2, stride=4))
    >>> picture.startswith("<svg"), "document 1" in picture
    (True, True)
    """
    integer("columns", columns, 1)
    integer("most", most, 1)
    chosen = _chosen(found, most) if documents is None else list(documents)
    longest = max((found.lengths[one] for one in chosen), default=1)
    piece = -(-longest // columns)
    width = WIDE / -(-longest // piece)
    parts = []
    for row, document in enumerate(chosen):
        y = TOP + row * HIGH
        label = (names or {}).get(document, f"document {document}")
        parts.append(text(LEFT - 8, y + HIGH - 3, label[:22], anchor="end"))
        parts += _line(pieces_of(found.heat(document, over=over), piece), y, width)
    bottom = TOP + len(chosen) * HIGH
    for token in ticks(0, longest, 8):
        x = LEFT + WIDE * token / (longest or 1)
        parts.append(text(x, bottom + 18, f"{token:,}", anchor="middle", color=GREY))
    parts.append(text(LEFT + WIDE, bottom + 36, "token of the document", anchor="end", color=GREY))
    parts += _legend(bottom + 50)
    return drawing(
        title="P(z) over the tokens of documents",
        caption=_caption(found, len(chosen), piece, over),
        size=(LEFT + WIDE + 40, bottom + 96),
        left=LEFT,
        parts=parts,
    )


def _chosen(found: Extraction, most: int) -> list[int]:
    """The documents with the largest P(z), in order of their numbers."""
    figures = {n: one for n, one in found.by_document().items() if one["windows"]}
    best = sorted(figures, key=lambda n: (-figures[n]["max_pz"], -figures[n]["mean_pz"], n))
    return sorted(best[:most])


def pieces_of(heat: Float64, piece: int) -> Float64:
    """The largest value of every few tokens; NaN where there is none.

    >>> pieces_of(np.array([np.nan, -3.0, -1.0, np.nan, np.nan]), 2).tolist()
    [-3.0, -1.0, nan]
    """
    filled_up = np.append(heat, np.full(-len(heat) % piece, np.nan)).reshape(-1, piece)
    return np.asarray(np.fmax.reduce(filled_up, axis=1, initial=np.nan))


def _line(values: Float64, y: float, width: float) -> list[str]:
    """The pieces of a document, those of one colour together."""
    paths: dict[str, list[str]] = {}
    for place, value in enumerate(values.tolist()):
        paths.setdefault(_colour(value), []).append(
            box(round(LEFT + place * width, 2), y, round(width, 2), HIGH - 2)
        )
    return [filled("".join(every), colour) for colour, every in paths.items()]


def _colour(log_pz: float) -> str:
    """The colour of a natural logarithm of P(z).

    >>> _colour(0.0), _colour(-math.inf), _colour(math.nan), _colour(math.log(1e-3))
    ('#7f0000', '#fff7ec', '#ececec', '#d7301f')
    """
    if math.isnan(log_pz):
        return NO_WINDOW
    power = max(log_pz / math.log(10), -float(LOWEST))
    step = LOWEST / (len(COLOURS) - 1)
    return COLOURS[min(len(COLOURS) - 1, max(0, round(len(COLOURS) - 1 + power / step)))]


def _legend(y: float) -> list[str]:
    parts, step = [], LOWEST / (len(COLOURS) - 1)
    for number, colour in enumerate(COLOURS):
        x = LEFT + 52 * number
        parts.append(filled(box(x, y, 48, 12), colour))
        power = step * (number - len(COLOURS) + 1)
        said = "P(z) 1" if not power else f"10^{power:g}"
        parts.append(text(x + 24, y + 27, said, anchor="middle", color=GREY))
    x = LEFT + 52 * len(COLOURS) + 12
    parts.append(filled(box(x, y, 48, 12), NO_WINDOW))
    parts.append(text(x + 24, y + 27, "no window", anchor="middle", color=GREY))
    return parts


def _caption(found: Extraction, drawn: int, piece: int, over: str) -> list[str]:
    asked, every = found.settings, len(found.lengths)
    rest = "" if drawn == every else f"; {drawn} of {every:,} documents"
    windows = (
        f"{plural(len(found), 'window')}: prefix {asked['prefix']}, suffix {asked['suffix']}, one "
        f"every {plural(asked['stride'], 'token')}; {asked['model'].partition(',')[0]}"
    )
    reduced = (
        f"largest P(z) of the windows whose {over} covers a token, in pieces of "
        f"{plural(piece, 'token')}{rest}"
    )
    return [windows[:110], reduced]
