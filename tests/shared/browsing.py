"""A real Chromium for tests of pages: what it shows, what it asks for, and what it complains about.

A page is opened by `visit`, which notes every request, console line and error of it. `looks_like`
compares a screenshot with a golden one. Goldens were made with one major version of Chromium and
one version of each font; where others are installed, letters have other shapes, so the boxes of the
page's parts are compared instead, and a warning says so.
"""

import contextlib
import json
import re
import shutil
import subprocess
import warnings
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import sync_playwright

GOLDEN = Path(__file__).parents[1] / "golden" / "pages"
FONTS = ("fonts-noto-core", "fonts-noto-mono", "fonts-noto-cjk")
INSTALL = f"apt-get install --no-install-recommends chromium {' '.join(FONTS)}"
# parts whose boxes are compared: what a reader would see move
PARTS = "h1, h2, section, nav, footer, .answers li, .drawing, form, .cells"
FAR = 24  # pixels by which a box may differ where fonts are others; and 4 % of its size
CLOSE = 0.0003  # share of pixels that may differ where they are the same

# fingerprints and hashes are no looks: all their digits become zeros
ZEROS = """() => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
        text.data = text.data.replace(/\\b[0-9a-f]{12,}\\b/g, (hash) => "0".repeat(hash.length));
    }
}"""


def chromium():
    """The path of a browser; without one the test is skipped, and says how to get it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip(f"no chromium is installed: {INSTALL}")
    return found


@cache
def made_with():
    """Major version of the browser and versions of the fonts, as goldens name them."""
    version = subprocess.run([chromium(), "--version"], capture_output=True, text=True, check=True)
    fonts = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *FONTS],
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "chromium": re.search(r"Chromium (\d+)", version.stdout)[1],
        "fonts": sorted(fonts.stdout.splitlines()),
    }


@contextlib.contextmanager
def browser():
    """A running browser."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--font-render-hinting=none", "--disable-lcd-text"]
        running = playwright.chromium.launch(executable_path=chromium(), args=options)
        yield running
        running.close()


@dataclass
class Visit:
    """An open page and what it did."""

    page: object
    requests: list = field(default_factory=list)
    complaints: list = field(default_factory=list)

    def clean(self, *allowed):
        """Assert that nothing was complained about, and nothing asked for but what is allowed."""
        assert self.complaints == []
        others = [one for one in self.requests if not one.startswith(("data:", *allowed))]
        assert others == []


@contextlib.contextmanager
def visit(running, url, *, width=1280, height=900, scheme="light", **context):
    """Open a page in a context of its own."""
    opened = running.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
        **context,
    )
    page = opened.new_page()
    found = Visit(page)
    page.on("request", lambda request: found.requests.append(request.url))
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on(
        "console",
        lambda line: line.type in ("error", "warning") and found.complaints.append(line.text),
    )
    page.goto(url)
    try:
        yield found
    finally:
        opened.close()


def violations(page, *, only_colours=False):
    """What axe finds: the rule, and the first elements that break it.

    `only_colours`: contrasts alone, where another side of the page had all rules.
    """
    options = {"resultTypes": ["violations"]}
    if only_colours:
        options["runOnly"] = ["color-contrast"]
    found = Axe().run(page, options=options).response["violations"]
    return [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found]


def boxes(page):
    """Left, top, width and height of the parts of a page, in pixels."""
    return page.evaluate(
        """(parts) => [...document.querySelectorAll(parts)].map((one) => {
            const box = one.getBoundingClientRect();
            const name = one.tagName.toLowerCase() + (one.id ? "#" + one.id : "");
            return [name, box.left + scrollX, box.top + scrollY, box.width, box.height].map(
                (v) => typeof v === "number" ? Math.round(v) : v);
        })""",
        PARTS,
    )


def looks_like(page, name, *, renew=False, golden=GOLDEN, here=None, whole=True):
    """Compare a page with the golden picture of this name; gives how it was compared.

    Args:
        page: as it is to be seen, of any length.
        name: of the golden picture.
        renew: write the golden picture instead.
        golden: folder of the golden pictures.
        here: what `made_with` says; tests of this function pretend others.
        whole: the picture is of the whole page; else of what is on the screen.
    """
    here = here or made_with()
    page.evaluate(ZEROS)
    shot = page.screenshot(full_page=whole, animations="disabled")
    picture, about = golden / f"{name}.png", golden / f"{name}.json"
    if renew:
        golden.mkdir(parents=True, exist_ok=True)
        # a third of the bytes, and hardly another pixel
        few = Image.open(BytesIO(shot)).convert("RGB").quantize(256, Image.Quantize.FASTOCTREE)
        few.save(picture, optimize=True)
        about.write_text(json.dumps({"made_with": here, "boxes": boxes(page)}, indent=0) + "\n")
        return "renewed"
    known = json.loads(about.read_text())
    if known["made_with"] == here:
        assert share_that_differs(shot, picture.read_bytes()) <= CLOSE, f"{name}: other pixels"
        return "pixels"
    warnings.warn(
        f"{name}: the golden picture was made with {known['made_with']}, here is {here}; boxes "
        "are compared, not pixels",
        stacklevel=2,
    )
    compare_boxes(name, boxes(page), known["boxes"])
    return "boxes"


def picture_made_with(path):
    """What pictures were made with, as a file beside them says."""
    return json.loads(path.read_text())


def size_of(data):
    """Width and height of a PNG."""
    return Image.open(BytesIO(data)).size


def share_that_differs(one, other):
    """The share of pixels that differ visibly between two PNGs; 1 if their sizes differ."""
    a, b = (np.asarray(Image.open(BytesIO(data)).convert("RGB"), int) for data in (one, other))
    if a.shape != b.shape:
        return 1.0
    return float((np.abs(a - b).max(axis=2) > 24).mean())


def compare_boxes(name, found, known):
    """Assert that the same parts are at about the same places."""
    assert [one[0] for one in found] == [one[0] for one in known], f"{name}: other parts"
    drift = 0  # of what is above: other letters make taller lines
    for (part, *have), (_, *want) in zip(found, known, strict=True):
        for axis, (a, b) in enumerate(zip(have, want, strict=True)):
            allowed = FAR + 0.04 * max(abs(a), abs(b)) + (0.05 * b if axis == 1 else 0)
            assert abs(a - b) <= allowed, f"{name}: {part} is at {have}, was at {want}"
            drift = max(drift, abs(a - b))
    return drift
