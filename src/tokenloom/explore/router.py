"""From the target of a request to its reply: the page by its name, and what is said when it fails.

A page that refuses its query is shown with the sentence of the refusal; one that fails is logged,
and the others are still answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tokenloom.errors import TokenloomError
from tokenloom.explore.gate import page_name
from tokenloom.explore.pages.compare_page import compare_page, difference_page
from tokenloom.explore.pages.document_page import document_page
from tokenloom.explore.pages.find_page import find_page
from tokenloom.explore.pages.overview_page import overview_page
from tokenloom.explore.pages.row_page import next_of_source, row_page
from tokenloom.explore.pages.step_page import step_page
from tokenloom.explore.query import Query, read_query
from tokenloom.explore.session import Session
from tokenloom.explore.shell import Elsewhere, ExplorerPage, HttpReply, reply_of
from tokenloom.page.markup import joined, tag
from tokenloom.page.sheet import asset

__all__ = ["ASSETS", "PAGES", "reply_to"]

Made = ExplorerPage | Elsewhere


PAGES: dict[str, Callable[[Session, Query], Made]] = {
    "": step_page,
    "step": step_page,
    "row": row_page,
    "goto": next_of_source,
    "document": document_page,
    "compare": compare_page,
    "diff": difference_page,
    "find": find_page,
    "overview": overview_page,
}

ASSETS = {
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "explore.js": "text/javascript; charset=utf-8",
}


log = logging.getLogger("tokenloom")


def reply_to(session: Session, target: str) -> HttpReply:
    """The reply to a request that passed the gate.

    Args:
        session: what is explored.
        target: path and query of the request.
    """
    name = page_name(target)
    path, _, query = target.partition("?")
    if name is None:
        return HttpReply(status=303, body=b"", headers=(("Location", f"{path}/"),))
    if name in ASSETS:
        return HttpReply(status=200, body=asset(name).encode(), kind=ASSETS[name])
    if name not in PAGES:
        return _failed(session, 404, "There is no such page.")
    try:
        asked = read_query(query)
        return reply_of(session, PAGES[name](session, asked))
    except (TokenloomError, IndexError, KeyError) as error:
        said = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        return _failed(session, 400, said)
    except Exception:  # one page must not stop the others
        log.exception("explore: the page %r failed", name)
        return _failed(session, 500, "This page failed; the terminal shows why.")


def _failed(session: Session, status: int, said: str) -> HttpReply:
    """A page that says what is wrong."""
    body = joined(
        [
            tag("p", said, class_="reason", role="alert"),
            tag("p", tag("a", "to the steps", href="step", class_="button")),
        ]
    )
    return reply_of(session, ExplorerPage(title="Not shown", body=body, status=status))
