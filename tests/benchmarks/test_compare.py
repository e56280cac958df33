"""Two runs of a benchmark, written as JSON: which rows are worse, beyond what their rounds vary."""

import doctest
import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks import clock, compare

ROOT = Path(__file__).parents[2]
STEADY = (1.00, 1.01, 1.00, 1.02, 1.01)
NOISY = (1.00, 1.30, 1.05, 1.20, 1.40)


def row(what, samples, unit="ms"):
    best = max(samples) if "/" in unit else min(samples)
    return clock.Row(
        what=what, value=best, median=sorted(samples)[len(samples) // 2], unit=unit, samples=samples
    )


def written(path, *rows, title="t", size="small", machine="Linux, 2 cores, load 1.0"):
    command = f"python -m benchmarks t --size {size}"
    table = clock.Table(title=title, command=command, rows=list(rows))
    path.write_text(json.dumps({"machine": machine, "tables": [table.as_json()]}))
    return str(path)


@pytest.fixture
def files(tmp_path):
    return tmp_path / "a.json", tmp_path / "b.json"


def compared(files, old, new, *words, unit="ms"):
    a = written(files[0], row("x", old, unit))
    b = written(files[1], row("x", new, unit))
    return compare.main([a, b, *words])


def times(samples, factor):
    return tuple(factor * one for one in samples)


def test_equal_runs_have_no_regression(files, capsys):
    assert compared(files, STEADY, STEADY) == 0
    out = capsys.readouterr().out
    assert "nothing is worse" in out
    # of the 25 ratios, the 4 smallest are 1/1.02 twice and 1/1.01 twice: the fifth is 1/1.01
    assert "| 1.000 | 0.990 to 1.010 | no " in out


def test_ten_percent_beyond_the_noise_is_a_regression(files, capsys):
    assert compared(files, STEADY, times(STEADY, 1.1)) == 1
    out = capsys.readouterr().out
    assert "| YES " in out
    assert "worse: t: x" in out
    assert compared(files, STEADY, times(STEADY, 1.1), "--limit", "1.2") == 0


def test_ten_percent_within_the_noise_is_none(files, capsys):
    assert compared(files, NOISY, times(NOISY, 1.1)) == 0
    assert "no, within noise" in capsys.readouterr().out


def test_a_worse_median_with_the_same_best_is_none(files):
    """A busy machine slows most rounds, rarely all of them."""
    assert compared(files, STEADY * 2, (1.0, *times(STEADY * 2, 1.5)[1:])) == 0
    assert compared(files, STEADY * 2, times(STEADY * 2, 1.5)) == 1


@pytest.mark.parametrize(
    ("unit", "factor", "code"),
    [
        ("ms", 1.1, 1),
        ("ms", 0.9, 0),
        ("CPU-s", 1.1, 1),
        ("Mtok/CPU-s", 1.1, 0),
        ("Mtok/CPU-s", 0.9, 1),
        ("Mtok/s", 0.9, 1),
    ],
)
def test_less_of_a_time_and_more_of_a_rate_is_better(files, capsys, unit, factor, code):
    assert compared(files, STEADY, times(STEADY, factor), unit=unit) == code
    assert ("no, better" in capsys.readouterr().out) == (code == 0)


@pytest.mark.parametrize(("rounds", "unit"), [(1, "ms"), (2, "ms"), (5, "MiB")])
def test_what_has_no_noise_or_no_direction_is_shown_but_not_judged(files, capsys, rounds, unit):
    assert compared(files, STEADY[:rounds], times(STEADY, 9)[:rounds], unit=unit) == 0
    assert "not judged" in capsys.readouterr().out


def test_rows_of_one_side_and_other_sizes_and_machines_are_told(files, capsys):
    a = written(files[0], row("x", STEADY), row("old", STEADY), row("y", STEADY))
    rows = row("x", STEADY), row("new", STEADY), row("y", STEADY, "µs")
    b = written(files[1], *rows, size="full", machine="Linux, 64 cores, load 2.0")
    assert compare.main([a, b]) == 0
    out = capsys.readouterr().out
    for line in (
        "only in a: t: old",
        "only in b: t: new",
        "in other units: t: y",
        "other machines: a on Linux, 2 cores, b on Linux, 64 cores",
        "--size small`, b `python -m benchmarks t --size full`",
    ):
        assert f"{line}\n" in out
    written(files[1], *rows, machine="Linux, 2 cores, load 9.0")
    compare.main([a, b])
    assert "other" not in capsys.readouterr().out.replace("in other units", "")


def test_indented_rows_and_repeated_ones_are_told_apart(files, capsys):
    both = row("x", STEADY), row("  more", STEADY), row("z", STEADY), row("  more", STEADY)
    a = written(files[0], *both, row("x", STEADY))
    b = written(files[1], *both[:3], row("  more", times(STEADY, 1.2)), row("x", STEADY))
    assert compare.main([a, b]) == 1
    out = capsys.readouterr().out
    assert "worse: t: z, more (" in out
    assert out.count("\n| x ") == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no JSON", "cannot be read as JSON"),
        ("[]", "found no tables"),
        ('{"rows": [], "machine": ""}', "an output of `benchmarks against`"),
        ('{"tables": [{"title": "t", "rows": [{"what": "x"}]}]}', "lacks 'unit'"),
        ('{"tables": []}', "no row in common"),
    ],
)
def test_files_that_are_not_comparable_are_refused_with_a_sentence(files, capsys, text, words):
    a = written(files[0], row("x", STEADY))
    files[1].write_text(text)
    assert compare.main([a, str(files[1])]) == 2
    caught = capsys.readouterr()
    assert words in caught.err
    assert caught.err.count("\n") == 1
    assert caught.out == ""


@pytest.mark.parametrize(("a", "b"), [(3, 3), (3, 6), (5, 4), (5, 5)])
def test_chance_is_that_of_all_orders_of_equal_rounds(a, b):
    """By enumeration: the share of orders with at most that many ratios on the wrong side."""
    wrong = [sum(p - i for i, p in enumerate(some)) for some in combinations(range(a + b), a)]
    out = compare.left_out(a, b)
    assert sum(one <= out for one in wrong) / len(wrong) <= compare.CHANCE
    assert sum(one <= out + 1 for one in wrong) / len(wrong) > compare.CHANCE


def test_rows_keep_all_their_rounds():
    timing = clock.interleave({"x": lambda: sum(range(1000))}, 4)["x"]
    made = clock.cost("x", timing, 2, "ms"), clock.rate("x", timing, 3, "k/CPU-s")
    assert made[0].samples == pytest.approx([500 * one for one in timing.rounds])
    assert made[1].samples == pytest.approx([3 / one for one in timing.rounds])
    assert made[0].wall == pytest.approx(500 * min(timing.walls))
    assert min(made[0].samples) == made[0].value  # the best of so few is the fastest
    walls = clock.rate("x", timing.by_wall(), 3, "k/s")
    assert (walls.samples, walls.wall) == (tuple(3 / one for one in timing.walls), None)


@pytest.mark.slow
def test_the_command_compares_what_a_benchmark_wrote(tmp_path):
    found = tmp_path / "found.json"
    options = {"cwd": ROOT, "env": {**os.environ, "TMPDIR": str(tmp_path)}, "text": True}
    job = [sys.executable, "-m", "benchmarks"]
    words = [*job, "order", "--size", "tiny", "--json", str(found)]
    subprocess.run(words, check=True, capture_output=True, timeout=600, **options)
    words = [*job, "compare", str(found), str(found)]
    done = subprocess.run(words, check=False, capture_output=True, timeout=600, **options)
    assert done.returncode == 0, done.stderr
    assert "nothing is worse" in done.stdout


def test_examples_in_docstrings_run():
    found = doctest.testmod(compare)
    assert found.attempted > 0 == found.failed
