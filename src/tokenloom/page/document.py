"""Pages, and pieces of them: their style and their script are inside, and nothing else may run.

A page names the hashes of its one style and its one script in its policy, so a browser runs these
and refuses everything else: code in a document's text, a request, a style on an element. It opens
from a disk, without a network. A piece for a notebook has the same style sheet, nested below one
class, so no rule of ours reaches the notebook around it, and no script.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from tokenloom.page.markup import Markup, joined, tag

# twice, so that our rules win against those that a notebook has for tables and headings
ROOT = ".tokenloom.tokenloom"

# JupyterLab, VS Code and Colab say whether they are dark; elsewhere the system decides
THEMES = (
    '[data-jp-theme-light="true"] &, .vscode-light & { color-scheme: light; } '
    '[data-jp-theme-light="false"] &, .vscode-dark &, .vscode-high-contrast &, '
    'html[theme="dark"] & { color-scheme: dark; } '
    ".copy, .theme { display: none; }"  # buttons do nothing without a script
)

SHOWN = 8  # rows of a batch


def asset(name: str) -> str:
    """A style sheet or a script of this room.

    >>> asset("page.css").startswith("/*")
    True
    """
    return resources.files("tokenloom.page").joinpath("assets", name).read_text("utf-8")


def policy_of(style: str, script: str) -> str:
    """The Content-Security-Policy of a page with one style and one script inside.

    >>> policy_of("", "").split("; ")[:2]  # doctest: +ELLIPSIS
    ["default-src 'none'", "style-src 'sha256-47DEQ..."]
    """
    return "; ".join(
        [
            "default-src 'none'",
            f"style-src '{_hash(style)}'",
            f"script-src '{_hash(script)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def head_of(title: str, *more: Markup) -> Markup:
    """What every page has in its head."""
    return joined(
        [
            tag("meta", charset="utf-8"),
            *more,
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", title),
        ]
    )


def theme_button() -> Markup:
    """The button that changes between light and dark."""
    said = "Change between light and dark"
    return tag("button", "◐", type="button", class_="theme", aria_label=said, title=said)


def document(title: str, body: Markup) -> str:
    """A page of its own.

    >>> page = document("a & b", tag("main", "<script>"))
    >>> "<title>a &amp; b</title>" in page, "<main>&lt;script&gt;</main>" in page
    (True, True)
    """
    style, script = asset("page.css"), asset("page.js")
    policy = tag("meta", http_equiv="Content-Security-Policy", content=policy_of(style, script))
    head = tag("head", head_of(title, policy), _raw("style", style))
    whole = tag("html", head, tag("body", body, _raw("script", script)), lang="en")
    return f"<!doctype html>\n{whole}\n"


def _raw(name: str, code: str) -> Markup:
    """Our own style or script, which is no text to be escaped."""
    return Markup(f"<{name}>{code}</{name}>")


@dataclass(frozen=True, slots=True, repr=False)
class View:
    """Something to look at: HTML in a notebook, words elsewhere.

    Attributes:
        content: what a notebook shows.
        words: what `print` shows.

    >>> seen = View(tag("p", "a < b"), "a < b")
    >>> seen, seen._repr_html_().endswith("</style><p>a &lt; b</p></div>")
    (a < b, True)
    """

    content: Markup
    words: str

    def __repr__(self) -> str:
        return self.words

    def _repr_html_(self) -> str:
        """For notebooks."""
        return inline(self.content)


def inline(*content: Markup) -> str:
    """Elements with their style, for a page that is not ours.

    >>> inline(tag("p", "<script>")).startswith('<div class="tokenloom"><style>')
    True
    """
    style = Markup(f"<style>{nested_style()}</style>")
    return tag("div", style, *content, class_="tokenloom")


@functools.cache
def nested_style() -> str:
    """The style sheet below one class; what is said of a whole page is said of the piece.

    >>> nested_style()[:23], ":root" in nested_style()
    ('.tokenloom.tokenloom { ', False)
    """
    plain = re.sub(r"/\*.*?\*/", "", asset("page.css"), flags=re.DOTALL)
    ours = re.sub(r"(?m)^(\s*)(:root|body)\b", r"\1&", plain)
    return f"{ROOT} {{ {' '.join(ours.split())} {THEMES} }}"


def table(head: str, rows: Iterable[tuple[str, object]]) -> str:
    """A heading over two columns: names and values.

    >>> table("Store", [("documents", 1200)]).endswith("<td>1,200</td></tr></tbody></table></div>")
    True
    """
    lines = (
        tag("tr", tag("th", name, scope="row"), tag("td", _words(value))) for name, value in rows
    )
    return inline(tag("table", tag("caption", tag("b", head)), tag("tbody", *lines)))


def preformatted(text: str) -> str:
    """Text as it is, in a fixed font."""
    return inline(tag("pre", text, class_="tree"))


def _words(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
