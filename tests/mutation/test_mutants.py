"""The mutation run itself: mutants are what they say, and a fork without one is unharmed."""

import gc
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutation.__main__ import ROOMS, ROOT, equivalents, modules
from mutation.forks import tried
from mutation.mutants import apply, mutants_of, sample
from mutation.rounds import plan_of, planned

CODE = '''
"""A module."""
import functools

def twice(function):
    @functools.wraps(function)
    def inner(*given):
        return function(*given)
    return inner

@twice
def middle(low, high):
    """The middle; 1 is no number here."""
    if low < high and high > 0:
        return min(low, high) + (high - low) // 2
    return -1

class Box:
    def __init__(self, size):
        self.size = size

    @property
    def full(self):
        found = [True]
        found.append(self.size == 3)
        return all(found)

    def __repr__(self):
        return "1" + str(1 + 1)

def refuse(value):
    if value < 0:
        raise ValueError(f"{value + 1}: below 0")
    return value
'''


@pytest.fixture
def module(tmp_path):
    (tmp_path / "toy.py").write_text(CODE)

    def load():
        spec = importlib.util.spec_from_file_location("toy", tmp_path / "toy.py")
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made

    return tmp_path, load


def behaviour(toy):
    """What the module does, as seen from outside."""
    found: list[object] = [repr(toy.Box(1))]
    for calls in (lambda: toy.middle, lambda: toy.refuse):
        for pair in ((0, 4), (4, 0), (-3, 0), (0, 1), (2, 2), (-2, 3)):
            try:
                given = pair if calls() is toy.middle else pair[:1]
                found.append(calls()(*given))
            except Exception as error:  # noqa: BLE001
                found.append(repr(error))
    for size in (2, 3):
        try:
            found.append(toy.Box(size).full)
        except Exception as error:  # noqa: BLE001
            found.append(repr(error))
    return found


@pytest.mark.slow
def test_every_mutant_changes_the_running_module_and_nothing_else_does(module):
    root, load = module
    usual = behaviour(load())
    assert behaviour(load()) == usual
    every = mutants_of(root, "toy.py")
    kinds = {mutant.kind for mutant in every}
    assert kinds >= {
        "compare",
        "operator",
        "and-or",
        "condition",
        "return",
        "number",
        "name",
        "call",
    }
    for mutant in every:
        toy = load()
        assert apply(root, mutant, toy) >= 1, mutant
        if mutant.function != "twice":
            assert behaviour(toy) != usual, mutant


def test_functions_that_the_collector_leaves_out_are_changed_too(module):
    """As those of tokenloom are, once tests were collected (see tests/conftest.py)."""
    root, load = module
    usual, toy = behaviour(load()), load()
    gc.freeze()
    mutant = next(one for one in mutants_of(root, "toy.py") if one.function != "twice")
    assert apply(root, mutant, toy) >= 1
    assert behaviour(toy) != usual


def test_what_is_written_for_people_is_left_alone(module):
    root, _ = module
    assert not [m for m in mutants_of(root, "toy.py") if "__repr__" in m.function]
    assert not [m for m in mutants_of(root, "toy.py") if "value + 1" in m.what]


def test_assertions_are_left_alone_and_lengths_that_may_differ_are_not(tmp_path):
    code = (
        "def f(a, b):\n    assert a > 1\n    return dict(zip(a, b, strict={})), sort(a, key=True)\n"
    )
    for strict, wanted in (("True", {"True → False"}), ("False", {"False → True", "True → False"})):
        (tmp_path / "toy.py").write_text(code.format(strict))
        found = {m.what for m in mutants_of(tmp_path, "toy.py") if m.kind != "return"}
        assert found == wanted


def test_the_sample_is_keyed_and_keeps_its_mutants_when_another_function_changes(module):
    root, _ = module
    every = mutants_of(root, "toy.py")
    assert sample(every, 5, "a") == sample(list(reversed(every)), 5, "a")
    assert sample(every, 5, "a") != sample(every, 5, "b")
    (root / "toy.py").write_text(CODE.replace("raise ValueError", "pass\n        raise ValueError"))
    again = {m.name for m in mutants_of(root, "toy.py")}
    assert {m.name for m in every if m.function != "refuse"} <= again


def test_names_are_unique_over_the_rooms():
    names = [m.name for one in modules(ROOMS) for m in mutants_of(ROOT, one)]
    assert len(names) == len(set(names)) > 5000


def test_every_equivalent_mutant_exists_and_has_a_reason():
    names = {m.name for one in modules(ROOMS) for m in mutants_of(ROOT, one)}
    for name, why in equivalents().items():
        assert name in names, name
        assert len(why) > 10, name


@pytest.mark.slow
def test_a_fork_kills_a_mutant_and_spares_none(tmp_path):
    """The control of the whole run: the same tests, with a mistake and without one."""
    every = mutants_of(ROOT, "src/tokenloom/loader/steps.py")
    (mutant,) = [m for m in every if m.function == "rank_rows" and m.kind == "return"]
    test = "tests/loader/test_steps.py"
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", test],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = [line for line in listed.stdout.splitlines() if "::" in line][:40]
    lines = {mutant.module: {mutant.first: names}}
    seconds = dict.fromkeys(names, 100.0)  # limits for a machine that is busy
    work = [planned(None, names, seconds), plan_of(mutant, lines, seconds, 1e6)]
    heard: list[dict[str, object]] = []
    told = tried(work, tmp_path, 1, heard.append)
    assert heard == told
    assert [one["verdict"] for one in told] == ["survived", "killed"]
    assert told[0]["failed"] == []
    assert len(told[1]["failed"]) == 1
