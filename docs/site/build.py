"""Build the documentation site, strictly: `python docs/site/build.py [--out site]`.

One idea: the pages are those of the repository, as they are, so that their links work in both
places. They are copied into a temporary folder (README as the first page), the reference is written
beside them, and Sphinx runs with every warning as an error: a link that leads nowhere, a page that
no list names, a docstring that does not parse. Before that, `reference.problems` must be empty. The
site needs no network: neither when it is built nor when it is read.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import reference

ROOT = Path(__file__).resolve().parents[2]
LISTS = {  # caption → pages; a page that is in none of them is an error
    "Guide": [
        "docs/README",
        "docs/tour",
        "docs/building",
        "docs/from-what-you-have",
        "docs/stores",
        "docs/on-a-cluster",
        "docs/scale",
        "docs/fine-tuning",
        "docs/order",
        "docs/packing",
        "docs/boundaries",
        "docs/mixing",
        "docs/continue-a-run",
        "docs/looking",
        "docs/report",
        "docs/explore",
        "docs/splice",
        "docs/run-files",
        "docs/file-to-certificate",
        "docs/evaluation",
        "docs/memorization",
        "docs/audit",
        "docs/streams",
        "docs/remote",
        "docs/remote-writing",
        "docs/trainers/README",
        "docs/trainers/torch",
        "docs/trainers/hugging-face",
        "docs/trainers/lightning",
        "docs/trainers/jax",
        "docs/simulate",
        "docs/performance",
        "docs/published",
        "docs/results",
        "docs/troubleshooting",
    ],
    "Reference": ["reference/index", "docs/command-line-json", "docs/store-format"],
    "Project": [
        "docs/architecture",
        "docs/decisions/README",
        "CONTRIBUTING",
        "SECURITY",
        "CHANGELOG",
    ],
}
LINKED = ("src", "tests", "examples", "benchmarks", "LICENSE")  # pages may link to files of these


def main() -> int:
    """Build what the command line asks for; 0 if there was nothing to complain about."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="where (site)")
    parser.add_argument("--check", action="store_true", help="look for errors, write no site")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout with the pages")
    asked = parser.parse_args()
    _stand_in()
    wrong = reference.problems()
    for one in wrong:
        sys.stderr.write(f"{one}\n")
    if wrong:
        return 1
    with tempfile.TemporaryDirectory(prefix="tokenloom-site-") as kept:
        stage(asked.root.resolve(), Path(kept, "pages"))
        if asked.check:
            return build(Path(kept, "pages"), Path(kept, "doctrees"), Path(kept, "site"), "dummy")
        return build(Path(kept, "pages"), Path(kept, "doctrees"), asked.out, "html")


def _stand_in() -> None:
    """Lightning takes 10 s to import, and of it the reference needs the names of two classes."""
    name = "lightning.pytorch"
    module = types.ModuleType(name)
    module.LightningDataModule = type("LightningDataModule", (), {})  # type: ignore[attr-defined]
    module.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    package = types.ModuleType("lightning")
    package.pytorch = module  # type: ignore[attr-defined]
    sys.modules |= {"lightning": package, name: module}


def stage(root: Path, folder: Path) -> None:
    """Copy the pages of a checkout, and write those that are made."""
    folder.mkdir()
    for path in [*root.glob("*.md"), *(root / "docs").rglob("*")]:
        if path.is_file() and "__pycache__" not in path.parts:
            target = folder / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    for name in LINKED:
        (folder / name).symlink_to(root / name)
    (folder / "reference").mkdir()
    for name, text in reference.pages().items():
        (folder / f"reference/{name}.rst").write_text(text)
    _first_page(folder)
    _listed(folder / "docs/decisions/README.md")


def _first_page(folder: Path) -> None:
    """README is `index.md` here, with the lists of pages; links to it are changed."""
    readme = folder / "README.md"
    lists = "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in LISTS.items()
    )
    (folder / "index.md").write_text(readme.read_text() + lists)
    readme.unlink()
    for page in [*folder.glob("*.md"), *(folder / "docs").rglob("*.md")]:
        up = "../" * (len(page.relative_to(folder).parts) - 1)
        text = re.sub(
            rf"\]\({re.escape(up)}README\.md(?=[)#])", f"]({up}index.md", page.read_text()
        )
        page.write_text(text)


def _listed(page: Path) -> None:
    """The pages that a page links to, in its folder, are listed below it."""
    names = re.findall(r"\]\((\d[\w-]+)\.md\)", page.read_text())
    lines = "\n".join(["```{toctree}", ":hidden:", "", *names, "```"])
    page.write_text(f"{page.read_text()}\n{lines}\n")


def build(pages: Path, doctrees: Path, out: Path, builder: str) -> int:
    """Run Sphinx; its exit code is not 0 if it had anything to complain about."""
    if out.is_dir() and any(out.iterdir()) and not (out / "searchindex.js").is_file():
        sys.stderr.write(f"--out: {out} holds something else than a site; name another folder.\n")
        return 1
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder]
    command += ["-c", str(pages / "docs/site"), "-d", str(doctrees), str(pages), str(out)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
