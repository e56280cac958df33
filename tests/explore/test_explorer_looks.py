"""The explorer looks as it looked: pictures of its pages, compared as their goldens say."""

import contextlib
import os
from pathlib import Path

import browsing
import pytest
from exploring import serving
from pagetoys import everything_run

import tokenloom as tl
from tokenloom.explore.server import Server
from tokenloom.explore.session import Session

PAGES = {
    "step": "step?step=3",
    "row": "row?index=77&cell=9&by=age",
    "document": "document?source=book&document=3",
    "compare": "compare?a=1&b=2&row=3",
    "edit": "edit?at=640&weights=wiki%3D1%0Abook%3D4",
    "find": "find?kind=text&wanted=abc&source=code",
}


SCREENS = pytest.mark.parametrize(
    ("width", "scheme"),
    [(1280, "light"), (360, "dark"), pytest.param(2560, "light", marks=pytest.mark.slow)],
    ids=str,
)


@contextlib.contextmanager
def served(*runs):
    with serving(Server(Session(runs, batch_size=8))) as server:
        yield server.url


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs whose every word is the same on every machine."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("looks"))
    try:
        run = everything_run(Path("."))
        tl.save(run, "run.yaml")
        tl.save(run.edit(at=640, weights={"wiki": 1}), "edited.yaml")
        yield tl.load("run.yaml"), tl.load("edited.yaml")
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def url(runs):
    """An explorer of one run."""
    with served(runs[0]) as found:
        yield found


@pytest.fixture(scope="module")
def url_of_two(runs):
    """An explorer of both."""
    with served(*runs) as found:
        yield found


def look(chromium, url, pages, screen, request):
    """Compare pages of an explorer with their goldens."""
    renew, (width, scheme) = request.config.getoption("--renew-goldens"), screen
    with browsing.visit(chromium, url, width=width, scheme=scheme, bypass_csp=True) as seen:
        for name, page in pages.items():
            seen.page.goto(url + page)
            for waited in ("#more", "#making"):  # a search, a report
                seen.page.locator(waited).wait_for(state="detached", timeout=60_000)
            # heads of tables that stay in sight lie between two pixels, now left and now right
            seen.page.add_style_tag(content="th { position: static !important; }")
            browsing.looks_like(seen.page, f"explore-{name}-{width}-{scheme}", renew=renew)
        seen.clean(url)


@SCREENS
def test_a_page_of_the_explorer_looks_as_it_looked(chromium, url, width, scheme, request):
    look(chromium, url, PAGES, (width, scheme), request)


@SCREENS
def test_the_difference_of_two_runs_looks_as_it_looked(
    chromium, url_of_two, width, scheme, request
):
    look(chromium, url_of_two, {"diff": "diff"}, (width, scheme), request)


@pytest.mark.slow  # the report is made for it
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark"), (2560, "light")])
def test_the_overview_looks_as_it_looked(chromium, url_of_two, width, scheme, request):
    look(chromium, url_of_two, {"overview": "overview"}, (width, scheme), request)


def test_control_another_page_does_not_look_the_same(chromium, url, request):
    if request.config.getoption("--renew-goldens"):
        return
    with browsing.visit(chromium, url + "step?step=4") as seen, pytest.raises(AssertionError):
        browsing.looks_like(seen.page, "explore-row-1280-light")
