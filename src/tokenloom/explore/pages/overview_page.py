"""The answers and figures of the report, inside the explorer.

One idea: whoever explores a run also wants to know what it does as a whole. The report is made when
somebody first asks for it, once, beside the pages (`explore.made_aside`): until it is there, this
page says what is being done, and looks for news by itself. Its figures are the same as in the saved
file. The report looks at every source by itself, so a run of very many asks first.
"""

from __future__ import annotations

import shlex

from tokenloom.explore.made_aside import Making
from tokenloom.explore.query import Query, link
from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import Elsewhere, ExplorerPage, button
from tokenloom.page.figure import code_block, figure_html
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.page.numbers import seconds
from tokenloom.report.report_file import Report
from tokenloom.report.told import answers_html, cautions_html

__all__ = ["overview_page"]

AT_ONCE = 64  # sources of a run whose report is made without asking

LOOK_AGAIN = 2  # seconds until a browser without scripts looks again


def overview_page(session: Session, query: Query) -> ExplorerPage | Elsewhere:
    """What the run does as a whole, or how far the report is."""
    explored = session.run(query.whole("run", 0, 1))
    here = link("overview", run=explored.number or None)
    if query.has("again"):
        session.reports.ask(explored.number, again=True)
        return Elsewhere(here)  # so that loading that page again does not try again
    sources = len(explored.run.run.names)
    asked = query.has("whole") or session.reports.known(explored.number) is not None
    if sources > AT_ONCE and not asked:
        return _shown(session, explored, _asking(explored, sources))
    found = session.reports.ask(explored.number)
    if found.made is not None:
        return _whole(session, explored, found.made)
    if found.failure:
        return _shown(
            session,
            explored,
            _failed(found, link("overview", run=explored.number or None, again=1)),
        )
    return _shown(session, explored, _waiting(found, here), renewed=LOOK_AGAIN)


def _whole(session: Session, explored: ExploredRun, report: Report) -> ExplorerPage:
    """The page of a report that is there."""
    tree = tag("pre", report.tree, class_="tree", tabindex=0, role="region", aria_label="The run")
    parts = [
        cautions_html(report.cautions),
        answers_html(report.answers),
        tag("section", tag("h2", "The run in words"), tree, class_="figure", id="tree"),
        *(figure_html(one) for one in report.figures),
    ]
    return _shown(session, explored, joined(parts), title=explored.name, lead=report.lead)


def _shown(
    session: Session,
    explored: ExploredRun,
    body: Markup,
    *,
    title: str = "Overview",
    lead: str = "",
    renewed: int = 0,
) -> ExplorerPage:
    """A page of this way, with links to both runs where there are two."""
    links = [
        tag("a", tag("bdi", one.name), href=f"overview?run={one.number}") for one in session.runs
    ]
    ways = tag("p", *(piece for one in links for piece in (one, " "))) if len(links) > 1 else None
    return ExplorerPage(
        title=title,
        body=joined([ways, body]),
        way="overview",
        lead=lead,
        run=explored.number,
        renewed=renewed,
    )


def _waiting(found: Making[Report], here: str) -> Markup:
    """What is being done; the script of the page brings it up to date."""
    said = (
        "It is made once and kept until the explorer ends. This page shows it when it is there; "
        "the other pages need nothing of it."
    )
    bar = tag("progress", aria_label="making the report")
    now = tag("output", found.now, id="now")
    passed = int(found.seconds)
    so_far = f"{passed} s" if passed < 60 else seconds(passed)
    took = tag("span", f"{so_far} so far", class_="soft", id="took")
    return tag(
        "section",
        tag("h2", "The report is being made"),
        tag("p", bar, " ", now, " · ", took, class_="scan"),
        tag("p", said, class_="soft"),
        tag("p", tag("a", "look again", href=here, class_="button", id="look")),
        class_="figure",
        id="making",
    )


def _failed(found: Making[Report], again: str) -> Markup:
    return tag(
        "section",
        tag("h2", "Not made"),
        tag("p", f"The report cannot be made: {found.failure}", class_="reason", role="alert"),
        tag("p", button("try again", again)),
        class_="figure unable",
    )


def _asking(explored: ExploredRun, sources: int) -> Markup:
    """What stands there until somebody wants the report."""
    said = (
        f"The report follows documents of each of the {sources:,} sources, which takes from "
        "seconds to a minute; other pages are slower meanwhile. It is made once and kept until "
        "the explorer ends."
    )
    to = link("overview", whole=1, run=explored.number or None)
    command = shlex.join(["tokenloom", "report", explored.path, "-o", "report.html"])
    return tag(
        "section",
        tag("h2", "Not made yet"),
        tag("p", said, class_="reason"),
        tag("p", button("make it now", to)),
        tag("p", "Or as a file:", class_="soft") if explored.path else None,
        code_block(command, "command") if explored.path else None,
        class_="figure unable",
    )
