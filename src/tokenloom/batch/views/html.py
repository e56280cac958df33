"""What a notebook shows of things that nobody asked to view: small tables, and text as it is.

One idea: these are pieces of `tokenloom.page`, as everything that is looked at; `view()` of a run,
a store or a batch shows more. Everything that comes from data is text, and stays text. What draws
is in the annex `tokenloom.report`: every process that trains imports this module, and none draws.
"""

from __future__ import annotations

from collections.abc import Iterable

from tokenloom.page.document import inline
from tokenloom.page.markup import tag

__all__ = ["SHOWN", "preformatted", "table"]

SHOWN = 8  # rows of a batch


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
