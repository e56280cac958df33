"""The explorer as a person has it: in a real browser, with a mouse and with keys."""

import contextlib
import json
import re

import browsing
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from exploring import Asked, serving
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
    with serving(Server(session)) as server:
        yield server.url


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everything")
    tl.save(everything_run(folder), folder / "run.yaml")
    return tl.load(folder / "run.yaml")


@pytest.fixture(scope="module")
def url(run):
    """An explorer whose report is made already."""
    session = Session([run], batch_size=16)
    Asked(session).made("overview")
    with served(session) as found:
        yield found


def told(page):
    """What the panel says."""
    pairs = page.locator("#panel dl div").evaluate_all(
        "(all) => all.map((one) => [...one.children].map((child) => child.textContent))"
    )
    return dict(pairs)


def arrived(page, title):
    """Wait until a page with this title is there, and its script has run."""
    expect(page.locator("h1")).to_have_text(title)
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


def test_tokens_stand_side_by_side_on_every_screen(chromium, url):
    with browsing.visit(chromium, url) as seen:
        for page in ("row?index=5", "document?source=wiki&document=3", "compare?a=1&b=2&row=3"):
            seen.page.goto(url + page)
            for width in (360, 900, 1280):
                seen.page.set_viewport_size({"width": width, "height": 900})
                for box in seen.page.locator(".cells").all():
                    tops = box.locator(".cell").evaluate_all(
                        "(all) => all.map((one) => Math.round(one.getBoundingClientRect().top))"
                    )
                    assert len(tops) > 10, page
                    assert len(set(tops)) < len(tops) / 4, (page, width)
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
        for key, title in (("n", "Step 4"), ("n", "Step 5"), ("p", "Step 4")):
            page.keyboard.press(key)
            arrived(page, title)
        rows = [one.index for one in run.at(step=4, batch_size=16)]
        for key, row in (("j", 0), ("j", 1), ("j", 2), ("k", 1)):
            page.keyboard.press(key)
            arrived(page, f"Example {rows[row]:,}")
        assert not page.locator("#go").is_visible()  # folded
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "go"
        assert page.locator("#go").is_visible()
        page.keyboard.type("7")  # a key in a box is typed, not followed
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Step 7")
        page.keyboard.press("/")  # the box of the step is in sight there
        page.keyboard.type("9")
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Step 9")
        seen.clean(url)


def unfold(page):
    """Open the forms that lead elsewhere."""
    page.locator("details.elsewhere summary").click()


def test_forms_jump_to_an_example_a_row_a_cell_a_source_and_a_document(chromium, url, run):
    with browsing.visit(chromium, url) as seen:
        page = seen.page
        unfold(page)
        page.locator("form:has([name=row]) [name=step]").fill("12")
        page.locator("form:has([name=row]) [name=row]").fill("3")
        page.locator("form:has([name=row]) button").click()
        index = run.at(step=12, row=3, batch_size=16).index
        assert page.locator("h1").text_content() == f"Example {index:,}"
        unfold(page)
        page.locator("form:has([name=cell]) [name=index]").fill("1,000")
        page.locator("form [name=cell]").fill("17")
        page.locator("form:has([name=cell]) button").click()
        assert page.locator("h1").text_content() == "Example 1,000"
        assert told(page)["cell"] == "17"
        unfold(page)
        page.locator("form[action=goto] select").select_option("book")
        page.locator("form[action=goto] button").click()
        index = int(re.search(r"index=(\d+)", page.url)[1])
        assert index > 1000
        assert run.at(index).source == "book"
        assert {run.at(k).source for k in range(1001, index)} <= {"wiki", "code"}
        unfold(page)
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


def test_two_rows_are_compared_with_a_line_above_what_differs(chromium, url, run):
    rows = [[one.index for one in run.at(step=step, batch_size=16)] for step in (1, 2)]
    pair = next(
        k for k in range(16) if all(run.spans([line[k]]).cells.sum() == 64 for line in rows)
    )
    batch = run.batch([line[pair] for line in rows])
    weights = np.pad(batch.loss_weights[:, :-1], ((0, 0), (1, 0)))  # of the token of each cell
    odd = (np.diff([*batch.tokens], axis=0) != 0)[0]
    odd |= (np.diff(batch.segment_ids, axis=0) != 0)[0] | (np.diff(weights, axis=0) != 0)[0]
    known = [str(cell) for cell in np.flatnonzero(odd)]
    with browsing.visit(chromium, url + "compare?a=1&b=2") as seen:
        page = seen.page
        page.locator(".rows a").nth(pair).click()
        assert page.locator("h1").text_content() == f"Row {pair} of steps 1 and 2"
        said = page.locator(".message").first.text_content()
        assert said.replace("\xa0", " ").startswith(f"{len(known)} of 64 cells differ")
        for side in (0, 1):
            marked = page.locator(".cells").nth(side).locator(".differs")
            facts = marked.evaluate_all("(all) => all.map((one) => JSON.parse(one.dataset.f)[0])")
            assert facts == known
            assert 0 < len(known) < 64
        page.locator(".cells").nth(1).locator(".cell").first.hover()
        assert told(page)["cell"] == "0"
        assert "last shown" not in told(page)
        assert page.locator(".legend").first.text_content().count("line above") == 1
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
    session = Session([run], [EVIL], 4)
    Asked(session).made("overview")
    with (
        served(session) as url,
        browsing.visit(chromium, url, width=360) as seen,
    ):
        source = run.run.names[0]
        for page in ("step", "row?index=0", "row?index=1", "edit", "overview", "compare"):
            seen.page.goto(url + page)
            assert seen.page.evaluate("window.pwned") is None
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360, page
        seen.page.goto(url)
        unfold(seen.page)
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


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """A run of sources with Hebrew and Chinese names, one document each."""
    folder = tmp_path_factory.mktemp("scripts")
    texts = {"עברית": "שלום עולם, טקסט מימין לשמאל. " * 9, "日本": "你好，世界。" * 9}
    stores = {
        name: tl.build([{"text": text}], folder / name, tokenizer="bytes", progress=False)
        for name, text in texts.items()
    }
    with served(Session([tl.mix({n: s.windows(64) for n, s in stores.items()})], ["r"], 4)) as url:
        yield url


def test_a_name_from_right_to_left_moves_nothing_around_it(chromium, scripts):
    with browsing.visit(chromium, scripts + "step") as seen:
        page = seen.page
        for one in page.locator(".legend li:has(bdi)").all():
            name, line = one.locator("bdi").bounding_box(), one.locator("span").last.bounding_box()
            assert name["x"] - line["x"] < 2  # the name, then how much there is of it
        for one in page.locator(".row-name .soft").all():
            assert one.locator("bdi").bounding_box()["x"] - one.bounding_box()["x"] < 8
        page.goto(scripts + "document?source=עברית&document=0")
        title, name = page.locator("h1").bounding_box(), page.locator("h1 bdi").bounding_box()
        assert name["x"] > title["x"] + 100
        seen.clean(scripts)


def test_documents_from_right_to_left_start_at_the_right_edge(chromium, scripts):
    with browsing.visit(chromium, scripts + "document?source=עברית&document=0") as seen:
        page = seen.page
        for target in ("document?source=עברית&document=0", "row?index=1", "row?index=0"):
            page.goto(scripts + target)
            box = page.locator(".cells").bounding_box()
            first = page.locator(".cells .cell").first.bounding_box()
            right = box["x"] + box["width"] - first["x"] - first["width"]
            left = first["x"] - box["x"]
            source = page.locator(".lead bdi, h1 bdi").first.text_content()
            assert (right < 4 < left) if source == "עברית" else (left < 4 < right), target
        seen.clean(scripts)


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


ALEPH_TO_TAV = "אבגדהוזחטיכלמנסעפצקרשת"  # two bytes each


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Windows of odd length over letters of two bytes, and texts of both directions."""
    one, two = ALEPH_TO_TAV[:4], ALEPH_TO_TAV[4:9]
    texts = [ALEPH_TO_TAV, f"{one[0]} loom {one} x 12.", f"{one} loom {two} 12."]
    rows = [{"text": text} for text in texts]
    folder = tmp_path_factory.mktemp("mixed")
    store = tl.build(rows, folder / "s", tokenizer="bytes", progress=False)
    with pytest.warns(UserWarning, match="drift"):
        run = store.windows(21)
    with served(Session([run], ["r"], 4)) as url:
        yield url


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        # ends with the first byte of a letter; begins with the second one of it
        ("row?index=0", f"<0xD7>{ALEPH_TO_TAV[9::-1]}"),
        ("row?index=1", f"{ALEPH_TO_TAV[20:10:-1]}<0x9B>"),
        # most letters are Latin, though the first is not
        ("document?document=1", f"{ALEPH_TO_TAV[0]} loom {ALEPH_TO_TAV[3::-1]} x 12."),
        ("document?document=2", f".12 {ALEPH_TO_TAV[8:3:-1]} loom {ALEPH_TO_TAV[3::-1]}"),
    ],
    ids=["half at the end", "half at the start", "mostly rightwards", "mostly leftwards"],
)
def test_no_text_is_read_backwards(chromium, mixed, target, wanted):
    with browsing.visit(chromium, mixed + target) as seen:
        (line,) = drawn_letters(seen.page)
        # the second byte of a letter stands where the letter ends
        assert line == re.sub("([א-ת])", "‿\\1", wanted)
        seen.clean(mixed)


def test_a_long_name_of_a_source_is_not_cut(chromium, tmp_path):
    store = tl.build([{"text": "abcd" * 9}], tmp_path / "s", tokenizer="bytes", progress=False)
    names = ["source number 0868 of the crawl", "short"]
    session = Session([tl.mix({name: store.windows(8).shuffle() for name in names})], ["r"], 4)
    with served(session) as url, browsing.visit(chromium, url + "step") as seen:
        about = seen.page.locator(".row-name .soft")
        assert {one.strip() for one in about.all_text_contents()} == {
            f"{name}, epoch 0" for name in names
        }
        for width in (360, 1280, 2560):
            seen.page.set_viewport_size({"width": width, "height": 900})
            cut = about.evaluate_all(
                """(all) => all.filter((one) => getComputedStyle(one).display !== "inline"
                    && (one.scrollWidth > one.clientWidth + 1
                        || one.scrollHeight > one.clientHeight + 1)).length"""
            )
            assert cut == 0, width
        seen.clean(url)


def test_letters_of_several_tokens_are_joined_and_told_as_such(chromium, scripts):
    with browsing.visit(chromium, scripts + "document?source=日本&document=0") as seen:
        page = seen.page
        cells = page.locator(".cells .cell")
        assert [cells.nth(k).text_content() for k in range(4)] == ["你", "‿", "‿", "好"]
        cells.nth(1).hover()
        assert told(page)["text"] == "part 2 of 3 of 你"
        page.goto(scripts + "document?source=עברית&document=0")
        page.locator(".cells .cell").nth(8).hover()
        assert told(page)["text"] == "␣"
        seen.clean(scripts)


def test_on_a_phone_text_is_near_the_top_and_nothing_covers_it(chromium, url):
    with browsing.visit(chromium, url, width=360, height=740) as seen:
        page = seen.page
        for target, what in (("step?step=3", ".rows a"), ("row?index=5", ".cells .cell")):
            page.goto(url + target)
            assert page.locator(what).first.bounding_box()["y"] < 560, target
        assert not page.locator("#panel").is_visible()
        page.locator(".cells .cell").nth(3).click()
        assert page.locator("#panel").is_visible()
        page.keyboard.press("End")
        last, panel = (page.locator(one).last.bounding_box() for one in (".cells .cell", "#panel"))
        assert last["y"] + last["height"] <= panel["y"] + 1
        seen.clean(url)


@pytest.mark.parametrize("width", [360, 1280])
def test_no_fact_of_a_token_is_cut(chromium, url, width):
    with browsing.visit(chromium, url + "row?index=600", width=width) as seen:
        page = seen.page
        page.locator(".cells .cell").nth(3).hover()
        assert "(example" in told(page)["last shown"]
        cut = page.locator("#panel dd").evaluate_all(
            "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1 "
            "|| one.scrollHeight > one.clientHeight + 1).length"
        )
        assert cut == 0
        seen.clean(url)


@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_moves_while_a_page_loads(chromium, url, width):
    with browsing.visit(chromium, url, width=width) as seen:
        for page in PAGES:
            if page.startswith("find?kind=text"):
                continue  # what is found is added below what is there
            seen.page.goto(url + page)
            moved = seen.page.evaluate(
                """() => new Promise((done) => {
                    let sum = 0;
                    new PerformanceObserver((list) => {
                        for (const one of list.getEntries()) sum += one.value;
                    }).observe({type: "layout-shift", buffered: true});
                    setTimeout(() => done(sum), 100);
                })"""
            )
            assert moved < 0.001, page


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
