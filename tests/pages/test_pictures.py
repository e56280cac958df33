"""Eight pictures of pages that people look at, compared with the ones that are stored.

After a change that is meant to be seen: `python docs/pictures/look.py` for the two of README, and
`pytest tests/pages/test_pictures.py --renew-goldens` for the other six. Look at them.
"""

import subprocess
import sys
import threading
import warnings
from io import BytesIO
from pathlib import Path

import browsing
import pytest
from pagetoys import everything_run
from PIL import Image

import tokenloom as tl
from tokenloom.explore.server import Server
from tokenloom.explore.session import Session
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
def urls(run):
    """Where each page is: a report in a file, and three pages of an explorer."""
    html = report_on(run, batch_size=8, ranks=2, name="everything").html
    Path("report.html").write_text(html, encoding="utf-8")
    report = Path("report.html").absolute().as_uri()
    server = Server(Session([run], batch_size=8))
    threading.Thread(target=server.serve_forever).start()
    yield {"report": report} | {name: server.url + page for name, page in EXPLORED.items()}
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("page", "name", "width", "scheme"),
    [
        ("report", "report-1280-light", 1280, "light"),
        ("report", "report-1280-dark", 1280, "dark"),
        ("report", "report-360-light", 360, "light"),
        *((name, f"explore-{name}", 1280, "light") for name in EXPLORED),
    ],
)
def test_a_page_looks_as_it_looked(chromium, urls, page, name, width, scheme, request):
    whole = page != "report"  # of a report the first screens
    screen = {"width": width, "height": 900 if whole else 2000, "scheme": scheme}
    with browsing.visit(chromium, urls[page], bypass_csp=True, **screen) as seen:
        # sticky heads of tables lie between two pixels, rounded either way
        seen.page.add_style_tag(content="th { position: static !important; }" if whole else " ")
        renew = request.config.getoption(RENEW)
        browsing.looks_like(seen.page, name, renew=renew, whole=whole)


def test_control_other_pixels_and_other_boxes_are_found():
    def drawn(width):
        picture = Image.new("RGB", (200, 100), "white")
        picture.paste("black", (10, 10, 10 + width, 20))
        data = BytesIO()
        picture.save(data, "PNG")
        return data.getvalue()

    assert browsing.share_that_differs(drawn(50), drawn(50)) == 0
    assert browsing.share_that_differs(drawn(50), drawn(57)) > browsing.CLOSE
    known = [["h1", 0, 10, 200, 40], ["p", 0, 60, 200, 20]]
    browsing.compare_boxes("same", known, known)
    moved = [known[0], ["p", 90, 60, 200, 20]]
    for other in (moved, known[:1]):
        with pytest.raises(AssertionError, match="other"):
            browsing.compare_boxes("other", other, known)
