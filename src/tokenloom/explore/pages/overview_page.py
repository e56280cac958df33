"""The answers and figures of the report, inside the explorer.

One idea: whoever explores a run also wants to know what it does as a whole. The report is made when
somebody first asks for it, once, and its figures are the same as in the saved file.
"""

from __future__ import annotations

from tokenloom.errors import TokenloomError
from tokenloom.explore.query import Query
from tokenloom.explore.session import Session
from tokenloom.explore.shell import ExplorerPage
from tokenloom.page.figure import figure_html
from tokenloom.page.markup import joined, tag
from tokenloom.report.told import answers_html, cautions_html

__all__ = ["overview_page"]


def overview_page(session: Session, query: Query) -> ExplorerPage:
    """What the run does as a whole."""
    explored = session.run(query.whole("run", 0, 1))
    try:
        report = session.report(explored.number)
    except (TokenloomError, LookupError) as error:
        body = tag("p", f"The report cannot be made: {error}", class_="reason")
        return ExplorerPage(title="Overview", body=body, way="overview", run=explored.number)
    others = [tag("a", one.name, href=f"overview?run={one.number}") for one in session.runs]
    tree = tag("pre", report.tree, class_="tree", tabindex=0, role="region", aria_label="The run")
    parts = [
        tag("p", *(piece for one in others for piece in (one, " "))) if len(others) > 1 else None,
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
