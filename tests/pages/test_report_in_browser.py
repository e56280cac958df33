"""The report as a reader has it: opened from a disk, in a real browser."""

import re

import browsing
import pytest
from pagetoys import EVIL, everything_run, hostile_run

import tokenloom as tl
from tokenloom.page.markup import visible
from tokenloom.report import report_on


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The URL of a saved report with every figure of a run."""
    folder = tmp_path_factory.mktemp("report")
    report = report_on(everything_run(folder), batch_size=8, ranks=2, name="everything")
    path = folder / "report.html"
    path.write_text(report.html, encoding="utf-8")
    assert path.stat().st_size < 3_000_000
    return path.as_uri()


@pytest.mark.parametrize("width", [360, 1280, 2560])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_without_a_request_or_a_complaint_and_nothing_is_wider_than_the_screen(
    chromium, page, width, scheme
):
    with browsing.visit(chromium, page, width=width, scheme=scheme) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        shown = "narrow" if width < 640 else "wide"
        assert seen.page.locator(f".drawing .{shown}").first.is_visible()
        seen.clean(page)


def test_links_of_answers_and_contents_lead_to_something(chromium, page):
    with browsing.visit(chromium, page) as seen:
        links = seen.page.locator("a[href^='#']").evaluate_all(
            "(all) => all.map((one) => one.getAttribute('href').slice(1))"
        )
        assert len(links) > 10
        missing = [one for one in links if not seen.page.locator(f"[id='{one}']").count()]
        assert missing == []


def test_numbers_open_code_is_copied_and_the_theme_changes(chromium, page):
    allowed = {"permissions": ["clipboard-read", "clipboard-write"]}
    with browsing.visit(chromium, page, **allowed) as seen:
        details = seen.page.locator("details").first
        details.locator("summary").focus()
        seen.page.keyboard.press("Enter")
        assert details.locator("table").first.is_visible()
        seen.page.locator("details:has(.code) summary").first.click()
        block = seen.page.locator(".code").first
        block.locator("button").click()
        seen.page.wait_for_function(
            "document.querySelector('.code button').textContent === 'Copied'"
        )
        copied = seen.page.evaluate("navigator.clipboard.readText()")
        assert copied == block.locator("code").text_content()
        before = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        seen.page.locator("button.theme").click()
        assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        seen.clean(page)


def test_code_without_a_clipboard_is_selected(chromium, page):
    with browsing.visit(chromium, page) as seen:
        seen.page.evaluate(
            "() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')); }"
        )
        seen.page.locator("details:has(.code) summary").first.click()
        seen.page.locator(".code button").first.click()
        code = seen.page.locator(".code code").first.text_content()
        seen.page.wait_for_function("String(getSelection()).length > 0")
        assert seen.page.evaluate("String(getSelection())").strip() == code.strip()


def test_nothing_moves_while_it_loads(chromium, page):
    with browsing.visit(chromium, page) as seen:
        moved = seen.page.evaluate(
            """() => new Promise((done) => {
                let sum = 0;
                new PerformanceObserver((list) => {
                    for (const one of list.getEntries()) sum += one.value;
                }).observe({type: "layout-shift", buffered: true});
                setTimeout(() => done(sum), 300);
            })"""
        )
        assert moved == 0


def test_texts_ids_names_and_paths_of_strangers_stay_text(chromium, tmp_path):
    report = report_on(hostile_run(tmp_path), batch_size=2, name=EVIL)
    path = tmp_path / "evil.html"
    path.write_text(report.html, encoding="utf-8")
    with browsing.visit(chromium, path.as_uri()) as seen:
        assert seen.page.evaluate("window.pwned") is None
        assert visible(EVIL) == seen.page.locator("h1").text_content()
        assert seen.page.locator("img, iframe, object, embed").count() == 0
        seen.clean(path.as_uri())


def test_the_policy_holds_in_the_saved_file(chromium, page):
    with browsing.visit(chromium, page) as seen:
        seen.page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.pwned = 1";
                document.body.append(script);
                const image = new Image();
                image.src = "http://127.0.0.1:9/x.png";
                document.body.append(image);
                document.body.setAttribute("style", "background: red");
            }"""
        )
        seen.page.wait_for_timeout(200)
        assert seen.page.evaluate("window.pwned") is None
        assert (
            seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
            != "rgb(255, 0, 0)"
        )
        assert any("Content Security Policy" in one for one in seen.complaints)


PAPER = 718  # pixels of A4 between its margins

WIDER = f"""() => [...document.querySelectorAll("main *")].filter((one) => {{
    const box = one.getBoundingClientRect();
    return box.width && box.right > {PAPER} + 1;
}}).map((one) => one.outerHTML.slice(0, 80))"""


def test_it_prints_and_every_figure_is_on_paper(chromium, page, tmp_path):
    with browsing.visit(chromium, page, width=PAPER) as seen:
        seen.page.locator("#mixture details.numbers summary").click()
        seen.page.pdf(path=tmp_path / "report.pdf", format="A4")
        printed = (tmp_path / "report.pdf").read_bytes()
        assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 20
        seen.page.emulate_media(media="print")
        for gone in ("button.theme", "nav.contents", "button.copy"):
            assert not any(one.is_visible() for one in seen.page.locator(gone).all()), gone
        figures = seen.page.locator("section.figure:not(#tree)").all()
        assert len(figures) > 8
        for one in figures:
            assert one.locator("h2").is_visible()
            assert one.locator(".message").is_visible()
            assert one.bounding_box()["height"] > 60
        # what is folded has no word; what was opened is there to its last line
        words = seen.page.locator("summary").evaluate_all(
            "(all) => all.filter((one) => one.checkVisibility()).map((one) => one.textContent)"
        )
        assert words == ["Numbers of Which source is trained when"]
        cut = seen.page.locator("#mixture .scroll").evaluate_all(
            "(all) => all.filter((one) => one.scrollHeight > one.clientHeight + 1).length"
        )
        assert cut == 0
        assert seen.page.evaluate(WIDER) == []


@pytest.mark.parametrize("texts", [["", ""], ["a"], ["ab"] * 3], ids=["empty", "one", "few"])
@pytest.mark.filterwarnings("ignore:.*nothing to train on")
def test_small_stores_have_a_page_too(chromium, tmp_path, texts):
    rows = [{"text": text} for text in texts]
    store = tl.build(rows, tmp_path / "s", tokenizer="bytes", progress=False)
    path = tmp_path / "small.html"
    path.write_text(report_on(store.windows(2), batch_size=2).html, encoding="utf-8")
    with browsing.visit(chromium, path.as_uri(), width=360) as seen:
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360
        seen.clean(path.as_uri())
