"""The explorer as a person has it: in a real browser, with a mouse and with keys."""

import json
import re

import browsing
import numpy as np
import pytest
from exploring import served
from pagetoys import EVIL, everything_run, hostile_run
from playwright.sync_api import expect

import tokenloom as tl
from tokenloom.explore import find_page
from tokenloom.explore.session import Session

PAGES = (
    *("step?step=3", "row?index=5", "document?source=wiki&document=3", "compare?a=1&b=2"),
    *("compare?a=1&b=2&row=3", "find?kind=text&wanted=abc", "overview"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everything")
    tl.save(everything_run(folder), folder / "run.yaml")
    return tl.load(folder / "run.yaml")


@pytest.fixture(scope="module")
def url(run):
    with served(Session([run], batch_size=16)) as server:
        yield server.url


def facts(page):
    """The facts in the panel by name."""
    pairs = page.locator("#panel dl div").evaluate_all(
        "(all) => all.map((one) => [...one.children].map((child) => child.textContent))"
    )
    return dict(pairs)


def arrived(page, title):
    """Wait until a page with this title is there, and its script has run."""
    expect(page.locator("h1")).to_have_text(title)
    page.wait_for_load_state("load")


def unfold(page):
    """Open the forms that lead elsewhere."""
    page.locator("details.elsewhere summary").click()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_every_page_opens_without_a_complaint_fits_the_screen_and_axe_finds_nothing(
    chromium, url, width, scheme
):
    with browsing.visit(chromium, url, width=width, scheme=scheme) as seen:
        for page in PAGES:
            seen.page.goto(url + page)
            seen.page.locator("#more").wait_for(state="detached")
            assert seen.page.locator("h1").is_visible()
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, page
            if scheme == "light" and page != "overview":  # a report, see the tests of reports
                assert browsing.violations(seen.page) == [], page
            elif page in PAGES[:2]:
                assert browsing.violations(seen.page, only_colours=True) == [], page
        seen.clean(url)


def test_the_mouse_shows_where_a_token_comes_from_and_keys_walk_over_cells_rows_and_steps(
    chromium, url, run
):
    with browsing.visit(chromium, url + "row?index=5") as seen:
        page = seen.page
        cell = page.locator(".cell[data-f]").nth(9)
        cell.hover()
        found = facts(page)
        assert list(found.values()) == json.loads(cell.get_attribute("data-f"))
        column = int(found["cell"].replace(",", ""))
        span, stretch = next(
            (span, stretch)
            for span in run.at(5).spans
            for stretch in span.cells
            if stretch.column <= column < stretch.column + stretch.length
        )
        assert found["source"] == span.source
        assert found["document"] == f"{span.document:,}"
        assert found["offset"] == f"{stretch.start + column - stretch.column:,}"
        page.locator(".cell[data-f]").first.focus()
        for key, place in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("Home", 0)):
            page.keyboard.press(key)
            assert facts(page)["cell"] == str(place)
        assert page.locator(".cell[tabindex='0']").count() == 1
        page.goto(url + "step?step=3")
        for key, title in (("n", "Step 4"), ("n", "Step 5"), ("p", "Step 4")):
            page.keyboard.press(key)
            arrived(page, title)
        rows = [one.index for one in run.at(step=4, batch_size=16)]
        for key, row in (("j", 0), ("j", 1), ("k", 0)):
            page.keyboard.press(key)
            arrived(page, f"Example {rows[row]:,}")
        page.keyboard.press("/")
        page.keyboard.type("7")  # a key in a box is typed, not followed
        page.keyboard.press("Enter")
        arrived(page, "Step 7")
        page.locator("button.theme").click()
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)
        page.keyboard.press("n")
        arrived(page, "Step 8")
        assert page.evaluate(ground) == dark  # it stays dark
        seen.clean(url)


def test_forms_lead_to_a_row_a_source_and_a_document_and_from_there_to_its_places(
    chromium, url, run
):
    with browsing.visit(chromium, url) as seen:
        page = seen.page
        unfold(page)
        page.locator("form:has([name=row]) [name=step]").fill("12")
        page.locator("form:has([name=row]) [name=row]").fill("3")
        page.locator("form:has([name=row]) button").click()
        index = run.at(step=12, row=3, batch_size=16).index
        assert page.locator("h1").text_content() == f"Example {index:,}"
        unfold(page)
        page.locator("form[action=goto] select").select_option("book")
        page.locator("form[action=goto] button").click()
        after = int(re.search(r"index=(\d+)", page.url)[1])
        assert run.at(after).source == "book"
        assert {run.at(k).source for k in range(index + 1, after)} <= {"wiki", "code"}
        unfold(page)
        page.locator("form[action=document] select").select_option("code")
        page.locator("form[action=document] [name=document]").fill("12")
        page.locator("form[action=document] button").click()
        assert page.locator("h1").text_content() == "Document 12 of code"
        page.locator("#places tbody a").nth(1).click()
        assert page.locator(".cell.chosen").count() == 1
        assert facts(page)["document"] == "12"
        seen.clean(url)


def test_a_search_runs_by_itself_and_can_be_stopped_and_cells_that_differ_are_marked(
    chromium, url, run, monkeypatch
):
    store = tl.open(run.sources["wiki"].path)
    known = [k for k in range(300) if "ab" in store.tokenizer.decode(store.document(k))]
    steps = [[one.index for one in run.at(step=step, batch_size=16)] for step in (1, 2)]
    pair = next(
        k for k in range(16) if all(run.spans([line[k]]).cells.sum() == 64 for line in steps)
    )
    batch = run.batch([line[pair] for line in steps])
    weights = np.pad(batch.loss_weights[:, :-1], ((0, 0), (1, 0)))  # of the token of each cell
    arrays = (batch.tokens, batch.segment_ids, weights)
    differ = np.flatnonzero(np.any([one[0] != one[1] for one in arrays], axis=0))
    assert 0 < len(differ) < 64
    with browsing.visit(chromium, url) as seen:
        page = seen.page
        monkeypatch.setattr(find_page, "TOKENS", 8000)
        page.goto(url + "find?kind=text&source=wiki&wanted=ab")
        page.locator("#more").wait_for(state="detached")
        links = page.locator("#hits a").evaluate_all("(all) => all.map((one) => one.href)")
        found = {int(re.search(r"document=(\d+)", one)[1]) for one in links}
        assert sorted(found) == known
        monkeypatch.setattr(find_page, "TOKENS", 16)
        page.goto(url + "find?kind=text&wanted=zzzz")
        page.locator("#stop").click()
        page.wait_for_timeout(100)
        asked = len(seen.requests)
        page.wait_for_timeout(300)
        assert len(seen.requests) == asked
        assert page.locator("#more").is_visible()  # it can be continued
        page.goto(url + "compare?a=1&b=2")
        page.locator(".rows a").nth(pair).click()
        for side in (0, 1):
            marked = page.locator(".cells").nth(side).locator(".differs")
            cells = marked.evaluate_all("(all) => all.map((one) => JSON.parse(one.dataset.f)[0])")
            assert cells == [str(cell) for cell in differ]
        seen.clean(url)


def test_everything_works_without_a_script(chromium, url):
    with browsing.visit(chromium, url, java_script_enabled=False) as seen:
        page = seen.page
        page.locator("a", has_text="next").first.click()
        page.locator(".rows a").first.click()
        assert page.locator(".cell").count() > 10
        page.locator("[name=text]").fill("a")
        page.locator("form:has([name=text]) button").click()
        assert page.locator(".cell.found").count() > 0
        seen.clean(url)


def test_text_from_outside_stays_text_the_policy_stops_code_and_no_other_site_gets_in(
    chromium, tmp_path
):
    run = hostile_run(tmp_path)
    source = next(iter(run.sources))
    with served(Session([run], [EVIL], 4)) as server:
        with browsing.visit(chromium, server.url, width=360) as seen:
            page = seen.page
            for name in ("step", "row?index=0", "row?index=1", "overview", "compare"):
                page.goto(server.url + name)
                assert page.evaluate("window.pwned") is None
                assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
            page.goto(server.url)
            unfold(page)
            page.locator("form[action=document] select").select_option(source)
            page.locator("form[action=document] [name=document]").fill("0")
            page.locator("form[action=document] button").click()
            assert EVIL[:20] in page.locator("h1").text_content()
            page.goto(server.url + "find?kind=text&wanted=onerror")
            page.locator("#more").wait_for(state="detached")
            assert page.locator("#hits mark").count() > 0
            assert page.locator("img, iframe, object, embed").count() == 0
            seen.clean(server.url)
            page.evaluate(
                """() => {
                    const script = document.createElement("script");
                    script.textContent = "window.pwned = 1";
                    document.body.append(script);
                    const image = "<img src=x onerror='window.pwned=1'>";
                    document.body.insertAdjacentHTML("beforeend", image);
                }"""
            )
            page.wait_for_timeout(200)
            assert page.evaluate("window.pwned") is None
            assert any("Content Security Policy" in one for one in seen.complaints)
        other = tmp_path / "other.html"
        form = f"<form method=post action='{server.url}step'><input name=step></form>"
        other.write_text(f"{form}<iframe src='{server.url}step'></iframe>")
        with browsing.visit(chromium, other.as_uri()) as seen:
            with seen.page.expect_response(lambda one: one.request.method == "POST") as waiting:
                seen.page.evaluate("document.forms[0].submit()")
            assert waiting.value.status == 501
            assert any("frame" in one for one in seen.complaints)


ALEPH_TO_TAV = "אבגדהוזחטיכלמנסעפצקרשת"  # two bytes each


def drawn_letters(page):
    """Cells of a page as an eye reads them: lines from the top, letters of each from the left."""
    cells = page.locator(".cells .cell").evaluate_all(
        """(all) => all.map((one) => {
            const box = one.getBoundingClientRect();
            return [Math.round(box.top), box.left, one.textContent];
        })"""
    )
    tops = sorted({top for top, *_ in cells})
    return ["".join(text for at, _, text in sorted(cells) if at == top) for top in tops]


def test_no_text_is_read_backwards(chromium, tmp_path):
    """Windows of odd length over letters of two bytes, and texts of both directions."""
    one, two = ALEPH_TO_TAV[:4], ALEPH_TO_TAV[4:9]
    texts = [ALEPH_TO_TAV, f"{one[0]} loom {one} x 12.", f"{one} loom {two} 12."]
    rows = [{"text": text} for text in texts]
    store = tl.build(rows, tmp_path / "s", tokenizer="bytes", progress=False)
    with pytest.warns(UserWarning, match="drift"):
        run = store.windows(21)
    expected = {
        # ends with the first byte of a letter; begins with the second one of it
        "row?index=0": f"<0xD7>{ALEPH_TO_TAV[9::-1]}",
        "row?index=1": f"{ALEPH_TO_TAV[20:10:-1]}<0x9B>",
        # most letters are Latin, though the first is not
        "document?document=1": f"{ALEPH_TO_TAV[0]} loom {ALEPH_TO_TAV[3::-1]} x 12.",
        "document?document=2": f".12 {ALEPH_TO_TAV[8:3:-1]} loom {ALEPH_TO_TAV[3::-1]}",
    }
    with served(Session([run], ["r"], 4)) as server, browsing.visit(chromium, server.url) as seen:
        for target, wanted in expected.items():
            seen.page.goto(server.url + target)
            (line,) = drawn_letters(seen.page)
            # the second byte of a letter stands where the letter ends
            assert line == re.sub("([א-ת])", "‿\\1", wanted), target
        seen.clean(server.url)
