"""Two trees are compared in pairs of processes: a slower one is found, an equal one is not."""

import doctest
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import against, clock, workloads

ROOT = Path(__file__).parents[2]
QUICK = workloads.SIZES["quick"]
SLOW = """
import functools, time

def _slowed(function):
    @functools.wraps(function)
    def slow(*arguments, **options):
        start = time.process_time()
        while time.process_time() - start < 0.2:
            pass
        return function(*arguments, **options)
    return slow

plan_packing = _slowed(plan_packing)
"""


def compared(tree, *words):
    """`python -m benchmarks against` run in a tree."""
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "against", *map(str, words)],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree / "src")},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def copied(folder, *left_out):
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", *left_out)
    for name in ("src", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder


def files_of(tree):
    return sorted(str(path) for path in tree.rglob("*"))


@pytest.fixture
def slowed(tmp_path):
    """A copy of this tree in which every plan of a packing burns 0.2 CPU-seconds more."""
    tree = copied(tmp_path / "slowed")
    package = tree / "src/tokenloom/api/plan_packing.py"
    package.write_text(package.read_text() + SLOW)
    return tree


@pytest.mark.slow
def test_a_tree_with_a_slowdown_fails_and_its_row_is_named(slowed, tmp_path):
    samples = tmp_path / "samples.json"
    words = (ROOT, "--quick", "--only", "planning", "--json", samples)
    done = compared(slowed, *words)
    assert done.returncode == 1, done.stderr
    assert f"$ python -m benchmarks against {' '.join(map(str, words))}\n" in done.stdout
    assert "| YES " in done.stdout
    assert "slower: planning best_fit_decreasing" in done.stdout
    (row,) = json.loads(samples.read_text())["rows"]
    assert len(row["this"]) == len(row["other"]) == 2
    assert min(row["this"]) > 0.2 * workloads.PLANS / (workloads.PLANS * QUICK.documents)


@pytest.mark.slow
def test_a_tree_is_not_slower_than_one_with_a_slowdown_or_than_itself(slowed):
    before = files_of(slowed)
    done = compared(ROOT, slowed, "--quick", "--only", "planning")
    assert done.returncode == 0, done.stderr
    assert "| no, faster" in done.stdout
    assert "nothing is slower" in done.stdout
    assert "row 1 of 1, pair 0 of 2: planning" in done.stderr
    assert files_of(slowed) == before  # nothing is written into a tree
    done = compared(ROOT, ROOT, "--quick", "--only", "order", "--limit", "50")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| no ") == 2


def test_every_workload_runs_and_says_its_time(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "cache"))
    corpora, stores = tmp_path / "corpora", tmp_path / "stores"
    corpora.mkdir()
    workloads.write_corpora(corpora, QUICK)
    workloads._build(corpora, stores)
    for name, workload in workloads.WORKLOADS.items():
        found = workloads.measure(workload, stores, QUICK)
        assert len(found["cpu"]) == (1 if workload.cold else workloads.PASSES), name
        assert min(found["cpu"]) > 0 < found["things"], name
    assert {one.topic for one in workloads.WORKLOADS.values()} == set(workloads.TOPICS)


def test_a_plan_that_was_kept_is_not_timed(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENLOOM_CACHE_DIR", str(tmp_path / "cache"))
    seen = []
    monkeypatch.setattr(workloads.tl, "plan_packing", lambda lengths, **_: seen.append(lengths))
    plan, _ = workloads._plan(QUICK)
    plan(), plan()
    assert len({one.tobytes() for one in seen}) == 2 * workloads.PLANS


@pytest.mark.parametrize(
    ("this", "other", "words"),
    [("a.so", "b.so", "in both trees"), (None, None, "no compiled loops in either")],
)
def test_trees_with_equal_compiled_loops_are_compared(this, other, words):
    assert words in against.check_trees({"native": this}, {"native": other}, mixed=False)


@pytest.mark.parametrize(("this", "other"), [("a.so", None), (None, "b.so")])
def test_compiled_loops_in_one_tree_only_are_refused_unless_allowed(this, other):
    with pytest.raises(SystemExit, match=r"tree has none.*--allow-mixed"):
        against.check_trees({"native": this}, {"native": other}, mixed=False)
    told = against.check_trees({"native": this}, {"native": other}, mixed=True)
    assert told == "compiled loops in one tree only (--allow-mixed)"


def test_a_copy_without_its_compiled_file_is_seen_to_have_none(tmp_path):
    tree = copied(tmp_path / "copy", "*.so", "*.pyd")
    located = against._located(against.Tree(root=tree, folder=tmp_path))
    assert located["native"] is None
    assert str(tree) in located["package"]


def test_processes_keep_what_they_free(tmp_path, monkeypatch):
    seen = {}

    def ran(command, **options):
        seen.update(options["env"])
        return subprocess.CompletedProcess(command, 0, "{}", "")

    monkeypatch.setattr(against.subprocess, "run", ran)
    against.Tree(root=ROOT, folder=tmp_path).ask("where", "quick", 3)
    assert int(seen["MALLOC_TRIM_THRESHOLD_"]) >= 1 << 30
    assert seen["PYTHONPATH"] == str(ROOT / "src")
    assert seen["PYTHONHASHSEED"] == "3"


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="found no src/tokenloom"):
        against.main([str(tmp_path), "--quick"])


def test_rows_are_selected_by_topic_or_by_a_part_of_their_name():
    assert against.selected([]) == list(workloads.WORKLOADS)
    assert against.selected(["splice"]) == ["spliced, tokens only", "spliced, all arrays"]
    assert against.selected(["state_dict of a mix"]) == ["state_dict of a mix of 20"]
    with pytest.raises(SystemExit, match="Did you mean 'packing'"):
        against.selected(["packng"])


def rows_of(*ratios, limit=1.03):
    ones = (1.0,) * len(ratios)
    return against.Compared(what="x", each="batch", this=ratios, other=ones, limit=limit)


def test_a_row_is_slower_only_if_its_whole_interval_is():
    steady = [1.05 + 0.001 * i for i in range(20)]
    assert rows_of(*steady).is_slower
    # six of twenty pairs at 1.0: the sixth smallest ratio is the lower end of the interval
    assert not rows_of(*[1.0] * 6, *steady[6:]).is_slower
    assert rows_of(*[1.0] * 5, *steady[5:]).is_slower
    assert not rows_of(*steady, limit=1.1).is_slower
    assert rows_of(*[0.9] * 20).is_faster
    assert not rows_of(*[0.99] * 20).is_faster


@pytest.mark.parametrize("module", [against, clock], ids=lambda module: module.__name__)
def test_examples_in_docstrings_run(module):
    found = doctest.testmod(module)
    assert found.attempted > 0 == found.failed
