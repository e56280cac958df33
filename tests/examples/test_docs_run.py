"""Code in README, docs and docstrings runs, imports public names, and links lead somewhere."""

import doctest
import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from toys import bpe_json

import tokenloom as tl
from tokenloom.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
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


def test_tests_named_in_the_docs_exist():
    named = {
        path
        for page in [*PAGES, ROOT / "SECURITY.md"]
        for path in re.findall(r"`(tests/[\w/.]+)`", page.read_text())
    }
    assert len(named) > 10
    places = [ROOT / path for path in named]
    assert [one for one in places if not one.is_file() and not any(one.rglob("*.*"))] == []


def test_make_targets_named_in_the_docs_exist():
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(r"(?:`|^ {4})make ([a-z-]+)", page.read_text(), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: make {target}"


ROOMS = {"order", "batch", "loader", "streams", "inspect", "evaluate", "cluster", "exchange"}
ROOMS |= {"quality", "report", "runfiles", "testing", "integrations.trainer"}
ROOMS |= {f"integrations.{x}" for x in ("grain", "hf", "jax", "levanter", "lightning", "torch")}


def private_imports(text):
    """What a page imports that is neither a public room nor a name of the root."""
    found = re.findall(r"from tokenloom(?:\.([\w.]+))? import|import tokenloom\.([\w.]+)", text)
    of_root = re.findall(r"from tokenloom import \(?([\w\s,]+)", text)
    names = {word.split()[0] for line in of_root for word in line.split(",") if word.strip()}
    rooms = {a or b for a, b in found} - {""}
    return (rooms - ROOMS) | (names - ROOMS - set(tl.__all__))


def test_docs_and_examples_import_public_names_only():
    found = {page.name: private_imports(page.read_text()) for page in [*PAGES, *EXAMPLES]}
    assert {name: names for name, names in found.items() if names} == {}
    assert private_imports("from tokenloom.store.reader import Reader") == {"store.reader"}


PICTURES = ["packed_row", "shares", "splices"]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_its_script_prints(name):
    script = ROOT / f"docs/pictures/{name}.py"
    made = subprocess.run([sys.executable, str(script)], capture_output=True, check=True)
    assert made.stdout == (ROOT / f"docs/pictures/{name.replace('_', '-')}.svg").read_bytes()


def modules():
    """Names of all that have an example."""
    package = Path(tl.__file__).parent
    for path in sorted(package.rglob("*.py")):
        name = ".".join(["tokenloom", *path.relative_to(package).with_suffix("").parts])
        # those of JAX run in a process of their own, see tests/integrations/test_jax.py
        if ">>> " in path.read_text() and "integrations.jax" not in name:
            yield name.removesuffix(".__init__")


@pytest.mark.parametrize("part", range(6))
def test_examples_in_docstrings_run(part):
    for name in [*modules()][part::6]:
        module = importlib.import_module(name)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert doctest.testmod(module, optionflags=flags).failed == 0, name
