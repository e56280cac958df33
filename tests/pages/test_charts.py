"""Scales, maps and charts: values are where they belong."""

import base64
import re
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.errors import ConfigError
from tokenloom.page.axes import Scale, short, wide
from tokenloom.page.binned import binned_lines
from tokenloom.page.charts import Bar, Mark, areas, bars, both, heat, legend, lines, series
from tokenloom.page.histogram import columns
from tokenloom.page.png import LEVELS, STRENGTH, levels_of, png

finite = st.floats(-1e12, 1e12)


@given(finite, st.floats(1e-6, 1e12), st.integers(1, 12))
def test_ticks_are_round_inside_and_not_too_many(low, span, most):
    scale = Scale(low, low + span, 0, 100)
    ticks = scale.ticks(most)
    assert len(ticks) <= most + 1
    near = span * 1e-6 + abs(low) * 1e-14  # what a number can say
    assert all(low - near <= one <= low + span + near for one in ticks)
    assert ticks == sorted(ticks)


@given(finite, st.floats(1e-3, 1e9), finite)
def test_a_scale_keeps_order_and_stays_inside(low, span, value):
    scale = Scale(low, low + span, 10, 200)
    assert 10 <= scale(value) <= 200
    assert scale(low) == 10
    assert scale(value) <= scale(value + span / 3)


def test_a_scale_without_extent_is_a_point():
    scale = Scale(5, 5, 0, 100)
    assert scale(5) == 0
    assert scale.ticks(4) == [5]


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


def test_a_level_of_a_map_is_how_opaque_it_is():
    _, chunks = unpack(png(np.array([[0, 1, LEVELS]], np.uint8)))
    opaque = list(chunks[b"tRNS"])
    assert opaque == [0, *(round(2.55 * one) for one in STRENGTH)]
    assert opaque == sorted(set(opaque))
    assert opaque[-1] == 255
    assert {*chunks[b"PLTE"]} == {255}  # white lets all of the colour through


def test_a_map_lays_the_colour_of_the_page_through_its_picture():
    drawn = heat(np.eye(3), 340, "toy", x=(0, 3), below="t", rows=["a", "b", "c"])
    (name,) = re.findall(r'<mask id="([^"]+)"', drawn)
    assert f'class="heat" mask="url(#{name})"' in drawn
    assert "<image" in drawn.partition("<mask")[2].partition("</mask>")[0]
    other = heat(np.eye(3), 720, "toy", x=(0, 3), below="t", rows=["a", "b", "c"])
    assert name not in other  # both widths are on one page


def test_levels_start_at_what_is_not_nothing():
    assert levels_of(np.array([0, 1e-9, 1.0])).tolist() == [0, 1, LEVELS]
    assert levels_of(np.zeros((2, 2))).max() == 0
    with pytest.raises(ConfigError):
        png(np.zeros(3, np.uint8))


def test_bars_are_as_long_as_their_values():
    drawn = bars([Bar("a", 10, "10"), Bar("b", 5, "5"), Bar("c", 0, "0")], 720, "toy")
    a, b, c = (float(one) for one in re.findall(r'<rect[^>]* width="([^"]+)"', drawn))
    assert a == pytest.approx(2 * b, abs=0.1)
    assert c == 0
    assert 'role="img"' in drawn
    assert 'aria-label="toy"' in drawn


def test_areas_that_are_shares_fill_the_chart():
    drawn = areas([0, 1], {"a": [0.25, 0.5], "b": [0.75, 0.5]}, 720, "toy", below="step")
    first, second = re.findall(r'<path d="M([^"]+)z" class="area', drawn)
    assert first.startswith("48 177L708 122L708 232L48 232")
    assert second.startswith("48 12L708 12")


def test_lines_and_maps_take_marks_rows_and_axes():
    drawn = lines({"a": [(0, 0), (5, 2)]}, 340, "toy", below="step", marks=[Mark(2, "edit <1>")])
    assert "edit &lt;1&gt;" in drawn
    grid = np.eye(3)
    assert heat(grid, 340, "toy", x=(0, 3), below="t", rows=["a", "b", "c"]).count("<image") == 1
    assert "frame offset" in heat(
        grid, 720, "toy", x=(0, 3), y=(0, 9), below="t", beside="frame offset s"
    )


def test_both_widths_are_drawn_and_eight_things_have_a_colour_of_their_own():
    drawn = both(lambda width: legend(["a"]))
    assert re.findall(r'class="(wide|narrow)"', drawn) == ["wide", "narrow"]
    assert len({series(n) for n in range(8)}) == 8
    assert series(8) == series(900) == "rest"


def test_numbers_beside_ticks_are_short():
    assert [short(x) for x in (0, 0.001, 999, 1e6, 1.5e9, -2e4)] == [
        *("0", "0.001", "999", "1M", "1.5G", "-20k")
    ]


# -- axes and marks --------------------------------------------------------------------------------


def texts(drawn):
    """Words of a drawing with the places of their baselines: [(x, y, words)]."""
    found = re.findall(r'<text x="([\d.-]+)" y="([\d.-]+)"[^>]*>([^<]*)<', drawn)
    return [(float(x), float(y), words.replace("\xa0", " ")) for x, y, words in found]


def words_of(drawn):
    return [words for *_, words in texts(drawn)]


@pytest.mark.parametrize("last", [1, 2, 3])
def test_what_is_counted_has_no_half_on_its_axis(last):
    x = list(range(last + 1))
    half = [1 / 2] * len(x)
    drawn = areas(x, {"a": half, "b": half}, 720, "toy", below="step", beside="share of tokens")
    below = [words for _, y, words in texts(drawn) if words != "step" and y > 258]
    assert below == [str(one) for one in x]
    assert "share of tokens" in words_of(drawn)
    fine = lines({"a": [(0.25, 1), (0.75, 2)]}, 720, "toy", below="share")
    assert "0.5" in words_of(fine)  # the control: these are not counted


def test_several_marks_have_numbers_above_the_chart_and_their_words_below_it():
    marks = [Mark(95, "removes maths"), Mark(10, "stage 2"), Mark(90, "weighs books")]
    x, shares = [0, 100], {"a": [1.0, 1.0]}
    for width in (720, 340):
        drawn = areas(x, shares, width, "toy", below="step", marks=marks)
        height = float(re.search(r'viewBox="0 0 \d+ ([\d.]+)"', drawn)[1])
        bottom = max(y for _, y, words in texts(drawn) if words == "step")
        placed = {words: (at, y) for at, y, words in texts(drawn)}
        for one in marks:
            assert bottom < placed[one.words][1] < height
        assert [words for _, _, words in texts(drawn) if words in {m.words for m in marks}] == [
            *("stage 2", "weighs books", "removes maths")
        ]
        circles = [
            (float(a), float(b)) for a, b in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', drawn)
        ]
        for n, (a, b) in enumerate(circles):
            assert all((a - c) ** 2 + (b - d) ** 2 >= 17**2 for c, d in circles[n + 1 :])


def test_one_mark_has_its_words_above_the_chart_and_inside_the_drawing():
    for at in (0, 1, 99, 100):
        for width in (340, 720):
            drawn = areas(
                [0, 100], {"a": [1, 1]}, width, "toy", below="step", marks=[Mark(at, "an edit")]
            )
            (found,) = [(x, y) for x, y, words in texts(drawn) if words == "an edit"]
            top = min(y for _, y, words in texts(drawn) if words == "100 %")
            assert found[1] < top - 4 - 10  # no letter of it touches the first number
            assert found[0] >= 0
            assert found[0] + wide("an edit") <= width


def test_values_that_differ_by_tens_have_a_scale_of_tens():
    names, few = ["0", "1", "2"], {"a": [1.0, 2.0, 3.0]}
    many = {"a": [1.3, 103.0, 12.0]}
    drawn = binned_lines(names, many, 720, "toy", below="place", beside="perplexity", tens=True)
    heights = [float(one) for one in re.findall(r'cy="([\d.]+)"', drawn)]
    assert heights[0] - heights[2] == pytest.approx(
        (heights[0] - heights[1]) * np.log(12 / 1.3) / np.log(103 / 1.3), abs=0.5
    )
    assert "perplexity, a scale of tens" in words_of(drawn)
    even = binned_lines(names, few, 720, "toy", below="place", beside="perplexity", tens=True)
    assert "perplexity" in words_of(even)


def test_columns_of_equal_bins_have_round_numbers_below_them():
    names, values = [str(57 * n) for n in range(20)], {"splices": [1] * 20}
    drawn = columns(names, values, 340, "toy", below="start", beside="splices", x=(0, 57 * 20))
    assert [words for words in words_of(drawn) if words in ("200", "400", "570")] == ["200", "400"]
    named = columns(names, values, 340, "toy", below="start")
    assert "285" in words_of(named)  # every fifth, as without ends
    assert 'height="276"' in named
    assert 'height="276"' in lines({"a": [(0, 1), (1, 2)]}, 340, "toy", below="t")  # side by side


def test_points_at_one_place_make_no_spike():
    drawn = areas([0, 1, 1, 1, 1, 2], {"a": [0.5, 0.5, 0, 1, 0.5, 0.5]}, 720, "toy", below="step")
    (path,) = re.findall(r'd="M([^"]+)z" class="area', drawn)
    assert len(set(re.findall(r" ([\d.]+)", path))) == 2  # the height of a half, and the ground


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
