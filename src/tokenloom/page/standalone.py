"""A picture in a file of its own: drawings below each other, with words around them.

The same drawing stands in a report and in a file. A file has its colours inside, light and dark,
paper below them, and no script, no font and no request, so a browser, a viewer of images and a page
of documentation show it alike. The colours are those of `page.css`: a file takes along the rules of
its classes, with every variable replaced by its colour, because most programs that show SVG know
neither `var` nor `light-dark`.

Letters keep their size in proportion to the drawing: a picture is 520 units wide and asks for 650
pixels, so that its words are as large as those of the text around it, and can be read on a phone,
where it has 340.
"""

from __future__ import annotations

import functools
import html
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tokenloom.errors import ConfigError
from tokenloom.page.axes import TEXT, label
from tokenloom.page.document import asset
from tokenloom.page.markup import Markup, tag
from tokenloom.page.png import LEVELS, STRENGTH

# what SVG is painted with; all else in the style sheet is about boxes of HTML
PAINT = frozenset(
    {
        *("fill", "fill-opacity", "font-size", "font-weight", "image-rendering", "opacity"),
        *("paint-order", "pointer-events", "stroke", "stroke-dasharray", "stroke-linejoin"),
        *("stroke-width",),
    }
)

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CONDITIONAL = re.compile(r"@[^{}]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_VARIABLE = re.compile(r"--([\w-]+):\s*(light-dark\([^)]*\)|[^;]+);")
_PAIR = re.compile(r"light-dark\(([^,()]+),([^,()]+)\)")
_PLAIN = re.compile(r"[\w. -]+")
# text between elements has no < and no >, so these are elements, whatever a text says
_ELEMENT = re.compile(r"<([A-Za-z]\w*)([^<>]*)>")
_CLASS = re.compile(r'\sclass="([^"]*)"')

WIDTH, MARGIN = 520, 16  # units of the picture

DRAWN = WIDTH - 2 * MARGIN  # units that a drawing is wide

SHOWN = 1.25  # pixels of a unit

LETTER, TITLE_LETTER = 6.8, 8.6  # units of a letter's width, about

LINE, TITLE_LINE = 18, 22  # units from line to line

SWATCH, RAMP = 12, 12  # units of a colour in a legend, and of a level in a ramp

_SIZE = re.compile(r'<svg width="(\d+)" height="([\d.]+)"')

_SAID = re.compile(r'<svg [^<>]*?\saria-label="([^"]*)"')


class PaintRule(NamedTuple):
    """A selector, and what it paints in the light and in the dark."""

    selector: str
    light: Mapping[str, str]
    dark: Mapping[str, str]


def plain_style(drawn: str) -> str:
    """The style of a drawing: its rules, and after them what is different in the dark.

    Args:
        drawn: elements made by `tokenloom.page.markup.tag`.

    Raises:
        ConfigError: a class of it paints nothing.

    >>> print(plain_style('<g class="chart"><path class="area"/></g>'))
    .chart .area { stroke: #ffffff; stroke-width: .6; }
    @media (prefers-color-scheme: dark) {
    .chart .area { stroke: #14171b; }
    }
    """
    elements, classes = _used(drawn)
    rules = [one for one in _rules() if _applies(one.selector, elements, classes)]
    painted = {name for one in rules for name in _names(one.selector)[1]}
    for name in sorted(classes - painted):
        raise ConfigError(
            f"class: found {name!r}, which no rule of page.css paints here, allowed: classes that "
            "have a rule with colours or letters, inside the elements that it names."
        )
    light = [_line(one.selector, one.light) for one in rules]
    dark = [_line(one.selector, some) for one in rules if (some := _changed(one))]
    if dark:
        dark = ["@media (prefers-color-scheme: dark) {", *dark, "}"]
    return "\n".join([*light, *dark])


def font_family() -> str:
    """The fonts of a page, the first that is installed before the others.

    >>> font_family().endswith("sans-serif")
    True
    """
    found = re.search(r"\bfont: \S+ ([^;]+);", asset("page.css"))
    assert found is not None
    return found[1]


def _used(drawn: str) -> tuple[set[str], set[str]]:
    """Names of elements, and their classes."""
    elements, classes = set(), set()
    for name, attributes in _ELEMENT.findall(drawn):
        elements.add(name)
        for found in _CLASS.findall(attributes):
            classes.update(found.split())
    return elements, classes


def _applies(selector: str, elements: set[str], classes: set[str]) -> bool:
    named, needed = _names(selector)
    return needed <= classes and named <= elements


def _names(selector: str) -> tuple[set[str], set[str]]:
    """Elements and classes of a selector.

    >>> _names(".chart .marked text") == ({"text"}, {"chart", "marked"})
    True
    """
    classes = set(re.findall(r"\.([\w-]+)", selector))
    return set(re.sub(r"\.[\w-]+", " ", selector).split()), classes


@functools.cache
def _rules() -> tuple[PaintRule, ...]:
    """Every rule that paints by a class, in the order of the style sheet."""
    whole = _CONDITIONAL.sub("", _COMMENT.sub("", asset("page.css")))
    values = dict(_VARIABLE.findall(whole))
    return tuple(
        PaintRule(selector, *(dict(_declared(body, values, side)) for side in (0, 1)))
        for head, body in _RULE.findall(whole)
        for selector in (one.strip() for one in head.split(","))
        if "." in selector and _PLAIN.fullmatch(selector) and any(_declared(body, values, 0))
    )


def _changed(one: PaintRule) -> dict[str, str]:
    """What is different in the dark."""
    return {name: value for name, value in one.dark.items() if value != one.light[name]}


def _declared(body: str, values: Mapping[str, str], side: int) -> Iterator[tuple[str, str]]:
    """What a rule paints: property and plain value; side 0 is light, 1 is dark."""
    for one in body.split(";"):
        name, _, value = (part.strip() for part in one.partition(":"))
        if name in PAINT:
            yield name, _plain(value, values, side)


def _plain(value: str, values: Mapping[str, str], side: int) -> str:
    """A value without variables.

    >>> _plain("var(--a)", {"a": "light-dark(#fff, #000)"}, 1)
    '#000'
    """
    whole = re.sub(r"var\(--([\w-]+)\)", lambda found: values[found[1]], value)
    plain = _PAIR.sub(lambda found: found[side + 1].strip(), whole)
    if "(" in plain:
        raise ConfigError(f"page.css: found {plain!r}, allowed: colours and variables of colours.")
    return plain


def _line(selector: str, declared: Mapping[str, str]) -> str:
    told = " ".join(f"{name}: {value};" for name, value in declared.items())
    return f"{selector} {{ {told} }}"


class Panel(NamedTuple):
    """A drawing and what stands around it.

    Attributes:
        drawing: made by `tokenloom.page.axes.drawing`, at most `DRAWN` wide.
        heading: words above it.
        legend: (words, class) of each colour, above it.
        ramp: words for the least and the most of a map, below it.
    """

    drawing: Markup
    heading: str = ""
    legend: Sequence[tuple[str, str]] = ()
    ramp: tuple[str, str] | None = None


def standalone(title: str, caption: Sequence[str], pieces: Sequence[Panel]) -> str:
    """A picture as the text of an SVG file.

    Args:
        title: what it shows.
        caption: sentences below the title; each starts a line.
        pieces: the drawings, from top to bottom.

    Raises:
        ConfigError: a drawing has a class that the style sheet does not paint.

    >>> from tokenloom.page.axes import drawing
    >>> dot = drawing(20, 20, "a dot", [tag("circle", r=9, class_="s1")])
    >>> whole = standalone("a < b", ["one"], [Panel(dot, legend=[("dots", "s1")])])
    >>> whole.startswith("<svg"), "a &lt; b" in whole, "var(" in whole
    (True, True, False)
    """
    words = _Column()
    words.lines(title, "title", TITLE_LETTER, TITLE_LINE)
    words.y += 2
    for one in caption:
        words.lines(one, "soft", LETTER, LINE)
    for piece in pieces:
        words.y += 12
        if piece.heading:
            words.lines(piece.heading, "heading", LETTER, LINE)
        words.legend(piece.legend)
        words.drawing(piece.drawing)
        if piece.ramp is not None:
            words.ramp(*piece.ramp)
    height = words.y + MARGIN
    paper = tag("rect", width=WIDTH, height=f"{height:g}", class_="paper")
    drawn = tag("g", paper, *words.parts, class_="chart")
    said = [html.unescape(one) for piece in pieces for one in _SAID.findall(piece.drawing)]
    whole = tag(
        "svg",
        tag("title", title),
        tag("desc", "; ".join([*caption, *said])),
        Markup(f"<style>\n{plain_style(drawn)}\n</style>"),
        drawn,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height:g}",
        width=f"{WIDTH * SHOWN:g}",
        height=f"{height * SHOWN:g}",
        font_family=font_family(),
        role="img",
    )
    return whole.replace("><", ">\n<") + "\n"  # an element a line; text has no < and no >


class _Column:
    """Parts below each other; `y` is where the next one starts."""

    def __init__(self) -> None:
        self.parts: list[Markup] = []
        self.y: float = MARGIN

    def lines(self, said: str, class_: str, letter: float, high: int) -> None:
        """Words, in as many lines as they need."""
        for line in textwrap.wrap(said, int(DRAWN / letter)):
            at = {"x": MARGIN, "y": f"{self.y + high - 6:g}"}
            self.parts.append(tag("text", line, **at, class_=class_))
            self.y += high

    def legend(self, names: Sequence[tuple[str, str]]) -> None:
        """Colours with words, from left to right, and on in the next line."""
        x: float = MARGIN
        for said, class_ in names:
            wide = SWATCH + 6 + LETTER * len(said)
            if x > MARGIN and x + wide > MARGIN + DRAWN:
                x, self.y = MARGIN, self.y + LINE + 2
            at = {"x": f"{x:g}", "y": f"{self.y + 3:g}", "width": SWATCH, "height": SWATCH}
            self.parts.append(tag("rect", **at, rx=3, class_=class_))
            self.parts.append(label(x + SWATCH + 6, self.y + TEXT, said, soft=True))
            x += wide + 18
        self.y += LINE + 6 if names else 0

    def drawing(self, drawn: Markup) -> None:
        """A drawing as a part of the picture."""
        size = _SIZE.match(drawn)
        if size is None:
            raise ConfigError(
                f"drawing: found {drawn[:40]!r}, allowed: what tokenloom.page.axes.drawing makes."
            )
        place = f'<svg x="{MARGIN}" y="{self.y:g}" '
        self.parts.append(Markup(place + drawn.removeprefix("<svg ")))
        self.y += float(size[2])

    def ramp(self, least: str, most: str) -> None:
        """The colours of a map, from the least to the most."""
        x, wide = MARGIN + LETTER * len(least) + 8, RAMP * LEVELS
        at = {"y": f"{self.y + 3:g}", "width": RAMP, "height": 12, "class_": "heat"}
        self.parts += [
            label(MARGIN, self.y + TEXT, least, soft=True),
            *(
                tag("rect", x=f"{x + RAMP * number:g}", **at, fill_opacity=f"{strong / 100:g}")
                for number, strong in enumerate(STRENGTH)
            ),
            label(x + wide + 8, self.y + TEXT, most, soft=True),
        ]
        self.y += LINE
