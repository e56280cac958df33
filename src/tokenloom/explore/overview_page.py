"""The answers and figures of the report, inside the explorer.

The report is made once, when the page is first asked for, which takes from half a second to half a
minute; its figures are the same as in the saved file.
"""

from __future__ import annotations

from tokenloom.explore.session import Session
from tokenloom.explore.shell import ExplorerPage, Query
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
