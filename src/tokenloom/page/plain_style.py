"""The rules of the style sheet that one drawing uses, with plain colours: for files of their own.

One idea: the colours are written once, in ``page.css``. A picture that leaves the page takes along
the rules of its classes, light, and dark behind ``prefers-color-scheme``, with every variable
replaced by its colour, because most programs that show SVG know neither ``var`` nor ``light-dark``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tokenloom.errors import ConfigError
from tokenloom.page.sheet import asset

__all__ = ["PaintRule", "font_family", "plain_style"]

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
