"""The documentation site builds without a warning, and the build can fail."""

import doctest
import html.parser
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from surface import ROOMS

import tokenloom as tl

ROOT = Path(__file__).parents[2]


def build(*words, source=ROOT / "src"):
    return subprocess.run(
        [sys.executable, str(ROOT / "docs/site/build.py"), *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=900,  # for hangs
        check=False,
    )


class Links(html.parser.HTMLParser):
    """What a page refers to, and the places in it that can be referred to."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.loaded, self.places = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.places |= {named.get("id")}
        self.targets |= {named[key] for key in ("href", "src") if named.get(key)}
        if tag in ("link", "script", "img"):
            self.loaded |= {named[key] for key in ("href", "src") if named.get(key)}


@pytest.mark.slow
def test_the_site_builds_and_is_whole(tmp_path):
    """One test, because the build is what takes time."""
    done = build("--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    every_link_leads_to_a_file_and_a_place_in_it(tmp_path)
    nothing_is_loaded_from_elsewhere(tmp_path)
    every_public_name_has_an_entry(tmp_path / "reference")
    signatures_are_those_of_the_code(tmp_path / "reference")


def every_link_leads_to_a_file_and_a_place_in_it(site):
    pages = {path: Links(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 50
    for path, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme:
                continue
            found = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert found.exists(), f"{path.name}: {target}"
            if parts.fragment and found in pages:
                known = pages[found].places
                assert unquote(parts.fragment) in known, f"{path.name}: {target}"


def nothing_is_loaded_from_elsewhere(site):
    for path in site.rglob("*.html"):
        loaded = Links(path.read_text()).loaded
        assert not [one for one in loaded if urlsplit(one).netloc], path.name
    for path in site.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//|@import", path.read_text()), path.name
    assert (site / "searchindex.js").is_file()  # search without a server


def every_public_name_has_an_entry(reference):
    pages = "".join(path.read_text() for path in reference.glob("*.html"))
    for door in ["", *ROOMS]:
        module = importlib.import_module(f"tokenloom.{door}".rstrip("."))
        for name in module.__all__:
            value = getattr(module, name)
            if door and getattr(tl, name, None) is value:
                page = (reference / f"{module.__name__}.html").read_text()
                assert "The same as" in page, name
                assert f'title="tokenloom.{name}"' in page, name
            else:
                full = f"{module.__name__}.{name}"
                assert f'id="{full}"' in pages or f'id="module-{full}"' in pages, full


def signatures_are_those_of_the_code(reference):
    page = (reference / "tokenloom.plan_packing.html").read_text()
    text = re.sub(r"<[^>]+>|\s", "", page)
    assert "overflow:str|Sequence[str]='split'" in text
    page = (reference / "tokenloom.Dataset.html").read_text()
    assert 'id="tokenloom.Dataset.era_shuffle"' in page
    assert "reader:" not in re.sub(r"<[^>]+>|\s", "", page)  # nobody makes a Dataset by hand


@pytest.fixture
def copy(tmp_path):
    for name in ("docs", "src", "tests/house"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for path in [*ROOT.glob("*.md"), ROOT / "LICENSE"]:
        shutil.copy(path, tmp_path)
    for name in ("examples", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.slow
def test_broken_links_and_a_page_that_no_list_names_fail(copy):
    page = copy / "docs/mixing.md"
    broken = "\n[gone](nowhere.md) [file](pictures/gone.svg) [place](order.md#no-such-heading)\n"
    page.write_text(page.read_text() + broken)
    (copy / "docs/lonely.md").write_text("# Lonely\n")
    done = build("--root", copy, "--check")
    assert done.returncode != 0
    for words in ("nowhere.md", "pictures/gone.svg", "no-such-heading", "lonely.md"):
        assert words in done.stderr, words


@pytest.mark.slow
def test_a_folder_with_something_else_is_not_replaced(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    done = build("--out", tmp_path)
    assert done.returncode == 1
    assert "holds something else than a site" in done.stderr
    assert (tmp_path / "thesis.tex").is_file()


CHANGES = {
    "tokenloom.Batch.segment_ids: no docstring": (
        "batch/batch.py",
        r'(    def segment_ids\(self\).*?:\n) {8}""".*?"""\n',
        r"\1",
    ),
    "tokenloom.build: no docstring": (
        "api/build.py",
        r'(def build_store\(.*?-> Store:\n) {4}""".*?"""\n',
        r"\1",
    ),
    "tokenloom.Dataset.take: no docstring": (
        "api/settings.py",
        r'(    def take\(.*?-> Self:\n) {8}""".*?"""\n',
        r"\1",
    ),
    "tokenloom.plan_packing: its docstring describes 'overflow', which is no parameter of it": (
        "api/plan_packing.py",
        r"overflow: str \| Sequence\[str\] = \"split\"|_listed\(overflow\)",
        lambda found: found[0].replace("overflow", "too_long"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", CHANGES)
def test_a_public_name_without_docstring_or_with_a_stale_one_fails(copy, words):
    name, pattern, new = CHANGES[words]
    path = copy / "src/tokenloom" / name
    changed = re.sub(pattern, new, path.read_text(), flags=re.DOTALL)
    assert changed != path.read_text()
    path.write_text(changed)
    done = build("--root", copy, "--check", source=copy / "src")
    assert done.returncode == 1, done.stderr
    assert words in done.stderr


@pytest.fixture
def reference(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs/site"))
    return importlib.import_module("reference")


def test_public_names_of_all_doors_have_an_example(reference):
    assert {one.name for one in reference.doors()} >= {f"tokenloom.{door}" for door in ROOMS}
    assert reference.without_examples() == []


def test_a_public_name_without_an_example_is_found(reference, monkeypatch):
    monkeypatch.setattr(tl.order.Order, "__doc__", "A bijection of range(n).")
    monkeypatch.setattr(tl.Batch, "__doc__", None)
    assert reference.without_examples() == ["tokenloom.Batch", "tokenloom.order.Order"]


def test_every_example_of_a_public_name_is_one_that_the_tests_run(reference, monkeypatch):
    """`test_surface` runs what doctest finds in each module; it passes over what it cannot see."""
    assert not_run(reference) == []
    monkeypatch.setattr(tl.order.full, "__module__", "tokenloom.errors")
    assert not_run(reference) == ["tokenloom.order.full"]


def not_run(reference):
    finder, found = doctest.DocTestFinder(exclude_empty=True), set()
    items = [(f"{d.name}.{name}", value) for d in reference.doors() for name, value in d.items]
    examples = [(name, v) for name, v in items if callable(v) and not reference.is_exception(v)]
    for module in {value.__module__ for _, value in examples}:
        tests = finder.find(importlib.import_module(module))
        found |= {test.name for test in tests if test.examples}
    return [name for name, v in examples if f"{v.__module__}.{v.__qualname__}" not in found]
