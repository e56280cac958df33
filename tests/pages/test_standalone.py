"""Pictures in files of their own: every colour is inside, plain, and what is text stays text."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.evaluate import curves
from tokenloom.inspect.length_picture import length_picture
from tokenloom.page.axes import drawing, label
from tokenloom.page.charts import Bar, Mark, areas, bars, heat, lines
from tokenloom.page.histogram import columns
from tokenloom.page.standalone import DRAWN, Panel, standalone
from tokenloom.report.figures.boundaries import Block, attention_map
from tokenloom.store.length_counts import LengthCounts

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</style><script>alert(1)</script>&"\' class="evil" \x00\ufffe\ud800 {fill:red}'

CHARTS = {
    "bars": bars([Bar("a", 1, "1"), Bar("b", 2, "2", "rest")], DRAWN, "toy"),
    "lines": lines({"a": [(0, 1), (5, -2)]}, DRAWN, "toy", below="step", marks=[Mark(2, "m")]),
    "areas": areas([0, 1], {"a": [0.5, 0.5], "b": [0.5, 0.5]}, DRAWN, "toy", below="step"),
    "heat": heat(np.eye(3), DRAWN, "toy", x=(0, 3), below="t", rows=["a", "b", "c"]),
    "columns": columns(["1", "2"], {"a": [3, 4]}, DRAWN, "toy", below="tokens"),
    "triangles": attention_map([Block(0, 2, "s1")], 4, "toy", all_pairs=True),
}


def style_of(picture):
    return ET.fromstring(picture).find(f"{SVG}style").text


def classes_of(picture):
    return {name for one in ET.fromstring(picture).iter() for name in one.get("class", "").split()}


def unpainted(picture):
    """Classes without a rule inside, and what is not plain in the rules."""
    style = style_of(picture)
    painted = set(re.findall(r"\.([a-z][\w-]*)", re.sub(r"\{[^}]*\}", "{}", style)))
    return sorted(classes_of(picture) - painted) + re.findall(r"var\(|light-dark\(|-mix\(", style)


@pytest.mark.parametrize("name", CHARTS)
def test_every_class_of_a_picture_has_a_plain_rule_inside(name):
    picture = standalone(name, ["a caption"], [Panel(CHARTS[name], "head", [("a", "s1")])])
    assert unpainted(picture) == []
    assert {"chart", "paper", "title", "soft", "heading"} <= classes_of(picture)


def test_control_a_class_without_a_rule_and_a_variable_are_found():
    picture = standalone("toy", [], [Panel(CHARTS["bars"])])
    assert unpainted(picture.replace('class="s1"', 'class="s9"')) == ["s9"]
    assert unpainted(picture.replace("fill: #0072b2", "fill: var(--s1)")) == ["var("]


def check_hostile(picture, said):
    """A well-formed file with these words as text, and no element or attribute made of them."""
    root = ET.fromstring(picture)
    names = {one.tag.removeprefix(SVG) for one in root.iter()}
    assert names <= {
        *("svg", "title", "desc", "style", "g", "rect", "text", "path", "circle", "image"),
        "mask",
    }
    assert "evil" not in classes_of(picture)
    assert not any(name.startswith("on") for one in root.iter() for name in one.attrib)
    assert len(list(root.iter(f"{SVG}style"))) == 1
    assert "red" not in style_of(picture)
    assert said in "".join(root.itertext())


def test_hostile_text_stays_text():
    chart = bars([Bar(HOSTILE, 1, HOSTILE)], DRAWN, HOSTILE)
    drawn = standalone(HOSTILE, [HOSTILE], [Panel(chart, HOSTILE, [(HOSTILE, "s1")])])
    check_hostile(drawn, "<script>alert(1)</script>")
    check_hostile(curves(HOSTILE, {HOSTILE: [(0, 1.0)]}, across=HOSTILE, caption=HOSTILE), "script")
    counts = LengthCounts(np.array([3, 9]), np.array([2, 1]))
    check_hostile(length_picture(HOSTILE, counts), "script")


@given(st.text(max_size=300))
def test_any_words_make_a_well_formed_picture_that_holds_them(said):
    drawn = drawing(20, 20, said, [label(0, 12, said)])
    root = ET.fromstring(standalone(said, [said], [Panel(drawn, said, [(said, "s1")])]))
    height = float(root.get("viewBox").split()[3])
    assert all(float(one.get("y")) <= height for one in root.iter(f"{SVG}text"))
