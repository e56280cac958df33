"""The report and the explorer as pictures: `python docs/pictures/look.py FOLDER`.

Needs Chromium and the `playwright` package (extra `test`). The text is the licence of this
project, so the pictures change only when the pages do.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from examples.demo.tokenizer import train  # noqa: E402

import tokenloom as tl  # noqa: E402
from tokenloom.explore.server import Server  # noqa: E402
from tokenloom.explore.session import Session  # noqa: E402
from tokenloom.report import report_on  # noqa: E402

OPTIONS = ["--no-sandbox", "--font-render-hinting=none", "--disable-lcd-text"]
WIDTH = 1180
HEIGHTS = {"report": 1090, "explore": 900}  # of a report as much as its first figure needs
BATCH = 8


def build_stores() -> None:
    """Two parts of the licence as stores in the working directory."""
    paragraphs = (ROOT / "LICENSE").read_text().split("\n\n")
    texts = [" ".join(one.split()) for one in paragraphs if one.strip()]
    train(texts, Path("tokenizer.json"), vocab_size=900)
    half = len(texts) // 2
    for name, some in (("terms", texts[:half]), ("grants", texts[half:])):
        rows = [{"text": text, "id": f"{name}-{n}"} for n, text in enumerate(some)]
        tl.build(rows, name, tokenizer="tokenizer.json", id_key="id", progress=False)


def licence_run(epochs: int, at: int) -> tl.Dataset:
    """A mix of both parts, whose weights change at an example."""
    terms, grants = tl.open("terms"), tl.open("grants")
    sources = {
        "terms": terms.pack(128).shuffle().epochs(epochs),
        "grants": grants.windows(128).shuffle().epochs(epochs),
    }
    run = tl.mix(sources, weights={"terms": 2}, cost="rows").seed(7)
    return run.edit(at=at, weights={"grants": 3})


def fullest(run: tl.Dataset) -> int:
    """The example with the most documents."""
    return max(run.at(range(len(run))), key=lambda one: len(one.spans)).index


def shoot(browser: Browser, url: str, height: int, out: Path) -> None:
    """One page as a picture."""
    size = {"width": WIDTH, "height": height}
    context = browser.new_context(viewport=size, color_scheme="light", reduced_motion="reduce")
    page = context.new_page()
    page.goto(url)
    tokens = page.locator(".cells .cell")
    if tokens.count():
        tokens.nth(tokens.count() // 2).hover()  # the panel beside them tells what it is
    page.screenshot(path=out, animations="disabled")
    context.close()


def main(folder: Path) -> None:
    """Two pictures: the report and the explorer."""
    out = folder.absolute()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        build_stores()
        run = licence_run(1, 24)
        report_on(licence_run(3, 36), batch_size=6, name="licence").save("report.html")
        server = Server(Session([run], ["licence"], BATCH))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        pages = {
            "report": Path("report.html").absolute().as_uri(),
            "explore": f"{server.url}row?index={fullest(run)}",
        }
        with sync_playwright() as playwright:
            path = shutil.which("chromium") or shutil.which("chromium-browser")
            browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
            for name, url in pages.items():
                shoot(browser, url, HEIGHTS[name], out / f"{name}-light.png")
            browser.close()
        server.shutdown()
        thread.join()
        server.server_close()
        os.chdir(out)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/pictures"))
