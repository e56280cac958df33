"""A figure: a drawing, what it says in one line, and its numbers as a table on demand.

A figure that cannot be drawn is there, too, greyed, with the reason and what to do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenloom.page.markup import EMPTY, Markup, joined, tag
from tokenloom.page.numbers import digits, exact, seconds

MOST_ROWS = 200  # of a table


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """The table of a figure.

    A column whose name has the word share is shown in per cent, and one of seconds as lengths of
    time; the values are plain numbers.

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
        notes: what to know about them, such as that they come from a sample.
        reason: why there is no drawing, and what to do; empty if there is one.
    """

    name: str
    title: str
    message: str
    drawing: Markup = EMPTY
    numbers: tuple[Numbers, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""


def figure_html(figure: Figure, *, level: int = 2) -> Markup:
    """A figure as a section of a page; `level` is that of its heading."""
    title = f"{figure.name}-title"
    drawn = tag("div", figure.drawing, class_="drawing") if figure.drawing else None
    listed = (tag("li", *_options_whole(one)) for one in figure.notes)
    notes = tag("ul", *listed, class_="notes") if figure.notes else None
    return tag(
        "section",
        tag(f"h{level}", figure.title, id=title),
        tag("p", figure.message, class_="message"),
        tag("p", figure.reason, class_="reason") if figure.reason else None,
        tag("div", drawn, notes, class_="beside-notes") if drawn and notes else drawn or notes,
        _numbers_on_demand(figure),
        class_="figure unable" if figure.reason else "figure",
        id=figure.name,
        aria_labelledby=title,
    )


def _options_whole(words: str) -> list[str | Markup]:
    """Words in which an option such as ``--step-seconds`` is never broken at a hyphen.

    >>> "".join(_options_whole("Give --latency."))
    'Give <span class="whole">--latency</span>.'
    """
    parts = re.split(r"(--[a-z][a-z-]*[a-z])", words)
    return [tag("span", one, class_="whole") if n % 2 else one for n, one in enumerate(parts)]


def _numbers_on_demand(figure: Figure) -> Markup | None:
    if not figure.numbers:
        return None
    tables = joined(
        numbers_html(one, about=_named(figure, number)) for number, one in enumerate(figure.numbers)
    )
    summary = tag("summary", "Numbers", tag("span", f" of {figure.title}", class_="unseen"))
    return tag("details", summary, tables, class_="numbers")


def _named(figure: Figure, number: int) -> str:
    """What a table is called where no other one of the page may have that name.

    >>> by = Numbers(head=("n",), rows=(), caption="by source")
    >>> _named(Figure(name="x", title="What is lost", message="", numbers=(by,)), 0)
    'What is lost, table 1: by source'
    """
    caption = figure.numbers[number].caption
    return f"{figure.title}, table {number + 1}" + (f": {caption}" if caption else "")


def numbers_html(numbers: Numbers, *, about: str = "numbers", wraps: bool = False) -> Markup:
    """A table; a wide one scrolls by itself, also by keyboard, unless its values may be broken.

    Args:
        numbers: what is in it.
        about: what it is called for a screen reader, as no other table of the page.
        wraps: its values may be broken, so it does not scroll.
    """
    is_number = [_is_numbers(column) for column in zip(*numbers.rows, strict=True)]
    is_number = is_number or [False] * len(numbers.head)
    classes = ["number" if one else None for one in is_number]
    head = tag(
        "tr",
        *(
            tag("th", one, scope="col", class_=class_)
            for one, class_ in zip(numbers.head, classes, strict=True)
        ),
    )
    rows = (
        tag(
            "tr",
            *(
                tag("td", _written(name, value), class_=class_)
                for name, value, class_ in zip(numbers.head, row, classes, strict=True)
            ),
        )
        for row in numbers.rows
    )
    caption = numbers.caption or None
    last = tag("p", f"and {numbers.more:,} more rows", class_="more") if numbers.more else None
    table = tag(
        "table",
        tag("caption", caption) if caption else None,
        tag("thead", head),
        tag("tbody", *rows),
    )
    if wraps:
        return joined([tag("div", table, class_="facts"), last])
    scrolled = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=about)
    return joined([scrolled, last])


def _is_numbers(column: Sequence[object]) -> bool:
    """Whether a column has numbers and nothing else; they stand at its right edge."""
    known = [one for one in column if one is not None]
    return bool(known) and all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in known
    )


def _written(name: str, value: object) -> str:
    """A value of a column, as its name says.

    >>> _written("share of tokens", 0.52254), _written("seconds a step", 5e-7), _written("n", 1234)
    ('52.25 %', '500 ns', '1,234')
    """
    words = name.split()
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        if "share" in words and 0 <= value <= 1:
            return f"{digits(100 * value, 4)} %"
        if words[:1] == ["seconds"]:
            return f"{digits(value * 1e9)} ns" if 0 < value < 1e-6 else seconds(value)
    return exact(value)


def code_block(code: str, about: str) -> Markup:
    """Code with a button that copies it."""
    button = tag("button", "Copy", type="button", class_="copy", aria_label=f"Copy the {about}")
    shown = tag(
        "pre", tag("code", *_options_whole(code)), tabindex=0, role="region", aria_label=about
    )
    return tag("div", shown, button, class_="code")
