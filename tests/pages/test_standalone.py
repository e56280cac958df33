"""Pictures in files of their own: every colour is inside, plain, and what is text stays text."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import browsing
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenloom.errors import ConfigError
from tokenloom.evaluate.curves import curves
from tokenloom.inspect.length_picture import length_picture
from tokenloom.page.axes import drawing, label
from tokenloom.page.charts import Bar, Mark, areas, bars, heat, lines
from tokenloom.page.histogram import columns
from tokenloom.page.markup import tag
from tokenloom.page.plain_style import plain_style
from tokenloom.page.sheet import asset
from tokenloom.page.standalone import DRAWN, Panel, standalone
from tokenloom.page.triangles import Block, attention_map
from tokenloom.store.derived.length_counts import LengthCounts

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</style><script>alert(1)</script>&"\' class="evil" \x00\ufffe\ud800 {fill:red}'
MEASURED = "flame"  # where time goes; drawn by benchmarks/flame.py

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


def test_a_class_that_nothing_paints_is_refused():
    for wrong in ("axiss", "layout"):  # unknown, and of boxes only
        drawn = drawing(20, 20, "toy", [tag("rect", class_=wrong)])
        with pytest.raises(ConfigError, match=f"found '{wrong}', which no rule"):
            standalone("toy", [], [Panel(drawn)])
    with pytest.raises(ConfigError, match="drawing"):
        standalone("toy", [], [Panel(tag("p", "no drawing"))])


def test_colours_are_those_of_the_style_sheet_light_and_dark():
    style = plain_style(tag("rect", class_="s3"))
    light, dark = re.search(r"--s3: light-dark\((#\w+), (#\w+)\)", asset("page.css")).groups()
    before, _, after = style.partition("@media (prefers-color-scheme: dark)")
    assert light in before
    assert dark not in before
    assert dark in after


def test_only_rules_that_a_drawing_uses_are_inside():
    assert plain_style(tag("g", tag("rect", class_="map"), class_="chart")) == (
        ".chart .map { image-rendering: pixelated; }"
    )


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


def test_the_same_drawing_gives_the_same_bytes():
    made = {standalone("toy", ["b"], [Panel(CHARTS["heat"], ramp=("0", "1"))]) for _ in range(2)}
    assert len(made) == 1


def pictures():
    every = sorted((ROOT / "docs/pictures").glob("*.svg"))
    return [one for one in every if one.stem != MEASURED]


@pytest.mark.parametrize("path", pictures(), ids=lambda path: path.stem)
def test_every_picture_of_the_documentation_has_the_style_of_today(path):
    picture = path.read_text()
    drawn = picture.partition("</style>")[2]
    assert style_of(picture).strip() == plain_style(drawn)
    assert unpainted(picture) == []
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_control_pictures_of_the_documentation_are_there():
    assert {"packed-row", "shares", "memorization-packed", "results-splice"} <= {
        one.stem for one in pictures()
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_a_picture_in_the_colours_of_its_theme(chromium, tmp_path, scheme):
    (tmp_path / "toy.svg").write_text(standalone("toy", [], [Panel(CHARTS["bars"])]))
    with browsing.visit(chromium, (tmp_path / "toy.svg").as_uri(), scheme=scheme) as seen:
        paint = "(name) => getComputedStyle(document.querySelector(name)).fill"
        found = [seen.page.evaluate(paint, name) for name in (".paper", ".s1", "text")]
        seen.clean((tmp_path / "toy.svg").as_uri())
    assert (
        found
        == {
            "light": ["rgb(255, 255, 255)", "rgb(0, 114, 178)", "rgb(27, 31, 36)"],
            "dark": ["rgb(20, 23, 27)", "rgb(63, 155, 217)", "rgb(232, 235, 239)"],
        }[scheme]
    )


def test_words_of_the_pictures_of_the_documentation_are_inside_them(chromium):
    for path in pictures():
        with browsing.visit(chromium, path.as_uri(), width=760) as seen:
            outside = seen.page.evaluate(
                """() => [...document.querySelectorAll("text")].filter((one) => {
                    const box = one.getBoundingClientRect();
                    const whole = document.documentElement.getBoundingClientRect();
                    return box.left < whole.left || box.right > whole.right;
                }).map((one) => one.textContent)"""
            )
        assert outside == [], path.name
