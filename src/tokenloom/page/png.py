"""A small picture of numbered colours as a PNG: maps that would be thousands of SVG elements.

One idea: a map has a few levels, so it is a palette picture of one byte for each cell, compressed
by zlib. Level 0 is transparent: the page shows through, light or dark.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import wrong_type

__all__ = ["LEVELS", "PALETTE", "levels_of", "png", "png_url"]

# cividis from dark blue to yellow: alike for people who see colours differently, and in grey
PALETTE = (
    *((0, 34, 78), (27, 53, 110), (62, 75, 108), (88, 96, 110), (112, 117, 119)),
    *((138, 139, 121), (166, 162, 114), (197, 187, 100), (229, 213, 79), (254, 232, 56)),
)
LEVELS = len(PALETTE)  # and 0, which is nothing


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
    """A PNG of levels [height, width].

    >>> png(np.array([[0, 1], [2, 10]], np.uint8))[1:4]
    b'PNG'
    """
    if levels.ndim != 2 or levels.dtype != np.uint8:
        raise wrong_type("levels", levels, "uint8 levels of two axes")
    height, width = levels.shape
    colours = b"\0\0\0" + bytes(one for colour in PALETTE for one in colour)
    lines = np.zeros((height, width + 1), np.uint8)  # [height, filter byte and pixels]
    lines[:, 1:] = levels
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", colours),
            _chunk(b"tRNS", b"\0" + b"\xff" * LEVELS),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_url(levels: NDArray[np.uint8]) -> str:
    """The picture as a data URL."""
    return f"data:image/png;base64,{base64.b64encode(png(levels)).decode()}"
