"""Elements of HTML and SVG as strings that are safe by the way they are made.

A `Markup` comes from `tag` alone, and whatever else is put into an element is escaped. So
texts, ids and names of sources stay text, whatever is in them. Attributes that hold code (`style`,
`on…`) are refused: a page's policy forbids them, and so nobody writes one by mistake.

What cannot be seen in a text is shown: control characters as their pictures, marks that turn the
direction of what follows, and halves of surrogate pairs, as their numbers. A stranger's text cannot
rearrange the words around it.

Elements that hold our own sentences (`PROSE`) do two things more: names that are written from right
to left are isolated, so that "4 rows" after one stays after it; and a number keeps its unit on its
line. Texts of documents and code are in other elements, and stay as they are, letter by letter.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable

from tokenloom.errors import ConfigError

# elements that have no end
VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr"})

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\ufffe\uffff]"
)

# whatever makes a text differ from what HTML has for it
_UNPLAIN = re.compile(f"[&<>\"'{_UNSEEN.pattern[1:]}")

# elements whose text is a sentence, a name or a number of ours
PROSE = frozenset(
    {
        *("a", "b", "button", "caption", "dd", "dt", "em", "h1", "h2", "h3", "h4"),
        *("label", "li", "p", "strong", "summary", "td", "text", "th"),
    }
)

# letters that are written from right to left, with what may stand between two of them in a name
_RIGHT = "\u0590-\u05ff\u0600-\u061b\u061d-\u065f\u066a-\u06ef\u06fa-\u08ff"
_RIGHT += "\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff"
_LEFTWARDS = re.compile(f"[{_RIGHT}](?:[ _.,;!?'\"()\u2013\u2026-]*[{_RIGHT}])*")

# a number and the next word, unless that is one that belongs to neither
_NEITHER = "and are as at by come for from has have hold in is more of on or other others that to"
_UNIT = re.compile(
    r"(?<![\w.])(\d(?:[\d.,]*\d)?) "
    rf"(?=%|(?!(?:{_NEITHER.replace(' ', '|')}|were|with)\b)[a-zµ][\w/]{{0,11}}\b"
    r"|[KMGTP]?i?B\b)"
)


class Markup(str):
    """HTML that needs no escaping; made by `tag` and `joined`."""

    __slots__ = ()


EMPTY = Markup()


def visible(text: str) -> str:
    r"""A text with what cannot be seen in it written out; line ends and tabs stay.

    >>> visible("a\x00b\x1b[1m"), visible("\u202eevil"), visible("\ud800")
    ('a␀b␛[1m', '‹U+202E›evil', '‹U+D800›')
    """
    return _UNSEEN.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"‹U+{code:04X}›"


def tag(name: str, /, *inside: object, **attributes: object) -> Markup:
    """An element; what is inside it is escaped unless it is `Markup`.

    Args:
        name: name of the element.
        inside: its content, in order; None is left out.
        attributes: ``class_`` is class, and other underscores are hyphens; None and False are left
            out, True has no value.

    >>> tag("p", "a < b", tag("b", "!"), class_="x", data_n=3, hidden=True, id=None)
    '<p class="x" data-n="3" hidden>a &lt; b<b>!</b></p>'
    >>> tag("br")
    '<br>'
    """
    shown = "".join([_attribute(key, value) for key, value in attributes.items()])
    if name in VOID:
        return Markup(f"<{name}{shown}>")
    if name in PROSE and "dir" not in attributes:
        inside = tuple(prose(one, is_svg=name == "text") for one in inside)
    content = "".join([_part(one) for one in inside])
    return Markup(f"<{name}{shown}>{content}</{name}>")


def prose(one: object, *, is_svg: bool = False) -> object:
    r"""A sentence with its names isolated, and its numbers kept together with their units.

    Elements of `PROSE` do it by themselves; `Markup` is left as it is. In SVG there is no element
    for it, so there the marks of Unicode are used.

    >>> prose("Of 20 rows, 5 % of \u05d0\u05d1: 4"), prose("\u05d0", is_svg=True)
    ('Of 20\xa0rows, 5\xa0% of <bdi>אב</bdi>: 4', '\u2068א\u2069')
    """
    if one is None or isinstance(one, Markup):
        return one
    kept = _UNIT.sub("\\1\u00a0", html.escape(visible(str(one)), quote=False))
    around = "\u2068{}\u2069" if is_svg else "<bdi>{}</bdi>"
    return Markup(_LEFTWARDS.sub(lambda found: around.format(found[0]), kept))


def joined(parts: Iterable[object]) -> Markup:
    """Parts one after the other, escaped unless they are `Markup`.

    >>> joined(["<", tag("b", 1), None])
    '&lt;<b>1</b>'
    """
    return Markup("".join([_part(one) for one in parts]))


def _part(one: object) -> str:
    if isinstance(one, Markup):
        return one
    return "" if one is None else _escaped(str(one), quote=False)


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    own = _written(name)
    return f" {own}" if value is True else f' {own}="{_escaped(str(value))}"'


@functools.lru_cache(maxsize=256)
def _written(name: str) -> str:
    """The name of an attribute as HTML has it."""
    own = name.rstrip("_").replace("_", "-")
    if own == "style" or own.startswith("on"):
        raise ConfigError(f"{own}: found an attribute that holds code, allowed: classes.")
    return own


def _escaped(text: str, *, quote: bool = True) -> str:
    """A text as HTML has it; most are numbers and plain words, which are found at one glance."""
    return html.escape(visible(text), quote=quote) if _UNPLAIN.search(text) else text
