"""Every benchmark runs on a tiny size and prints its tables. Nothing is said about speed here."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as entry
from benchmarks import build, clock, cluster, foreign

ROOT = Path(__file__).parents[2]
TITLES = {
    "start": ["start"],
    "read": ["read 1", "read 2", "read 3"],
    "write": ["write"],
    "open": ["open"],
    "build": ["build, engine tiktoken", "build, engine reference", "build, where the CPU goes"],
    "cluster": ["cluster 1", "cluster 2", "cluster 3"],
    "loaders": ["loaders 1"],
    "packing": ["packing 1", "packing 2", "packing 3", "packing 4"],
    "rivals": [f"rivals {number}: " for number in range(1, 9)],
    "remote": ["remote"],
    "foreign": ["foreign 1", "foreign 2", "foreign 3"],
    "buckets": ["buckets 1", "buckets 2", "buckets 3"],
    "exchange": ["exchange 1", "exchange 2"],
    "host": ["host 1", "host 2"],
    "lanes": ["lanes"],
    "levanter": ["levanter"],
    "order": ["order 1", "order 2", "order 3"],
    "packed_rows": ["packed rows 1", "packed rows 2"],
    "splice": ["splice 1", "splice 2", "splice 3"],
    "mix": ["mix 1", "mix 2"],
    "native": ["native"],
    "run_files": ["run files"],
    "scaling": ["scaling"],
    "looking": ["looking"],
    "explore": ["explorer", "explorer, long rows"],
    "simulate": ["simulate 1", "simulate 2"],
    "report": ["report"],
    "trainers": ["trainers 1", "trainers 2"],
    "audit": ["audit 1", "audit 2"],
    "evaluation": ["evaluation"],
}


@pytest.fixture
def temporary():
    """A folder with a short path: that of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("asked", ["order", pytest.param("all", marks=pytest.mark.slow)])
def test_tables_are_printed_below_the_command_that_makes_them(tmp_path, temporary, asked):
    found = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", asked, "--size", "tiny", "--json", str(found)],
        cwd=ROOT,
        # what torch keeps of its own is not ours to remove
        env=os.environ
        | {"TMPDIR": str(temporary), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch")},
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


def test_every_job_has_its_titles():
    assert set(TITLES) == set(entry.JOBS)


def test_a_peer_that_is_missing_is_a_row_that_fails_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(foreign, "MEGATRON", tmp_path / "nothing")
    table = foreign._beside_megatron(tmp_path / "corpus", 1, 1, "c")
    assert "not installed (make peers) | 0" in clock.render(table)
    assert [(row.goal, row.met) for row in table.rows] == [("at least 5x", False)]
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    table = cluster._ray_table(SimpleNamespace(how=cluster.SIZES["tiny"]), tmp_path, 1.0, "c", None)
    (row,) = table.rows
    assert "Ray, two at a time: cannot be imported" in row.what
    assert row.met is False


def test_a_size_that_a_job_does_not_have_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks", "mix", "--size", "huge"])
    with pytest.raises(SystemExit) as error:
        entry.main()
    assert error.value.code == 2
    assert "--size huge: only for build" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wanted", "walls", "met"),
    [
        (build.LARGE, (5.0, 7.0, 7.1), False),  # 0.56 of the best of one worker, 0.74 in the median
        (build.LARGE, (6.2, 6.3, 6.4), True),  # 0.69 and 0.66
        (build.LARGE // 4, (5.0, 7.0, 7.1), None),  # no goal
    ],
)
def test_a_second_worker_is_judged_at_a_gigabyte_by_the_median_on_the_wall(
    tmp_path, monkeypatch, wanted, walls, met
):
    taken = {"workers=1": (9.0, 9.5, 10.0), "default": (9.0, 9.5, 10.0), "workers=2": walls}
    timing = {name: clock._timing([(one, one) for one in each]) for name, each in taken.items()}
    monkeypatch.setattr(build, "interleave", lambda *_, **__: timing)
    bench = SimpleNamespace(
        file=lambda wanted: (tmp_path, wanted / 1e6), build=lambda *_, **__: None, rounds=4
    )
    rows = build._workers_table(bench, "fast", wanted, "c").rows
    two = next(row for row in rows if row.what == "workers=2, wall")
    assert two.met is met
