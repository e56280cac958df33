"""Pictures of pages in README are what their script makes, and goldens are compared as they say."""

import subprocess
import sys
import warnings
from pathlib import Path

import browsing
import pytest
from pagetoys import copied_store, every_answer, everything_run, part_certificate, spliced_run

from tokenloom.page.markup import tag
from tokenloom.page.sheet import document
from tokenloom.report import report_on

ROOT = Path(__file__).parents[2]
RENEW = "--renew-goldens"
OPEN = """document.querySelectorAll("#splices .numbers, #shuffle .numbers, #lost .numbers").forEach(
    (one) => { one.open = true; })"""


def test_pictures_in_the_readme_are_what_their_script_makes(tmp_path):
    script = [sys.executable, str(ROOT / "docs/pictures/look.py"), str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    known = browsing.picture_made_with(ROOT / "docs/pictures/look.json")
    for name in ("report-light", "report-dark", "explore-light", "explore-dark"):
        made, kept = tmp_path / f"{name}.png", ROOT / f"docs/pictures/{name}.png"
        assert browsing.size_of(made.read_bytes()) == browsing.size_of(kept.read_bytes())
        if known == browsing.made_with():
            assert (
                browsing.share_that_differs(made.read_bytes(), kept.read_bytes()) <= browsing.CLOSE
            )
        else:
            warnings.warn(f"{name}: made with {known}; only its size is compared", stacklevel=1)


@pytest.fixture(scope="module")
def reports(tmp_path_factory, monkeypatch_module):
    """URLs of reports on everything, whose every word is the same on every machine."""
    folder = tmp_path_factory.mktemp("golden")
    monkeypatch_module.chdir(folder)
    run, store = everything_run(Path(".")), copied_store(Path("."))
    made = {
        "report": report_on(run, batch_size=8, ranks=2, name="everything"),
        "report-store": report_on(store, name="letters"),
        "report-audit": report_on(part_certificate(run), name="audit"),
        "report-evaluation": report_on(every_answer(store), name="knowing"),
        "report-open": report_on(spliced_run(Path(".")), batch_size=8, name="spliced"),
    }
    for name, one in made.items():
        (folder / f"{name}.html").write_text(one.html, encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in made}


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1280, "light"), (360, "dark"), pytest.param(2560, "light", marks=pytest.mark.slow)],
    ids=str,
)
@pytest.mark.parametrize(
    "name",
    [
        "report",
        "report-store",
        pytest.param("report-audit", marks=pytest.mark.slow),
        pytest.param("report-evaluation", marks=pytest.mark.slow),
    ],
)
def test_a_report_looks_as_it_looked(chromium, reports, name, width, scheme, request):
    renew = request.config.getoption(RENEW)
    with browsing.visit(chromium, reports[name], width=width, scheme=scheme) as seen:
        browsing.looks_like(seen.page, f"{name}-{width}-{scheme}", renew=renew)


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1280, "dark"), pytest.param(360, "light", marks=pytest.mark.slow)],
    ids=str,
)
def test_maps_and_open_tables_look_as_they_looked(chromium, reports, width, scheme, request):
    renew = request.config.getoption(RENEW)
    seen_in = {"width": width, "scheme": scheme, "bypass_csp": True}
    with browsing.visit(chromium, reports["report-open"], **seen_in) as seen:
        assert seen.page.locator("#splices image.map").count() > 0
        seen.page.evaluate(OPEN)
        seen.page.add_style_tag(content="th { position: static !important; }")
        browsing.looks_like(seen.page, f"report-open-{width}-{scheme}", renew=renew)


def test_control_the_report_on_something_else_does_not_look_the_same(chromium, reports, request):
    if request.config.getoption(RENEW):
        return
    with (
        browsing.visit(chromium, reports["report-store"]) as seen,
        pytest.raises(AssertionError, match="report-audit-1280-light"),
    ):
        browsing.looks_like(seen.page, "report-audit-1280-light")


def page_of(folder, *words):
    path = folder / "page.html"
    path.write_text(document("toy", tag("main", *(tag("h2", one) for one in words))))
    return path.as_uri()


def test_control_another_picture_is_found_by_its_pixels(chromium, tmp_path):
    golden = tmp_path / "golden"
    with browsing.visit(chromium, page_of(tmp_path, "one", "two")) as seen:
        assert browsing.looks_like(seen.page, "toy", renew=True, golden=golden) == "renewed"
        assert browsing.looks_like(seen.page, "toy", golden=golden) == "pixels"
    with (
        browsing.visit(chromium, page_of(tmp_path, "one", "twenty and more letters")) as seen,
        pytest.raises(AssertionError, match="other pixels"),
    ):
        browsing.looks_like(seen.page, "toy", golden=golden)


def test_control_with_other_fonts_boxes_are_compared_and_it_is_said(chromium, tmp_path):
    golden, other = tmp_path / "golden", {"chromium": "1", "fonts": []}
    with browsing.visit(chromium, page_of(tmp_path, "one", "two")) as seen:
        browsing.looks_like(seen.page, "toy", renew=True, golden=golden, here=other)
        with pytest.warns(UserWarning, match="boxes are compared"):
            assert browsing.looks_like(seen.page, "toy", golden=golden) == "boxes"
    with (
        browsing.visit(chromium, page_of(tmp_path, "one")) as seen,
        pytest.warns(UserWarning, match="boxes"),
        pytest.raises(AssertionError, match="other parts"),
    ):
        browsing.looks_like(seen.page, "toy", golden=golden)
