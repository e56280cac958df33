"""Code in README and docs runs; links lead somewhere."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from toys import bpe_json

from tokenloom.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def ids(page):
    return str(page.relative_to(ROOT))


def workspace(folder: Path) -> None:
    (folder / "corpus").mkdir()
    for name in "ab":
        rows = [
            {"text": f"{name} tale of {i} looms " * (i + 1), "id": f"{name}{i}"} for i in range(40)
        ]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"corpus/{name}.jsonl").write_text(text)
    (folder / "tokenizer.json").write_text(bpe_json())


def run_pages():
    """Pages about trainers import them, which takes seconds each."""
    slow = [pytest.mark.slow]
    return [pytest.param(one, marks=slow * (one.parent.name == "trainers")) for one in PAGES]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize("page", run_pages(), ids=ids)
def test_python_and_console_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workspace(tmp_path)
    namespace: dict[str, object] = {}
    text = page.read_text()
    for found in FENCE.finditer(text):
        language, code = found.groups()
        if language == "python":
            above = "\n" * text.count("\n", 0, found.start(2))  # the lines of the page, for hooks
            exec(compile(above + code, str(page), "exec"), namespace)
        if language == "yaml" and (name := re.match(r"# (\w+\.yaml)\n", code)):
            Path(name[1]).write_text(code)  # a file that the page goes on with
        if language == "console":
            for line in code.splitlines():
                if line.startswith("$ tokenloom "):
                    assert main(shlex.split(line[12:], comments=True)) == 0


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_make_targets_named_in_the_docs_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"(?:`|^ {4})make ([a-z-]+)", page.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"


def test_benchmarks_named_in_the_docs_exist():
    known = {"all", *[p.stem for p in (ROOT / "benchmarks").glob("*.py")]}
    for page in PAGES:
        for name in re.findall(r"python -m benchmarks (\w+)", page.read_text()):
            assert any(name in stem for stem in known), name


SCRIPTS = ["packed_row", "shares", "splices"]
TRAINED = ["memorization-packed", "memorization-spliced"]  # by examples/memorization, in minutes
TIMED = ["flame"]  # by python -m benchmarks flame


def test_every_picture_is_compared_with_what_makes_it_or_takes_long_to_make():
    drawn = [one.replace("_", "-") for one in SCRIPTS]
    results = (one.stem for one in (ROOT / "science/results").glob("*.json"))
    known = [f"results-{one.replace('_', '-')}" for one in results]  # tests/science/test_report.py
    found = {one.stem for one in (ROOT / "docs/pictures").glob("*.svg")}
    assert found == {*drawn, *known, *TRAINED, *TIMED}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_picture_is_what_its_script_prints(name):
    script = ROOT / f"docs/pictures/{name}.py"
    made = subprocess.run([sys.executable, str(script)], capture_output=True, check=True)
    picture = ROOT / f"docs/pictures/{name.replace('_', '-')}.svg"
    assert made.stdout == picture.read_bytes()


def test_do_06_do_07_do_09_the_page_about_splices_says_what_they_cost_and_cannot_do():
    page = (ROOT / "docs/splice.md").read_text()
    for words in (
        "## What K costs",  # DO-06: compute goes with S, not with K
        "A frame costs the model S cells, whatever K is",
        "| RoPE | no: logits, loss and gradients are those of s = 0",  # DO-07
        "`offset_jitter` needs room: with K = S there is none",
        "an epoch of 30,000, of which 13,000 are repetitions",
        "| | one document | several |",  # DO-09
    ):
        assert words in page
