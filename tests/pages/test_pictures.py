"""Eight pictures of pages that people look at, compared with the ones that are stored.

After a change that is meant to be seen: `python docs/pictures/look.py` for the two of README, and
`pytest tests/pages/test_pictures.py --renew-goldens` for the other six. Look at them.
"""

import subprocess
import sys
import warnings
from pathlib import Path

import browsing
import pytest
from exploring import served
from pagetoys import everything_run

import tokenloom as tl
from tokenloom.explore.session import Session
from tokenloom.page.markup import tag
from tokenloom.page.sheet import document
from tokenloom.report import report_on

ROOT = Path(__file__).parents[2]
RENEW = "--renew-goldens"
FINGERPRINT = 0.002  # share of the pixels of a picture of README that its fingerprint may take
EXPLORED = {
    "step": "step?step=3",
    "row": "row?index=77&cell=9",
    "compare": "compare?a=1&b=2&row=3",
}


def test_pictures_in_the_readme_are_what_their_script_makes(tmp_path):
    script = [sys.executable, str(ROOT / "docs/pictures/look.py"), str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True)
    made_with = browsing.picture_made_with(ROOT / "docs/pictures/look.json")
    for name in ("report-light", "explore-light"):
        made = (tmp_path / f"{name}.png").read_bytes()
        stored = (ROOT / f"docs/pictures/{name}.png").read_bytes()
        assert browsing.size_of(made) == browsing.size_of(stored)
        if made_with == browsing.made_with():
            assert browsing.share_that_differs(made, stored) <= FINGERPRINT, name
        else:
            warnings.warn(f"{name}: made with {made_with}; only its size is compared", stacklevel=1)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with relative paths, so that its pages have the same words on every machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("pictures"))
        tl.save(everything_run(Path(".")), "run.yaml")
        yield tl.load("run.yaml")


@pytest.fixture(scope="module")
def report(run):
    Path("report.html").write_text(
        report_on(run, batch_size=8, ranks=2, name="everything").html, encoding="utf-8"
    )
    return Path("report.html").absolute().as_uri()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_a_report_looks_as_it_looked(chromium, report, width, scheme, request):
    renew = request.config.getoption(RENEW)
    screen = {"width": width, "height": 2000, "scheme": scheme}
    with browsing.visit(chromium, report, **screen) as seen:
        browsing.looks_like(seen.page, f"report-{width}-{scheme}", renew=renew, whole=False)


def test_the_explorer_looks_as_it_looked(chromium, run, request):
    renew = request.config.getoption(RENEW)
    with (
        served(Session([run], batch_size=8)) as server,
        browsing.visit(chromium, server.url, bypass_csp=True) as seen,
    ):
        for name, page in EXPLORED.items():
            seen.page.goto(server.url + page)
            # sticky heads of tables lie between two pixels, rounded either way
            seen.page.add_style_tag(content="th { position: static !important; }")
            browsing.looks_like(seen.page, f"explore-{name}", renew=renew)


def page_of(folder, *words):
    path = folder / "page.html"
    path.write_text(document("toy", tag("main", *(tag("h2", one) for one in words))))
    return path.as_uri()


def test_control_another_page_is_found_by_pixels_and_with_other_fonts_by_boxes(chromium, tmp_path):
    golden, other_fonts = tmp_path / "golden", {"chromium": "1", "fonts": []}
    with browsing.visit(chromium, page_of(tmp_path, "one", "two")) as seen:
        browsing.looks_like(seen.page, "same", renew=True, golden=golden)
        browsing.looks_like(seen.page, "fonts", renew=True, golden=golden, here=other_fonts)
        assert browsing.looks_like(seen.page, "same", golden=golden) == "pixels"
        with pytest.warns(UserWarning, match="boxes"):
            assert browsing.looks_like(seen.page, "fonts", golden=golden) == "boxes"
    with browsing.visit(chromium, page_of(tmp_path, "one and more letters")) as seen:
        with pytest.raises(AssertionError, match="pixels"):
            browsing.looks_like(seen.page, "same", golden=golden)
        with pytest.warns(UserWarning, match="boxes"), pytest.raises(AssertionError, match="parts"):
            browsing.looks_like(seen.page, "fonts", golden=golden)
