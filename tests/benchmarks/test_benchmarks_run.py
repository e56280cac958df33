"""Every benchmark runs on a tiny size and prints its tables. Nothing is said about speed here."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TITLES = {
    "start": ["start"],
    "read": ["read 1", "read 2", "read 3"],
    "write": ["write"],
    "open": ["open"],
    "build": ["build, engine tiktoken", "build, engine reference", "build, where the CPU goes"],
    "loaders": ["loaders 1"],
    "packing": ["packing 1", "packing 2", "packing 3", "packing 4"],
    "rivals": [f"rivals {number}: " for number in range(1, 9)],
    "remote": ["remote"],
    "packed_rows": ["packed rows 1", "packed rows 2"],
    "splice": ["splice 1", "splice 2", "splice 3"],
    "mix": ["mix 1", "mix 2"],
    "native": ["native"],
    "run_files": ["run files"],
    "scaling": ["scaling"],
    "trainers": ["trainers 1", "trainers 2"],
}


@pytest.fixture
def temporary():
    """A folder with a short path: that of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    "asked", ["start", "order", "native", pytest.param("all", marks=pytest.mark.slow)]
)
def test_tables_are_printed_below_the_command_that_makes_them(tmp_path, temporary, asked):
    found = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", asked, "--size", "tiny", "--json", str(found)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=900,  # for hangs; nothing is said about speed
    )
    assert done.returncode == 0, done.stderr[-3000:]
    tables = json.loads(found.read_text())["tables"]
    for job, titles in TITLES.items() if asked == "all" else ():
        for title in titles:
            assert f"\n## {title}" in done.stdout
        assert f"\n$ python -m benchmarks {job} --size tiny\n" in done.stdout
    assert tables
    for table in tables:
        assert f"## {table['title']}\n$ {table['command']}\n" in done.stdout
        assert all(row["what"] in done.stdout and row["unit"] for row in table["rows"])
    assert list(temporary.iterdir()) == []  # what was generated is removed
