"""Where in which document a model remembers: a picture with a row for each document.

One idea: P(z) over the tokens of a document is a line of colours, and documents below each other
show at a glance what is remembered: whole documents, their starts, or single places. `pz_map` is
the drawing, which a report has, too; `heat_map` puts it into a file that needs nothing from
elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import integer
from tokenloom.errors import plural
from tokenloom.evaluate.extraction import Extraction
from tokenloom.page.charts import heat
from tokenloom.page.markup import Markup
from tokenloom.page.standalone import DRAWN, Panel, standalone

Float64 = NDArray[np.float64]

LOWEST = 16  # of P(z) of 10^-LOWEST and less nobody tells differences

FEW = 0.05  # of the pieces of a map: the share that may have less than the first colour

RAISED = str.maketrans("-.0123456789", "⁻·⁰¹²³⁴⁵⁶⁷⁸⁹")


def heat_map(
    found: Extraction,
    *,
    documents: Sequence[int] | None = None,
    names: Mapping[int, str] | None = None,
    columns: int = 120,
    most: int = 40,
) -> str:
    """A picture of P(z) over the tokens of documents.

    Args:
        found: what `tokenloom.evaluate.pz` gave.
        documents: which ones, from top to bottom; None: those with the largest P(z).
        names: what to write beside a document instead of its number.
        columns: pieces of the longest document; a piece has the colour of its largest P(z).
        most: documents that are drawn if `documents` is None; the caption says how many there are.

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
    chosen = most_remembered(found, most) if documents is None else list(documents)
    drawn = pz_map(found, chosen, DRAWN, columns=columns, names=names, sharp=True)
    return standalone(
        "P(z) over the tokens of documents",
        _caption(found, chosen, columns),
        [Panel(drawn, ramp=pz_colours(found, chosen, columns=columns))],
    )


def pz_map(
    found: Extraction,
    chosen: Sequence[int],
    width: int,
    *,
    columns: int,
    names: Mapping[int, str] | None = None,
    sharp: bool = False,
) -> Markup:
    """The drawing: a line of colours for each document.

    Args:
        found: what `tokenloom.evaluate.pz` gave.
        chosen: documents, from top to bottom.
        width: pixels of the drawing.
        columns: as for `heat_map`.
        names: as for `heat_map`.
        sharp: for a file.
    """
    every = _powers(found, chosen, columns)
    grid = np.zeros((max(1, len(chosen)), max(map(len, every), default=1)))
    lowest = _lowest(every)
    for row, powers in enumerate(every):
        levels = np.clip(lowest + powers, 0.05, lowest)  # what is there is never nothing
        grid[row, : len(powers)] = np.where(np.isnan(powers), 0.0, levels)
    return heat(
        grid,
        width,
        f"largest P(z) over the tokens of {plural(len(chosen), 'document')}",
        x=(0, grid.shape[1] * _piece(found, chosen, columns)),
        below="token of the document",
        rows=[(names or {}).get(one, f"document {one}") for one in chosen],
        top=lowest,
        sharp=sharp,
    )


def pz_colours(found: Extraction, chosen: Sequence[int], *, columns: int) -> tuple[str, str]:
    """What the first and the last colour of a map stand for; as for `pz_map`."""
    lowest = _lowest(_powers(found, chosen, columns))
    return f"P(z): {power(-lowest)} and less", "1; empty: no window"


def _powers(found: Extraction, chosen: Sequence[int], columns: int) -> list[Float64]:
    """The powers of ten of each piece of each document; NaN where there is no window."""
    piece = _piece(found, chosen, columns)
    return [pieces_of(found.heat(one), piece) / math.log(10) for one in chosen]


def _lowest(every: Sequence[Float64]) -> int:
    """The power of ten of the first colour: almost all pieces have more, so they differ.

    >>> _lowest([np.array([-3.2, np.nan, -0.1])]), _lowest([]), _lowest([np.array([-99.0])])
    (4, 1, 16)
    """
    known = np.concatenate([one[~np.isnan(one)] for one in every] or [np.zeros(0)])
    if not len(known):
        return 1
    least = float(np.quantile(np.maximum(known, -LOWEST), FEW, method="lower"))
    return min(LOWEST, max(1, math.ceil(-least)))


def most_remembered(found: Extraction, most: int) -> list[int]:
    """The documents with the largest P(z), in order of their numbers."""
    numbers, place = np.unique(found.windows.document, return_inverse=True)
    values = np.exp(found.windows.log_pz)
    means = np.bincount(place, values) / np.bincount(place)
    largest = np.zeros(len(numbers))
    np.maximum.at(largest, place, values)
    best = np.lexsort((numbers, -means, -largest))[:most]
    chosen: list[int] = sorted(numbers[best].tolist())
    return chosen


def _piece(found: Extraction, chosen: Sequence[int], columns: int) -> int:
    """Tokens that have one colour."""
    return max(1, -(-max((found.lengths[one] for one in chosen), default=1) // columns))


def pieces_of(heat: Float64, piece: int) -> Float64:
    """The largest value of every few tokens; NaN where there is none.

    >>> pieces_of(np.array([np.nan, -3.0, -1.0, np.nan, np.nan]), 2).tolist()
    [-3.0, -1.0, nan]
    """
    filled_up = np.append(heat, np.full(-len(heat) % piece, np.nan)).reshape(-1, piece)
    return np.asarray(np.fmax.reduce(filled_up, axis=1, initial=np.nan))


def power(exponent: float) -> str:
    """A power of ten.

    >>> power(0), power(-12)
    ('1', '10⁻¹²')
    """
    return f"10{f'{exponent:g}'.translate(RAISED)}" if exponent else "1"


def _caption(found: Extraction, chosen: Sequence[int], columns: int) -> list[str]:
    asked, every, drawn = found.settings, len(found.lengths), len(chosen)
    rest = [] if drawn == every else [f"{drawn} of {every:,} documents"]
    windows = (
        f"{plural(len(found), 'window')}: prefix {asked['prefix']}, suffix {asked['suffix']}, one "
        f"every {plural(asked['stride'], 'token')}; {asked['model'].partition(',')[0]}"
    )
    reduced = (
        f"largest P(z) of windows whose suffix covers a token; pieces of "
        f"{plural(_piece(found, chosen, columns), 'token')}"
    )
    return [windows[:110], reduced, *rest]
