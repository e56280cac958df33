"""Pieces of a page inside somebody else's page: what a notebook shows.

One idea: the one style sheet, nested below one class. So a piece looks as it does in a report, and
no rule of ours reaches the notebook around it. There is no script, no attribute with style, and no
request; where a notebook takes the style away, plain HTML is left to read.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from tokenloom.page.markup import Markup, tag
from tokenloom.page.sheet import asset

__all__ = ["View", "inline", "nested_style"]

# twice, so that our rules win against those that a notebook has for tables and headings
ROOT = ".tokenloom.tokenloom"

# JupyterLab, VS Code and Colab say whether they are dark; elsewhere the system decides
THEMES = (
    '[data-jp-theme-light="true"] &, .vscode-light & { color-scheme: light; } '
    '[data-jp-theme-light="false"] &, .vscode-dark &, .vscode-high-contrast &, '
    'html[theme="dark"] & { color-scheme: dark; } '
    ".copy, .theme { display: none; }"  # buttons do nothing without a script
)


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
