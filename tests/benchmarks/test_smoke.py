"""Every benchmark runs at its smallest size and prints its tables. No figure is judged here."""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks.__main__ import BY_NAME, JOBS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def temporary():
    """A folder with a short path: the path of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        yield Path(folder)


def benchmarks(*words, **variables):
    """What `python -m benchmarks` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, words)],
        cwd=ROOT,
        env=os.environ | {name: str(value) for name, value in variables.items()},
        capture_output=True,
        text=True,
        timeout=900,  # for hangs
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow  # tests/mission/test_be_benchmarks.py runs some of them in the default suite
@pytest.mark.parametrize("job", [*JOBS, *BY_NAME])
def test_a_benchmark_prints_its_tables_and_removes_what_it_wrote(job, tmp_path, temporary):
    out = benchmarks(
        *(job, "--size", "tiny", "--json", tmp_path / "tables.json"),
        TMPDIR=temporary,
        TORCHINDUCTOR_CACHE_DIR=tmp_path / "torch",
    )
    tables = json.loads((tmp_path / "tables.json").read_text())["tables"]
    assert tables
    for table in tables:
        assert f"## {table['title']}\n$ {table['command']}\n" in out
        assert table["rows"] or table["notes"]
        for row in table["rows"]:
            assert row["what"] in out
            assert row["unit"]
            assert math.isfinite(row["value"])
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_a_tree_is_not_slower_than_itself():
    out = benchmarks("against", ROOT, "--quick", "--only", "order", "--limit", "50")
    assert "nothing is slower" in out


@pytest.mark.slow
def test_the_picture_of_where_the_time_goes_is_drawn():
    ElementTree.fromstring(benchmarks("flame", "tiny"))


@pytest.mark.slow
def test_published_tables_are_printed(tmp_path):
    page = tmp_path / "page.md"
    page.write_bytes((ROOT / "docs/published.md").read_bytes())
    out = benchmarks("published", "--size", "tiny", "--write", "--page", page)
    assert out.count("\n## ") > 10
