"""Maps and charts: values are where they belong."""

import base64
import re
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.page.charts import Bar, bars, heat
from tokenloom.page.png import LEVELS, png


def unpack(data):
    """Palette levels [height, width] of a PNG, read independently of its writer."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    place, found = 8, {}
    while place < len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        assert struct.unpack(">I", data[place + 8 + size :][:4])[0] == zlib.crc32(kind + body)
        found[kind] = body
        place += 12 + size
    width, height = struct.unpack(">II", found[b"IHDR"][:8])
    lines = np.frombuffer(zlib.decompress(found[b"IDAT"]), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:], found


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_a_map_reads_back_as_it_was_written(height, width, seed):
    levels = np.random.default_rng(seed).integers(0, LEVELS + 1, (height, width)).astype(np.uint8)
    read, chunks = unpack(png(levels))
    assert (read == levels).all()
    assert len(chunks[b"PLTE"]) == 3 * (LEVELS + 1)
    assert chunks[b"tRNS"][0] == 0  # nothing is transparent but nothing


def test_bars_are_as_long_as_their_values():
    drawn = bars([Bar("a", 10, "10"), Bar("b", 5, "5"), Bar("c", 0, "0")], 720, "toy")
    a, b, c = (float(one) for one in re.findall(r'<rect[^>]* width="([^"]+)"', drawn))
    assert a == pytest.approx(2 * b, abs=0.1)
    assert c == 0
    assert 'role="img"' in drawn
    assert 'aria-label="toy"' in drawn


def test_a_map_for_a_file_has_a_pixel_for_each_that_is_drawn_and_the_same_cells():
    cells = np.random.default_rng(3).random((5, 7))
    small, large = (
        unpack(base64.b64decode(re.search(r'base64,([^"]+)"', drawn)[1]))[0]
        for drawn in (
            heat(cells, 488, "toy", x=(0, 7), below="t", rows="abcde", sharp=sharp)
            for sharp in (False, True)
        )
    )
    assert small.shape == (5, 7)
    assert large.shape[0] >= 2 * 70
    assert large.shape[1] >= 2 * 400
    high, wide = (a // b for a, b in zip(large.shape, small.shape, strict=True))
    assert (large == small.repeat(high, axis=0).repeat(wide, axis=1)).all()
