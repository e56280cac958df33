"""Every benchmark runs on a tiny size and prints its tables. Nothing is said about speed here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TITLES = {
    "read": ["read 1", "read 2", "read 3"],
    "write": ["write"],
    "open": ["open"],
    "build": ["build, engine tiktoken", "build, engine reference", "build, where the CPU goes"],
}


@pytest.mark.parametrize("job", TITLES)
def test_a_job_prints_its_tables_below_the_command_that_makes_them(job, tmp_path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "benchmarks", job, "--size", "tiny", "--json", str(found)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT / "src")},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    tables = json.loads(found.read_text())["tables"]
    for title in TITLES[job]:
        assert any(table["title"].startswith(title) for table in tables)
    for table in tables:
        assert f"## {table['title']}\n$ python -m benchmarks {job} --size tiny\n" in done.stdout
        assert all(row["what"] in done.stdout and row["unit"] for row in table["rows"])
    assert list(temporary.iterdir()) == []
