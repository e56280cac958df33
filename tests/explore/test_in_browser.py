"""The explorer as a person has it: in a real browser, with a mouse and with keys."""

import contextlib
import json
import re
import threading

import browsing
import pytest
from axe_playwright_python.sync_playwright import Axe
from pagetoys import EVIL, everything_run, hostile_run
from playwright.sync_api import expect

import tokenloom as tl
from tokenloom.explore import scan
from tokenloom.explore.server import Server
from tokenloom.explore.session import Session

PAGES = (
    *("step?step=3", "row?index=5", "row?index=5&by=age", "document?source=wiki&document=3"),
    *("compare?a=1&b=2", "compare?a=1&b=2&row=3", "edit?at=32&weights=wiki%3D1"),
    *("find?kind=text&wanted=abc", "find?kind=id&wanted=1-3", "overview"),
)


@contextlib.contextmanager
def served(session):
    server = Server(session)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everything")
    tl.save(everything_run(folder), folder / "run.yaml")
    return tl.load(folder / "run.yaml")


@pytest.fixture(scope="module")
def url(run):
    with served(Session([run], batch_size=16)) as found:
        yield found


def told(page):
    """What the panel says."""
    pairs = page.locator("#panel dl div").evaluate_all(
        "(all) => all.map((one) => [...one.children].map((child) => child.textContent))"
    )
    return dict(pairs)


def arrived(page, title):
    """Wait until a page with this title is there, and its script has run."""
    expect(page.locator("h1")).to_contain_text(title)
    page.wait_for_load_state("load")


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light"), (2560, "dark")])
def test_every_page_opens_without_a_complaint_and_nothing_is_wider_than_the_screen(
    chromium, url, width, scheme
):
    with browsing.visit(chromium, url, width=width, scheme=scheme) as seen:
        for page in PAGES:
            seen.page.goto(url + page)
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, page
            assert seen.page.locator("h1").is_visible()
        seen.clean(url)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_that_keeps_anybody_out(chromium, url, scheme):
    with browsing.visit(chromium, url, scheme=scheme, bypass_csp=True) as seen:
        for page in PAGES:
            seen.page.goto(url + page)
            seen.page.locator("#more").wait_for(state="detached")
            found = Axe().run(seen.page).response["violations"]
            names = [(one["id"], [n["target"] for n in one["nodes"]][:3]) for one in found]
            assert names == [], page


def test_pointing_at_a_token_tells_where_it_comes_from(chromium, url, run):
    with browsing.visit(chromium, url + "row?index=5") as seen:
        cell = seen.page.locator(".cell[data-f]").nth(9)
        cell.hover()
        found = told(seen.page)
        assert list(found.values()) == json.loads(cell.get_attribute("data-f"))
        column = int(found["cell"].replace(",", ""))
        span = next(
            (span, one)
            for span in run.at(5).spans
            for one in span.cells
            if one.column <= column < one.column + one.length
        )
        assert found["document"] == f"{span[0].document:,}"
        assert found["offset"] == f"{span[1].start + column - span[1].column:,}"
        assert found["source"] == span[0].source
        seen.clean(url)


def test_arrow_keys_walk_from_token_to_token_and_one_of_them_has_the_tab_stop(chromium, url):
    with browsing.visit(chromium, url + "row?index=5", width=360) as seen:
        page = seen.page
        assert page.locator(".cell[tabindex='0']").count() == 1
        page.locator(".cell[data-f]").first.focus()
        for key, cell in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("Home", 0)):
            page.keyboard.press(key)
            assert told(page)["cell"] == str(cell)
            assert page.evaluate("document.activeElement.classList.contains('cell')")
        page.keyboard.press("ArrowDown")
        below = page.evaluate("document.activeElement.getBoundingClientRect().top")
        assert below > page.locator(".cell[data-f]").first.bounding_box()["y"]
        page.keyboard.press("ArrowUp")
        assert told(page)["cell"] == "0"
        page.keyboard.press("End")
        assert page.locator(".cell[tabindex='0']").count() == 1
        seen.clean(url)


def test_keys_go_from_step_to_step_and_from_row_to_row(chromium, url, run):
    with browsing.visit(chromium, url + "step?step=3") as seen:
        page = seen.page
        for key, title in (("n", "Step 4 "), ("n", "Step 5 "), ("p", "Step 4 ")):
            page.keyboard.press(key)
            arrived(page, title)
        rows = [one.index for one in run.at(step=4, batch_size=16)]
        for key, row in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
            page.keyboard.press(key)
            arrived(page, f"Example {rows[row]:,}")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "go"
        page.keyboard.type("7")  # a key in a box is typed, not followed
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("Step 7 ")
        seen.clean(url)


def test_forms_jump_to_an_example_a_source_and_a_document(chromium, url, run):
    with browsing.visit(chromium, url) as seen:
        page = seen.page
        page.locator("form[action=row] [name=index]").fill("1,000")
        page.locator("form[action=row] button").click()
        assert page.locator("h1").text_content() == "Example 1,000"
        page.locator("form[action=goto] select").select_option("book")
        page.locator("form[action=goto] button").click()
        index = int(re.search(r"index=(\d+)", page.url)[1])
        assert index > 1000
        assert run.at(index).source == "book"
        assert {run.at(k).source for k in range(1001, index)} <= {"wiki", "code"}
        page.locator("form[action=document] select").select_option("code")
        page.locator("form[action=document] [name=document]").fill("12")
        page.locator("form[action=document] button").click()
        assert page.locator("h1").text_content() == "Document 12 of code"
        page.locator("#places tbody a").nth(1).click()
        assert page.locator("h1").text_content().startswith("Example")
        assert page.locator(".cell.chosen").count() == 1
        assert told(page)["document"] == "12"
        seen.clean(url)


def test_a_search_runs_by_itself_and_stops_when_it_is_told_to(chromium, url, run, monkeypatch):
    store = tl.open(run.sources["wiki"].path)
    known = [k for k in range(300) if "ab" in store.tokenizer.decode(store.document(k))]
    with browsing.visit(chromium, url) as seen:
        page = seen.page
        monkeypatch.setattr(scan, "TOKENS", 1000)
        page.goto(url + "find?kind=text&source=wiki&wanted=ab")
        page.locator("#more").wait_for(state="detached")
        links = page.locator("#hits a").evaluate_all("(all) => all.map((one) => one.href)")
        found = [int(re.search(r"document=(\d+)", one)[1]) for one in links]
        assert sorted(set(found)) == known
        assert page.locator("#bar").get_attribute("value") == "300"
        assert not page.locator("#stop").is_visible()
        monkeypatch.setattr(scan, "TOKENS", 16)
        page.goto(url + "find?kind=text&wanted=zzzz")
        page.locator("#stop").click()
        page.wait_for_timeout(100)
        asked = len(seen.requests)
        page.wait_for_timeout(300)
        assert len(seen.requests) == asked  # nothing is asked for any more
        assert page.locator("#more").is_visible()  # but one can go on
        seen.clean(url)


def test_two_rows_are_compared_with_frames_around_what_differs(chromium, url, run):
    with browsing.visit(chromium, url + "compare?a=1&b=2") as seen:
        page = seen.page
        page.locator(".rows a").nth(3).click()
        assert page.locator("h1").text_content() == "Row 3 of steps 1 and 2"
        count = int(re.match(r"[\d,]+", page.locator(".message").first.text_content())[0])
        assert count > 0
        left, right = (page.locator(".cells").nth(k) for k in (0, 1))
        assert left.locator(".differs").count() <= count
        right.locator(".cell").first.hover()
        assert told(page)["cell"] == "0"
        seen.clean(url)


def test_an_edit_is_shown_while_it_is_typed_and_saved_as_a_file(chromium, url, run, tmp_path):
    with browsing.visit(chromium, url + "edit", accept_downloads=True) as seen:
        page = seen.page
        page.locator("[name=at]").fill("640")
        page.locator("[name=weights]").fill("wiki=1\ncode=9")
        expect(page.locator("#preview")).to_contain_text("examples 0 to 639 stay as they are")
        page.locator("[name=weights]").fill("nobody=1")
        page.wait_for_selector("#preview [role=alert]")
        page.locator("[name=weights]").fill("wiki=1\ncode=9")
        with page.expect_download() as waiting:
            page.get_by_text("Save the run file").click()
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        assert tl.load(path) == run.edit(at=640, weights={"wiki": 1, "code": 9})
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#preview")).to_contain_text("stay as they are")
        seen.clean(url)


def test_everything_works_without_a_script(chromium, url):
    with browsing.visit(chromium, url, java_script_enabled=False) as seen:
        page = seen.page
        page.get_by_text("next ›").click()
        page.locator(".rows a").first.click()
        assert page.locator("h1").text_content().startswith("Example")
        page.get_by_role("link", name="loss", exact=True).click()
        page.locator("[name=text]").fill("a")
        page.get_by_role("button", name="Mark").click()
        assert page.locator(".cell.found").count() > 0
        page.goto(url + "edit")
        page.locator("[name=weights]").fill("wiki=1")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#preview")).to_contain_text("stay as they are")
        seen.clean(url)


def test_dark_stays_dark_on_the_next_page(chromium, url):
    with browsing.visit(chromium, url) as seen:
        seen.page.locator("button.theme").click()
        dark = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.page.get_by_text("next ›").click()
        expect(seen.page.locator("html")).to_have_attribute("data-theme", "dark")
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
        seen.clean(url)


def test_texts_of_strangers_stay_text_and_right_to_left_stays_in_its_place(chromium, tmp_path):
    run = hostile_run(tmp_path)
    with (
        served(Session([run], [EVIL], 4)) as url,
        browsing.visit(chromium, url, width=360) as seen,
    ):
        source = run.run.names[0]
        for page in ("step", "row?index=0", "row?index=1", "edit", "overview", "compare"):
            seen.page.goto(url + page)
            assert seen.page.evaluate("window.pwned") is None
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360, page
        seen.page.goto(url)
        seen.page.locator("form[action=document] select").select_option(source)
        seen.page.locator("form[action=document] [name=document]").fill("0")
        seen.page.locator("form[action=document] button").click()
        assert EVIL[:20] in seen.page.locator("h1").text_content()
        seen.page.goto(url + "find?kind=text&wanted=onerror")
        seen.page.locator("#more").wait_for(state="detached")
        assert seen.page.locator("#hits mark").count() > 0
        assert seen.page.locator("img, iframe, object, embed").count() == 0
        assert seen.page.evaluate("window.pwned") is None
        seen.clean(url)


def test_control_the_policy_stops_code_that_gets_into_a_page(chromium, url):
    with browsing.visit(chromium, url) as seen:
        seen.page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.pwned = 1";
                document.body.append(script);
                const image = "<img src=x onerror='window.pwned=1'>";
                document.body.insertAdjacentHTML("beforeend", image);
            }"""
        )
        seen.page.wait_for_timeout(200)
        assert seen.page.evaluate("window.pwned") is None
        assert any("Content Security Policy" in one for one in seen.complaints)


def test_a_page_of_another_site_can_neither_post_nor_frame_it(chromium, url, tmp_path):
    other = tmp_path / "other.html"
    form = f"<form method=post action='{url}edit'><input name=weights value='wiki=9'></form>"
    other.write_text(f"{form}<iframe src='{url}step'></iframe>")
    with browsing.visit(chromium, other.as_uri()) as seen:
        page = seen.page
        with page.expect_response(lambda one: one.request.method == "POST") as waiting:
            page.evaluate("document.forms[0].submit()")
        assert waiting.value.status == 403
        assert any("frame" in one for one in seen.complaints)
