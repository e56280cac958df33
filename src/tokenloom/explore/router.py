"""The request and its page: who may ask, the page by its name, and what is said when it fails.

The pages are for the person who started the explorer, in a browser on this machine or at the near
end of an SSH tunnel. Other programs of this machine do not know the token, nor do pages of other
sites that the browser shows. A name that resolves to this machine (DNS rebinding) is not a loopback
name, and a request that carries another origin is refused. Ports are not compared: a tunnel has
another one at its near end. A wrong token is answered like a page that does not exist.

A page that refuses its query is shown with the sentence of the refusal; one that fails is logged,
and the others are still answered.

The overview has the answers and figures of the report, the same as in the saved file. They are made
once, when the page is first asked for, which takes from half a second to half a minute.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable
from email.message import Message

from tokenloom.errors import TokenloomError
from tokenloom.explore.compare_page import compare_page, difference_page
from tokenloom.explore.document_page import document_page
from tokenloom.explore.find_page import find_page
from tokenloom.explore.row_page import next_of_source, row_page
from tokenloom.explore.session import Session
from tokenloom.explore.shell import Elsewhere, ExplorerPage, HttpReply, Query, read_query, reply_of
from tokenloom.explore.step_page import step_page
from tokenloom.page.document import asset
from tokenloom.page.figure import figure_html
from tokenloom.page.markup import joined, tag
from tokenloom.report.report_file import answers_html, cautions_html


def overview_page(session: Session, query: Query) -> ExplorerPage:
    """What the run does as a whole, with links to both runs where there are two."""
    explored = session.run(query.whole("run", 0, 1))
    report = session.report(explored)
    links = [
        tag("a", tag("bdi", one.name), href=f"overview?run={one.number}") for one in session.runs
    ]
    tree = tag("pre", report.tree, class_="tree", tabindex=0, role="region", aria_label="The run")
    parts = [
        tag("p", *(part for one in links for part in (one, " "))) if len(links) > 1 else None,
        cautions_html(report.cautions),
        answers_html(report.answers),
        tag("section", tag("h2", "The run in words"), tree, class_="figure", id="tree"),
        *(figure_html(one) for one in report.figures),
    ]
    return ExplorerPage(
        title=explored.name,
        body=joined(parts),
        way="overview",
        lead=report.lead,
        run=explored.number,
    )


_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)

# a path of plain names: nothing encoded, no dots that lead up, no empty name
_PATH = re.compile(r"/([A-Za-z0-9_-]+)(/([a-z][a-z.]*)?)?")

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


def refusal(target: str, headers: Message, token: str) -> int | None:
    """The status that refuses a request; None: it is answered.

    Args:
        target: path and query, as they were sent.
        headers: of the request.
        token: the first name of every path.
    """
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1 or not hosts[0]:
        return 400
    if not _HOST.fullmatch(hosts[0]):
        return 403
    origins = headers.get_all("Origin", [])
    if any(origin.lower() != f"http://{hosts[0]}".lower() for origin in origins):
        return 403
    found = _PATH.fullmatch(target.partition("?")[0])
    given = "" if found is None else found[1]
    return None if hmac.compare_digest(given.encode(), token.encode()) else 404


def page_name(target: str) -> str | None:
    """The name after the token; empty for the first page, None if its slash is missing.

    >>> page_name("/token/step?step=3")
    'step'
    """
    found = _PATH.fullmatch(target.partition("?")[0])
    assert found is not None  # the gate let it pass
    return None if found[2] is None else found[3] or ""


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
