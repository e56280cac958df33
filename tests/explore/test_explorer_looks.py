"""The explorer looks as it looked: pictures of its pages, compared as their goldens say."""

import os
import threading
from pathlib import Path

import browsing
import pytest
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


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """An explorer whose every word is the same on every machine."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("looks"))
    try:
        tl.save(everything_run(Path(".")), "run.yaml")
        server = Server(Session([tl.load("run.yaml")], batch_size=8))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
    finally:
        os.chdir(before)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")], ids=str)
def test_a_page_of_the_explorer_looks_as_it_looked(chromium, url, width, scheme, request):
    renew = request.config.getoption("--renew-goldens")
    with browsing.visit(chromium, url, width=width, scheme=scheme, bypass_csp=True) as seen:
        for name, page in PAGES.items():
            seen.page.goto(url + page)
            if name == "find":
                seen.page.locator("#more").wait_for(state="detached")
            # heads of tables that stay in sight lie between two pixels, now left and now right
            seen.page.add_style_tag(content="th { position: static !important; }")
            browsing.looks_like(seen.page, f"explore-{name}-{width}-{scheme}", renew=renew)
        seen.clean(url)


def test_control_another_page_does_not_look_the_same(chromium, url, request):
    if request.config.getoption("--renew-goldens"):
        return
    with browsing.visit(chromium, url + "step?step=4") as seen, pytest.raises(AssertionError):
        browsing.looks_like(seen.page, "explore-row-1280-light")
