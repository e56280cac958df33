"""The answers and figures of the report, inside the explorer.

The report is made once, when the page is first asked for, which takes from half a second to half a
minute; its figures are the same as in the saved file. It looks at every source by itself, so a run
of very many asks first.
"""

from __future__ import annotations

import shlex

from tokenloom.explore.session import ExploredRun, Session
from tokenloom.explore.shell import ExplorerPage, Query, button, link
from tokenloom.page.figure import code_block, figure_html
from tokenloom.page.markup import Markup, joined, tag
from tokenloom.report.report_file import answers_html, cautions_html

AT_ONCE = 64  # sources of a run whose report is made without asking


def overview_page(session: Session, query: Query) -> ExplorerPage:
    """What the run does as a whole."""
    explored = session.run(query.whole("run", 0, 1))
    sources = len(explored.run.run.names)
    if sources > AT_ONCE and not query.has("whole"):
        return _shown(session, explored, _asking(explored, sources))
    report = session.report(explored)
    tree = tag("pre", report.tree, class_="tree", tabindex=0, role="region", aria_label="The run")
    parts = [
        cautions_html(report.cautions),
        answers_html(report.answers),
        tag("section", tag("h2", "The run in words"), tree, class_="figure", id="tree"),
        *(figure_html(one) for one in report.figures),
    ]
    return _shown(session, explored, joined(parts), title=explored.name, lead=report.lead)


def _shown(
    session: Session, explored: ExploredRun, body: Markup, title: str = "Overview", lead: str = ""
) -> ExplorerPage:
    """A page of this way, with links to both runs where there are two."""
    links = [
        tag("a", tag("bdi", one.name), href=f"overview?run={one.number}") for one in session.runs
    ]
    ways = tag("p", *(piece for one in links for piece in (one, " "))) if len(links) > 1 else None
    body = joined([ways, body])
    return ExplorerPage(title=title, body=body, way="overview", lead=lead, run=explored.number)


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
