"""Drawings of a report, read back: maps as their levels, marks and lines as pixels."""

from __future__ import annotations

import base64
import re
import struct
import zlib

import numpy as np


def maps_in(drawing: str) -> list[np.ndarray]:
    """Levels [height, width] of every map, in order; those of both widths are there."""
    found = re.findall(r'href="data:image/png;base64,([^"]+)"', str(drawing))
    return [_levels(base64.b64decode(one)) for one in found]


def _levels(data: bytes) -> np.ndarray:
    place, parts = 8, {}
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        parts[data[place + 4 : place + 8]] = data[place + 8 : place + 8 + size]
        place += 12 + size
    width, height = struct.unpack(">II", parts[b"IHDR"][:8])
    lines = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8)
    return lines.reshape(height, width + 1)[:, 1:]


def paths_in(drawing: str, kind: str) -> list[list[tuple[float, float]]]:
    """Points of every line of a class, such as "line s1" or "mark"."""
    found = re.findall(rf'<path d="([^"]+)" class="{kind}"', str(drawing))
    return [
        [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", one)]
        for one in found
    ]


def steps_in(drawing: str, kind: str) -> list[float]:
    """Heights of a line of steps, from left to right."""
    (found,) = re.findall(rf'<path d="([^"]+)" class="{kind}"', str(drawing))
    first = re.match(r"M-?[\d.]+ (-?[\d.]+)", found)
    assert first is not None
    later = re.findall(r"V(-?[\d.]+)", found)[:-1]  # the last step has the end of the line
    return [float(first[1]), *map(float, later)]


def columns_in(drawing: str) -> list[tuple[float, float]]:
    """(x, height) of every column of a histogram."""
    found = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="[\d.]+" height="([\d.]+)"', drawing)
    return [(float(x), float(height)) for x, height in found]


def rises_with(levels, values) -> bool:
    """Whether levels are 0 where values are, and never fall where values grow."""
    levels, values = np.asarray(levels, float).ravel(), np.asarray(values, float).ravel()
    order = np.argsort(values, kind="stable")
    return bool(((levels > 0) == (values > 0)).all() and (np.diff(levels[order]) >= 0).all())
