"""A figure: a drawing, what it says in one line, its numbers, and the code that makes them.

One idea: whoever doubts a drawing finds beside it the numbers, as a table on demand, and the
command that prints them, with a button that copies it. A figure that cannot be drawn is there, too,
greyed, with the reason and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenloom.page.markup import EMPTY, Markup, joined, tag
from tokenloom.page.numbers import exact

__all__ = ["MOST_ROWS", "Figure", "Numbers", "code_block", "figure_html", "numbers_html"]

MOST_ROWS = 200  # of a table


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """The table of a figure.

    Attributes:
        head: names of the columns, with units.
        rows: values of each row: text, integers, real numbers or None.
        more: rows that were left out, or 0.
        caption: what it lists.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    more: int = 0
    caption: str = ""

    @classmethod
    def of(
        cls, head: Sequence[str], rows: Iterable[Sequence[object]], caption: str = ""
    ) -> Numbers:
        """The table of these rows; those after the first 200 are counted.

        >>> Numbers.of(["n"], [[1], [2]]).rows
        ((1,), (2,))
        """
        every = [tuple(row) for row in rows]
        kept, more = tuple(every[:MOST_ROWS]), max(0, len(every) - MOST_ROWS)
        return cls(head=tuple(head), rows=kept, more=more, caption=caption)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """What a page shows about one question.

    Attributes:
        name: its anchor in the page, such as "mixture".
        title: what it shows.
        message: what is to be seen in it, in one sentence with numbers.
        drawing: SVG or HTML; empty if there is none.
        numbers: the numbers behind the drawing.
        code: the command or the lines of Python that give these numbers.
        notes: what to know about them, such as that they come from a sample.
        reason: why there is no drawing, and what to do; empty if there is one.
    """

    name: str
    title: str
    message: str
    drawing: Markup = EMPTY
    numbers: tuple[Numbers, ...] = ()
    code: str = ""
    notes: tuple[str, ...] = ()
    reason: str = ""


def figure_html(figure: Figure, *, level: int = 2) -> Markup:
    """A figure as a section of a page; `level` is that of its heading."""
    title = f"{figure.name}-title"
    return tag(
        "section",
        tag(f"h{level}", figure.title, id=title),
        tag("p", figure.message, class_="message"),
        tag("p", figure.reason, class_="reason") if figure.reason else None,
        tag("div", figure.drawing, class_="drawing") if figure.drawing else None,
        tag("ul", *(tag("li", one) for one in figure.notes), class_="notes")
        if figure.notes
        else None,
        _numbers_on_demand(figure),
        _code_on_demand(figure),
        class_="figure unable" if figure.reason else "figure",
        id=figure.name,
        aria_labelledby=title,
    )


def _numbers_on_demand(figure: Figure) -> Markup | None:
    if not figure.numbers:
        return None
    tables = joined(numbers_html(one) for one in figure.numbers)
    summary = tag("summary", "Numbers", tag("span", f" of {figure.title}", class_="unseen"))
    return tag("details", summary, tables, class_="numbers")


def _code_on_demand(figure: Figure) -> Markup | None:
    if not figure.code:
        return None
    summary = tag("summary", "Code", tag("span", f" of {figure.title}", class_="unseen"))
    return tag("details", summary, code_block(figure.code, f"code of {figure.title}"))


def numbers_html(numbers: Numbers) -> Markup:
    """A table; a wide one scrolls by itself, also by keyboard."""
    head = tag("tr", *(tag("th", one, scope="col") for one in numbers.head))
    rows = (tag("tr", *(_cell(value) for value in row)) for row in numbers.rows)
    caption = numbers.caption or None
    last = tag("p", f"and {numbers.more:,} more rows", class_="more") if numbers.more else None
    table = tag(
        "table",
        tag("caption", caption) if caption else None,
        tag("thead", head),
        tag("tbody", *rows),
    )
    about = caption or "numbers"
    scrolled = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=about)
    return joined([scrolled, last])


def _cell(value: object) -> Markup:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return tag("td", exact(value), class_="number" if is_number else None)


def code_block(code: str, about: str) -> Markup:
    """Code with a button that copies it."""
    button = tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy the {about}")
    shown = tag("pre", tag("code", code), tabindex=0, role="region", aria_label=about)
    return tag("div", shown, button, class_="code")
