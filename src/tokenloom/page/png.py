"""A small picture of levels as a PNG: maps that would be thousands of SVG elements.

A map has a few levels, so it is a palette picture of one byte for each cell, compressed
by zlib. A level is how much of a colour is laid on, not a colour: the page lays its own, dark ink
on light paper and light ink on dark paper, so the most always stands out most, and nothing (level
0, which is transparent) is the ground, light or dark. A single hue is read in grey, and by people
who see colours differently.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import wrong_type

# how much of the colour each level lays on, in per cent; page.css has the same for legends
STRENGTH = (16, 25, 34, 43, 52, 62, 72, 82, 91, 100)
LEVELS = len(STRENGTH)  # and 0, which is nothing


def levels_of(values: NDArray[np.float64], top: float | None = None) -> NDArray[np.uint8]:
    """The level of each value: 0 for nothing, 1 for the least, LEVELS for the most.

    >>> levels_of(np.array([[0.0, 0.1, 5.0, 10.0]])).tolist()
    [[0, 1, 5, 10]]
    """
    most = float(values.max(initial=0.0)) if top is None else top
    if most <= 0:
        return np.zeros(values.shape, np.uint8)
    shares = np.ceil(np.clip(values / most, 0, 1) * LEVELS - 1e-9)
    return np.asarray(shares, np.uint8)


def png(levels: NDArray[np.uint8]) -> bytes:
    """A PNG of levels [height, width]: white, as opaque as each level is strong.

    >>> png(np.array([[0, 1], [2, 10]], np.uint8))[1:4]
    b'PNG'
    """
    if levels.ndim != 2 or levels.dtype != np.uint8:
        raise wrong_type("levels", levels, "uint8 levels of two axes")
    height, width = levels.shape
    opaque = bytes([0, *(round(2.55 * one) for one in STRENGTH)])
    lines = np.zeros((height, width + 1), np.uint8)  # [height, filter byte and pixels]
    lines[:, 1:] = levels
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", b"\xff\xff\xff" * (LEVELS + 1)),
            _chunk(b"tRNS", opaque),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_url(levels: NDArray[np.uint8], size: tuple[int, int] | None = None) -> str:
    """The picture as a data URL.

    Args:
        levels: of each cell [height, width].
        size: pixels of height and width that it has at least; None: one for each cell. A browser
            keeps cells sharp at any size, but viewers that smooth what they enlarge need this.
    """
    high, wide = 1, 1
    if size is not None:
        high, wide = (-(-want // have) for want, have in zip(size, levels.shape, strict=True))
    large = levels.repeat(high, axis=0).repeat(wide, axis=1)
    return f"data:image/png;base64,{base64.b64encode(png(large)).decode()}"
