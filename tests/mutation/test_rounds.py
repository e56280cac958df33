"""The rounds of a mutation run on a toy project: what decides, what is kept and believed."""

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutation import forks
from mutation.cover import ANY, digest, read, stale
from mutation.kept import Kept
from mutation.mutants import mutants_of
from mutation.rounds import Rounds, plan_of

TESTS = Path(__file__).parents[1]
CODE = """
def bigger(a, b):
    if a < b:
        return b
    return a
"""

CHECKS = """
import os
from toys.room.toy import bigger

def test_good():
    bigger(1, 1)

def test_decides():
    assert bigger(1, 2) == 2

def test_hangs():
    while True:
        pass

def test_crashes():
    os._exit(7)

def test_unfit():
    assert os.getsid(0) != os.getpid(), "a fork has a session of its own"
"""

MORE = """
from toys.room.toy import bigger

def test_equal():
    assert bigger(1, 1) == 1
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A project of one module and its tests."""
    (tmp_path / "src/toys/room").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    (tmp_path / "src/toys/room/toy.py").write_text(CODE)
    (tmp_path / "test_toy.py").write_text(CHECKS)
    monkeypatch.setattr(forks, "ROOT", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # starts in a third of the time
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "src"), str(TESTS)]))
    return tmp_path


def run(root, tests):
    """One round over all mutants of the toy: (kind, line) → verdict; and the unfit tests."""
    seconds = {test: 1.0 + place for place, test in enumerate(tests)}
    kept = Kept(root / "kept", root)
    rounds = Rounds({"src/toys/room/toy.py": {ANY: tests}}, seconds, kept, root / "work", 1)
    mutants = mutants_of(root, "src/toys/room/toy.py")
    rounds.run("a round", mutants, 100.0)
    return {(m.kind, m.first): rounds.verdicts[m.name] for m in mutants}, rounds.unfit


@pytest.mark.slow
def test_a_round_decides_what_its_tests_decide_and_keeps_it(toy, capsys):
    tests = ["test_toy.py::test_good", "test_toy.py::test_decides"]
    verdicts, unfit = run(toy, tests)
    assert verdicts == {
        ("condition", 3): "killed",
        ("compare", 3): "survived",
        ("return", 4): "killed",
        ("return", 5): "survived",
    }
    assert not unfit
    told = capsys.readouterr().err
    assert "survived: src/toys/room/toy.py:5 bigger: return a" in told
    assert "a round: 4 of 4" in told

    assert run(toy, tests)[0] == verdicts
    assert "a round: 0 mutants to try, 4 known" in capsys.readouterr().err

    # a new test is tried on what survived, and on nothing else
    (toy / "test_more.py").write_text(MORE)
    verdicts, _ = run(toy, [*tests, "test_more.py::test_equal"])
    assert "a round: 2 mutants to try, 2 known" in capsys.readouterr().err
    assert verdicts["return", 5] == "killed"
    assert verdicts["compare", 3] == "survived"

    # what a test decided is not believed when the test is another one
    (toy / "test_more.py").write_text(MORE.replace("== 1", "!= 2"))
    verdicts, _ = run(toy, [*tests, "test_more.py::test_equal"])
    assert verdicts["return", 5] == "survived"


@pytest.mark.slow
def test_what_a_test_decides_that_fails_without_a_mutant_does_not_count(toy):
    verdicts, unfit = run(toy, ["test_toy.py::test_unfit", "test_toy.py::test_decides"])
    assert unfit == {"test_toy.py::test_unfit"}
    assert verdicts["return", 4] == "killed"
    assert verdicts["compare", 3] == "survived"
    assert run(toy, ["test_toy.py::test_unfit"])[0]["return", 4] == "not run by any test"


def test_a_test_that_hangs_or_crashes_ends_its_fork_and_is_named(toy):
    work = [
        {"mutant": None, "tests": ["test_toy.py::test_good", test], "limits": [100, limit]}
        for test, limit in (
            ("test_toy.py::test_hangs", 1),
            ("test_toy.py::test_crashes", 100),
            ("test_toy.py::test_decides", 100),
        )
    ]
    told = forks.tried(work, toy / "work", 2, lambda _: None)
    found = {(one["verdict"], *one["failed"]) for one in told}
    assert found == {
        ("hung", "test_toy.py::test_hangs"),
        ("crashed", "test_toy.py::test_crashes"),
        ("survived",),
    }


def test_a_second_round_runs_other_tests_than_the_first(toy):
    (mutant,) = [m for m in mutants_of(toy, "src/toys/room/toy.py") if m.kind == "compare"]
    tests = [f"tests/room/{number}" for number in range(10)]
    lines = {mutant.module: {mutant.first: tests, mutant.last + 1: ["elsewhere"]}}
    first = plan_of(mutant, lines, dict.fromkeys(tests, 1.0), 4.0)["tests"]
    second = plan_of(mutant, lines, dict.fromkeys(tests, 1.0), 100.0, set(first))["tests"]
    assert len(first) == 4
    assert sorted(first + second) == tests


def test_coverage_is_believed_as_long_as_the_files_are_as_they_were(toy):
    out = toy / "work/cover"
    told = {
        "lines": {"src/toys/room/toy.py": {"3": [0]}},
        "tests": ["test_toy.py::test_good"],
        "seconds": [1.5],
        "digests": {one: digest(toy / one) for one in ("src/toys/room/toy.py", "test_toy.py")},
    }
    Path(f"{out}.1.main").write_text(json.dumps(told))
    assert stale(out, toy, ["test_toy.py"]) == []
    assert read(out, toy) == (
        {"src/toys/room/toy.py": {3: ["test_toy.py::test_good"]}},
        {"test_toy.py::test_good": 1.5},
    )
    (toy / "src/toys/room/toy.py").write_text("\n" + CODE)
    assert read(out, toy)[0] == {"src/toys/room/toy.py": {ANY: ["test_toy.py::test_good"]}}
    (toy / "test_toy.py").write_text(MORE)
    assert stale(out, toy, ["."]) == ["test_toy.py"]
    assert read(out, toy) == ({"src/toys/room/toy.py": {ANY: []}}, {})


@pytest.mark.slow
def test_a_measurement_that_did_not_end_well_is_not_believed(toy, monkeypatch):
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")  # workers are a plugin
    (toy / "src/toys/__init__.py").touch()
    (toy / "tokenloom.py").touch()  # what is measured: nothing, here
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(toy), str(toy / "src"), str(TESTS)]))
    out = toy / "work/cover"
    (toy / "test_more.py").write_text(MORE)
    (toy / "test_bad.py").write_text("def test_bad():\n    assert False\n")
    with pytest.raises(SystemExit, match="test_bad"):
        forks.measured(["test_more.py", "test_bad.py"], out, 1)
    assert stale(out, toy, ["test_more.py"]) == ["test_more.py"]
    forks.measured(["test_more.py"], out, 1)
    assert stale(out, toy, ["test_more.py"]) == []
    assert set(read(out, toy)[1]) == {"test_more.py::test_equal"}
