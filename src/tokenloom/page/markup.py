"""Elements of HTML and SVG as strings that are safe by the way they are made.

One idea: a `Markup` comes from `tag` alone, and whatever else is put into an element is escaped. So
texts, ids and names of sources stay text, whatever is in them. Attributes that hold code (`style`,
`on…`) are refused: a page's policy forbids them, and so nobody writes one by mistake.

What cannot be seen in a text is shown: control characters as their pictures, marks that turn the
direction of what follows, and halves of surrogate pairs, as their numbers. A stranger's text cannot
rearrange the words around it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from tokenloom.errors import ConfigError

__all__ = ["EMPTY", "Markup", "joined", "tag", "visible"]

# elements that have no end
VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "wbr"})

_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff]"
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
    shown = "".join(_attribute(*one) for one in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{shown}>")
    return Markup(f"<{name}{shown}>{joined(inside)}</{name}>")


def joined(parts: Iterable[object]) -> Markup:
    """Parts one after the other, escaped unless they are `Markup`.

    >>> joined(["<", tag("b", 1), None])
    '&lt;<b>1</b>'
    """
    return Markup("".join(_part(one) for one in parts))


def _part(one: object) -> str:
    if isinstance(one, Markup):
        return one
    return "" if one is None else html.escape(visible(str(one)), quote=False)


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    own = name.rstrip("_").replace("_", "-")
    if own == "style" or own.startswith("on"):
        raise ConfigError(f"{own}: found an attribute that holds code, allowed: classes.")
    return f" {own}" if value is True else f' {own}="{html.escape(visible(str(value)))}"'
