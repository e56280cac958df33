"""What a notebook shows, in a real browser: inside a page that has its own style."""

import browsing
import pytest
from pagetoys import everything_run

import tokenloom as tl

# such rules are in every notebook
FOREIGN = "<style>table { font-size: 40px } h3 { color: rgb(1, 2, 3) } p { margin: 0 }</style>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The URL of a page with every kind of view."""
    folder = tmp_path_factory.mktemp("notebook")
    run = everything_run(folder)
    views = {
        "run": run.view(batch_size=8),
        "step": run.view(step=3, batch_size=8, rows=2),
        "batch": run[:3].view(rows=2),
        "store": tl.open(folder / "wiki").view(),
    }
    shown = "".join(
        f"<h3 class=theirs>{name}</h3><div id={name}>{one._repr_html_()}</div>"
        for name, one in views.items()
    )
    path = folder / "notebook.html"
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>notebook</title>{FOREIGN}"
    body = f'<body data-jp-theme-light="false"><main>{shown}</main></body></html>'
    path.write_text(head + body, encoding="utf-8")
    return path.as_uri()


def test_views_are_seen_in_a_page_of_others_and_change_nothing_there(chromium, page):
    with browsing.visit(chromium, page) as seen:
        for name in ("run", "step", "batch", "store"):
            view = seen.page.locator(f"#{name} .tokenloom")
            assert view.count() == 1, name
            assert view.bounding_box()["height"] > 150, name
        for name in ("step", "batch"):
            assert seen.page.locator(f"#{name} svg.strip").first.is_visible()
            for cells in seen.page.locator(f"#{name} .cells").all():
                tops = cells.locator(".cell").evaluate_all(
                    "(all) => all.map((one) => Math.round(one.getBoundingClientRect().top))"
                )
                assert len(set(tops)) < len(tops) / 8
        assert seen.page.locator("#run .answers li").count() == 5
        assert seen.page.locator("#run svg.chart, #store svg.chart").first.is_visible()
        style = "(one) => [getComputedStyle(one).color, getComputedStyle(one).fontSize]"
        assert seen.page.locator("h3.theirs").first.evaluate(style)[0] == "rgb(1, 2, 3)"
        ours = {one.evaluate(style)[0] for one in seen.page.locator(".tokenloom h3").all()}
        assert ours <= {"rgb(232, 235, 239)", "rgb(164, 174, 186)"}  # ink, and soft
        seen.page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
        sizes = {one.evaluate(style)[1] for one in seen.page.locator(".tokenloom table").all()}
        assert sizes == {"14.4px"}
        # a notebook says that it is dark
        assert seen.page.locator("#run .tokenloom").evaluate(style)[0] == "rgb(232, 235, 239)"
        assert not any(one.is_visible() for one in seen.page.locator("button").all())
        seen.clean(page)


@pytest.mark.parametrize("width", [360, 1280])
def test_no_view_is_wider_than_its_place(chromium, page, width):
    with browsing.visit(chromium, page, width=width) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        seen.clean(page)
