"""The report as a reader has it: opened from a disk, in a real browser."""

import re

import browsing
import numpy as np
import pytest
from pagetoys import EVIL, everything_run, hostile_run, texts_of

import tokenloom as tl
from tokenloom.evaluate import evaluate, pz
from tokenloom.inspect import audit_run
from tokenloom.page.markup import visible
from tokenloom.report import report_on

OPEN = "document.querySelectorAll('details').forEach((one) => one.open = true)"

# words in a drawing whose box is not inside that of the drawing, or that lie over each other
MISPLACED = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
    const box = svg.getBoundingClientRect();
    if (!box.width) return [];
    const all = [...svg.querySelectorAll("text")].map((one) => [one.textContent,
        one.getBoundingClientRect()]);
    const found = all.filter(([, own]) => own.left < box.left - 1 || own.right > box.right + 1
        || own.top < box.top - 1 || own.bottom > box.bottom + 1).map(([words]) => words);
    all.forEach(([a, one], n) => all.slice(n + 1).forEach(([b, other]) => {
        const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (wide > 1 && high > 5) found.push(`${a} / ${b}`);
    }));
    return found;
})"""

# such rules are in every notebook
FOREIGN = "<style>table { font-size: 40px } h3 { color: rgb(1, 2, 3) } p { margin: 0 }</style>"


def uniform(tokens, segment_ids, position_ids):
    return np.zeros((*tokens.shape, 256))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def run(folder):
    return everything_run(folder).edit(at=410, remove=["wiki"])


@pytest.fixture(scope="module")
def pages(folder, run):
    """URLs of reports of every kind."""
    store = tl.build(texts_of(12, 5), folder / "s", tokenizer="bytes", progress=False)
    answers = {
        "losses": evaluate(uniform, store, seq_len=64, progress=False),
        "windows": pz(uniform, store, prefix=4, suffix=2, stride=8, progress=False),
    }
    audit = audit_run(run, 0, 64, progress=False)
    reports = {
        "run": report_on(
            run,
            batch_size=8,
            ranks=2,
            certificate=audit,
            evaluations=answers,
            command="tokenloom report run.yaml -o report.html",
        ),
        "store": report_on(store),
        "audit": report_on(audit_run(store.windows(64))),
        "evaluation": report_on(answers),
        "empty": report_on(store.windows(64).take(0), batch_size=2),
    }
    for name, one in reports.items():
        (folder / f"{name}.html").write_text(one.html, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in reports}


@pytest.mark.parametrize(
    ("width", "scheme", "judged"),
    [(1280, "light", {"run", "evaluation"}), (360, "dark", {"run"})],
    ids=["wide and light", "narrow and dark"],
)
def test_reports_open_without_a_request_fit_the_screen_and_axe_finds_nothing(
    chromium, pages, width, scheme, judged
):
    for kind, url in pages.items():
        with browsing.visit(chromium, url, width=width, scheme=scheme) as seen:
            assert seen.page.locator("h1").is_visible()
            seen.page.evaluate(OPEN)
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, kind
            assert seen.page.evaluate(MISPLACED) == [], kind
            links = seen.page.locator("a[href^='#']").evaluate_all(
                "(all) => all.map((one) => one.getAttribute('href').slice(1))"
            )
            lost = [one for one in links if not seen.page.locator(f"[id='{one}']").count()]
            assert lost == [], kind
            seen.clean(url)
            if kind in judged:
                assert browsing.violations(seen.page, only_colours=scheme == "dark") == []


def test_numbers_open_the_command_is_copied_all_is_printed_and_the_theme_changes(
    chromium, pages, tmp_path
):
    paper = 718  # pixels of A4 between its margins
    allowed = {"permissions": ["clipboard-read", "clipboard-write"]}
    with browsing.visit(chromium, pages["run"], width=paper, scheme="dark", **allowed) as seen:
        page = seen.page
        details = page.locator("#mixture details.numbers")
        details.locator("summary").focus()
        page.keyboard.press("Enter")
        assert details.locator("table").first.is_visible()
        block = page.locator("footer .code")
        before = block.locator("button").text_content()
        block.locator("button").click()
        page.wait_for_function(
            "(before) => document.querySelector('.code button').textContent !== before", arg=before
        )
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == block.locator("code").text_content()
        # on paper
        page.pdf(path=tmp_path / "report.pdf", format="A4")
        printed = (tmp_path / "report.pdf").read_bytes()
        assert 3 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 25
        page.emulate_media(media="print", color_scheme="dark")
        ink = page.evaluate("getComputedStyle(document.querySelector('h1')).color")
        assert sum(map(int, re.findall(r"\d+", ink))) < 3 * 80
        for gone in ("button.theme", "nav.contents", "button.copy"):
            assert not any(one.is_visible() for one in page.locator(gone).all()), gone
        figures = page.locator("section.figure:not(#tree)").all()
        assert len(figures) > 8
        assert all(one.bounding_box()["height"] > 60 for one in figures)
        assert details.locator("table").first.is_visible()  # it was opened
        wide = page.locator("main *").evaluate_all(
            f"(all) => all.filter((one) => one.getBoundingClientRect().right > {paper + 1}).length"
        )
        assert wide == 0
        # on the screen again
        page.emulate_media(media="screen", color_scheme="dark")
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(ground)
        page.locator("button.theme").click()
        assert page.evaluate(ground) != dark
        seen.clean(pages["run"])


def test_text_from_outside_stays_text_and_the_policy_stops_code(chromium, tmp_path):
    path = tmp_path / "evil.html"
    report = report_on(hostile_run(tmp_path), batch_size=2, name=EVIL)
    path.write_text(report.html, encoding="utf-8")
    with browsing.visit(chromium, path.as_uri()) as seen:
        assert seen.page.evaluate("window.pwned") is None
        assert visible(EVIL) == seen.page.locator("h1").text_content()
        assert seen.page.locator("img, iframe, object, embed").count() == 0
        seen.clean(path.as_uri())
        seen.page.evaluate(
            """() => {
                const script = document.createElement("script");
                script.textContent = "window.pwned = 1";
                document.body.append(script);
                document.body.setAttribute("style", "background: red");
            }"""
        )
        seen.page.wait_for_timeout(200)
        assert seen.page.evaluate("window.pwned") is None
        ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground != "rgb(255, 0, 0)"
        assert any("Content Security Policy" in one for one in seen.complaints)


def test_views_are_seen_in_a_notebook_and_change_nothing_there(chromium, folder, run):
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
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>notebook</title>{FOREIGN}"
    body = f'<body data-jp-theme-light="false"><main>{shown}</main></body></html>'
    path = folder / "notebook.html"
    path.write_text(head + body, encoding="utf-8")
    with browsing.visit(chromium, path.as_uri()) as seen:
        for name in views:
            view = seen.page.locator(f"#{name} .tokenloom")
            assert view.bounding_box()["height"] > 150, name
        for name in ("step", "batch"):
            assert seen.page.locator(f"#{name} svg.strip").first.is_visible()
        colour = "(one) => getComputedStyle(one).color"
        for one in seen.page.locator("h3.theirs").all():
            assert one.evaluate(colour) == "rgb(1, 2, 3)"
        for one in seen.page.locator(".tokenloom h3").all():
            assert one.evaluate(colour) != "rgb(1, 2, 3)"
        sizes = "(one) => parseFloat(getComputedStyle(one).fontSize)"
        seen.page.evaluate(OPEN)
        assert all(one.evaluate(sizes) < 20 for one in seen.page.locator(".tokenloom table").all())
        for width in (360, 1280):
            seen.page.set_viewport_size({"width": width, "height": 900})
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        seen.clean(path.as_uri())
