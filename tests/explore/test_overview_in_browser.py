"""The overview while its report is being made, in a real browser, with its script and without."""

import time

import browsing
import pytest
from axe_playwright_python.sync_playwright import Axe
from exploring import serving
from playwright.sync_api import expect

import tokenloom as tl
from tokenloom.explore.server import Server
from tokenloom.explore.session import Session


@pytest.fixture
def server(tmp_path):
    """An explorer that has not made its report yet."""
    store = tl.build([{"text": "abcd" * 99}], tmp_path / "s", tokenizer="bytes", progress=False)
    with serving(Server(Session([store.windows(8).shuffle()], ["toy"], 4))) as server:
        yield server


def test_the_overview_says_what_is_being_done_and_becomes_the_report(chromium, server, slow):
    url, (go, parts) = server.url, slow
    with browsing.visit(chromium, url + "overview", width=360, bypass_csp=True) as seen:
        page = seen.page
        expect(page.locator("#now")).to_have_text("what is trained")
        assert page.locator("#making progress").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert Axe().run(page).response["violations"] == []
        page.evaluate("window.here = 1")
        go.release()
        expect(page.locator("#now")).not_to_have_text("what is trained")
        assert page.locator("#now").text_content() == parts[-1]
        assert page.evaluate("window.here") == 1  # brought up to date in place
        go.release(99)
        expect(page.locator("h1")).to_have_text("toy")
        assert page.locator("#making").count() == 0
        assert page.url == url + "overview"
        page.go_back()  # where the visitor came from, not the page that waited
        assert page.url == "about:blank"
        seen.clean(url)


def test_without_a_script_the_overview_loads_itself_again(chromium, server, slow):
    url, (go, _) = server.url, slow
    with browsing.visit(chromium, url + "overview", java_script_enabled=False) as seen:
        page = seen.page
        expect(page.locator("#now")).to_have_text("what is trained")
        asked = seen.requests.count(url + "overview")
        go.release(99)
        expect(page.locator("h1")).to_have_text("toy", timeout=20_000)
        assert seen.requests.count(url + "overview") > asked
        after = seen.requests.count(url + "overview")
        time.sleep(2.5)
        page.title()
        assert seen.requests.count(url + "overview") == after  # the report stays as it is
        seen.clean(url)


def test_an_explorer_that_ends_meanwhile_is_told(chromium, server, slow):
    with browsing.visit(chromium, server.url + "overview") as seen:
        expect(seen.page.locator("#now")).to_have_text("what is trained")
        server.shutdown()  # nobody is answered any more
        slow[0].release(99)
        server.server_close()
        said = "The explorer does not answer; is it still running?"
        expect(seen.page.locator("#now")).to_have_text(said)
