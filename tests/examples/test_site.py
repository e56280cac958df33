"""The documentation site builds without a warning, loads nothing from elsewhere, and can fail."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(*words):
    command = [sys.executable, str(ROOT / "docs/site/build.py"), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    done = build("--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    for path in pages:
        loaded = re.findall(
            r"<(?:script|img|link)[^>]*?(?:src|href)=[\"']([^\"']+)", path.read_text()
        )
        assert not [one for one in loaded if one.startswith(("http:", "https:", "//"))], path.name


@pytest.mark.slow
def test_broken_links_and_a_page_that_no_list_names_fail(tmp_path):
    for name in ("docs", "src"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for path in [*ROOT.glob("*.md"), ROOT / "LICENSE"]:
        shutil.copy(path, tmp_path)
    for name in ("examples", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    page = tmp_path / "docs/mixing.md"
    page.write_text(page.read_text() + "\n[gone](nowhere.md) [place](order.md#no-such-heading)\n")
    (tmp_path / "docs/lonely.md").write_text("# Lonely\n")
    done = build("--root", tmp_path, "--check")
    assert done.returncode != 0
    for words in ("nowhere.md", "no-such-heading", "lonely.md"):
        assert words in done.stderr, words
