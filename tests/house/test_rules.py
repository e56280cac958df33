"""The rules of the house hold, and each can fail: a tree that breaks it is shown to it."""

import functools
import re

import pytest
import rules
import surface
from tree import ROOT, Tree

import tokenloom

HOUSE = Tree.of()
RULES = [
    rules.wrong_root,
    rules.wrong_imports,
    rules.call_time_imports,
    rules.cycles,
    rules.wrong_annexes,
    rules.twins,
    rules.repeated_stems,
    rules.repeated_classes,
    rules.wrong_sizes,
    rules.wrong_docstrings,
    rules.wrong_effects,
    rules.wrong_locks,
    rules.half_copies,
    rules.wrong_digits,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_the_rule(rule):
    assert rule(HOUSE) == []


LONG = '"""Long."""\n' + "x = 1\n" * 60
BROKEN = {
    "an exponent in a report": (
        rules.wrong_digits,
        {"report.said": LONG + 'def f(x):\n    return f"{x:,.3g} blocks"\n'},
    ),
    "a module more in the root": (rules.wrong_root, {"weave": LONG}),
    "an import upwards": (
        rules.wrong_imports,
        {"store.up": LONG + "from tokenloom.loader.loader import Loader\n"},
    ),
    "an import inside a function": (
        rules.wrong_imports,
        {"api.late": LONG + "def f():\n    from tokenloom.store.reader import Reader\n"},
    ),
    "a second import at call time": (
        rules.call_time_imports,
        {
            "batch.views.annexes": HOUSE.sources["batch.views.annexes"]
            + "def again():\n    from tokenloom.inspect import coverage\n"
        },
    ),
    "an import at call time elsewhere": (
        rules.wrong_imports,
        {"api.late": LONG + "def f():\n    from tokenloom import inspect\n"},
    ),
    "an import by its name": (
        rules.call_time_imports,
        {"api.late": LONG + "def f():\n    import_module('tokenloom.inspect')\n"},
    ),
    "the annex imported when the module is loaded": (
        rules.wrong_annexes,
        {"batch.views.annexes": LONG + "from tokenloom import inspect\n"},
    ),
    "a room without a floor": (rules.wrong_imports, {"attic.box": LONG}),
    "a cycle": (
        rules.cycles,
        {
            "batch.one": LONG + "from tokenloom.batch.two import x\n",
            "batch.two": LONG + "from tokenloom.batch.one import x\n",
        },
    ),
    "an annex in the flow": (
        rules.wrong_annexes,
        {"loader.seen": LONG + "from tokenloom.inspect.coverage import coverage\n"},
    ),
    "run files in the flow": (
        rules.wrong_annexes,
        {"loader.filed": LONG + "from tokenloom.runfiles.text import read_settings\n"},
    ),
    "a file opened by what reads run files for others": (
        rules.wrong_effects,
        {"integrations.dialects.x": LONG + "open('run.yaml')\n"},
    ),
    "levanter outside config": (
        rules.wrong_annexes,
        {"cli.lev": LONG + "from tokenloom.integrations.levanter import load_yaml\n"},
    ),
    "two names of one stem": (rules.twins, {"layout.pack.packing": LONG}),
    "a room's stem in api": (rules.twins, {"api.batches": LONG}),
    "one name in two rooms": (rules.repeated_stems, {"loader.cells": LONG}),
    "one class name twice": (rules.repeated_classes, {"loader.x": LONG + "class Spans: ...\n"}),
    "a long module": (rules.wrong_sizes, {"loader.x": "x = 1\n" * 501}),
    "a short module": (rules.wrong_sizes, {"loader.x": '"""X."""\n'}),
    "a crowded room": (rules.wrong_sizes, {f"loader.x{i}": LONG for i in range(19)}),
    "no docstring": (rules.wrong_docstrings, {"loader.x": "x = 1\n" * 60}),
    "a room that says nothing": (
        rules.wrong_docstrings,
        {"layout.extra.__init__": '"""A room."""'},
    ),
    "an annex that says nothing": (
        rules.wrong_docstrings,
        {"testing.extra.__init__": '"""A room."""'},
    ),
    "a file opened": (rules.wrong_effects, {"batch.x": LONG + "open('x')\n"}),
    "a thread started": (
        rules.wrong_effects,
        {"order.x": LONG + "import threading\nthreading.Thread()\n"},
    ),
    "a thread started below": (
        rules.wrong_effects,
        {"order.x": LONG + "import _thread\n_thread.start_new_thread(f, ())\n"},
    ),
    "a lock": (rules.wrong_locks, {"batch.x": LONG + "import threading\nx = threading.RLock()\n"}),
    "a lock by its name": (
        rules.wrong_locks,
        {"batch.x": LONG + "from threading import Condition as C\nx = C()\n"},
    ),
    "a lock nobody renews": (
        rules.wrong_locks,
        {"batch.x": LONG + "from tokenloom.store.handles import Lock\nx = Lock()\n"},
    ),
    "a queue": (rules.wrong_locks, {"batch.x": LONG + "import queue\nx = queue.SimpleQueue()\n"}),
    "a property with a lock": (
        rules.wrong_locks,
        {"batch.x": LONG + "import functools\n@functools.cached_property\ndef f(): ...\n"},
    ),
    "an owner that can be half-copied": (
        rules.half_copies,
        {"batch.x": LONG + "class X:\n    def _forked(self, torn): lock_of(self)\n"},
    ),
    "a handle that can be half-copied": (
        rules.half_copies,
        {"batch.x": LONG + "class X:\n    def __del__(self): ...\n"},
    ),
    "an owner that a fork forgets": (
        rules.half_copies,
        {"batch.x": LONG + "class X(Single):\n    def f(self): lock_of(self)\n"},
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_tree_that_breaks_it_is_told(name):
    rule, sources = BROKEN[name]
    assert set(rule(Tree(HOUSE.sources | sources))) - usual(rule)


@functools.cache
def usual(rule):
    """What a rule says about the house as it is."""
    return set(rule(HOUSE))


DOORS = set(surface.ROOMS)
PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.py")]


def prose() -> str:
    more = [*PAGES, *(ROOT / "benchmarks").glob("*.py"), *(ROOT / "docs").rglob("*.py")]
    return "\n".join(page.read_text() for page in more)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_and_examples_use_the_common_word(page):
    assert rules.odd_words(page.read_text()) == []


def test_docstrings_comments_and_messages_use_the_common_word():
    wrong = {name: rules.odd_words(text) for name, text in HOUSE.sources.items()}
    assert {name: found for name, found in wrong.items() if found} == {}


def test_an_odd_word_is_found():
    assert rules.odd_words("fine\nso many, for ever") == ["2: so many", "2: for ever"]


def test_nothing_public_is_without_a_caller():
    assert rules.unreferenced(HOUSE, prose()) == []


def test_a_function_that_nobody_calls_is_told():
    lonely = {"batch.x": LONG + '__all__ = ["quite_lonely"]\ndef quite_lonely(): ...\n'}
    tree = Tree(HOUSE.sources | lonely)
    assert "batch.x.quite_lonely" in rules.unreferenced(tree, prose())
    assert "batch.x.quite_lonely" not in rules.unreferenced(tree, prose() + "quite_lonely()")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_docs_and_examples_import_public_namespaces_only(page):
    assert rules.foreign_imports(page.read_text(), DOORS, tokenloom.__all__) == []


def test_a_private_import_in_the_docs_is_told():
    for text, wrong in {
        "from tokenloom.store.reader import Reader": ["store.reader"],
        "import tokenloom.cli.printing as p": ["cli.printing"],
        "from tokenloom import Store, errors\nx = 1": ["errors"],
        "from tokenloom.batch.paint import paint": ["batch.paint"],
        "from tokenloom import order, open": [],
        "from tokenloom.streams import interleave": [],
    }.items():
        assert rules.foreign_imports(text, DOORS, tokenloom.__all__) == wrong


def named_paths(text):
    """What a page says is there: paths from the root, each perhaps with the name of a test."""
    return re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+)(?:::(\w+))?[^`]*`", text)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md"])
def test_paths_in_contributing_and_security_exist(page):
    named = named_paths((ROOT / page).read_text())
    assert len(named) > 10
    assert [path for path, _ in named if not (ROOT / path).exists()] == []
    tests = [(path, test) for path, test in named if test]
    assert [one for one in tests if f"def {one[1]}(" not in (ROOT / one[0]).read_text()] == []


def test_control_a_path_that_is_gone_is_found():
    text = "See `tests/house/gone.py` and `tests/house/test_rules.py::test_gone[x]`."
    assert named_paths(text) == [
        ("tests/house/gone.py", ""),
        ("tests/house/test_rules.py", "test_gone"),
    ]


def test_a_module_of_ours_in_contributing_is_named_with_its_path():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    files = re.findall(r"`([\w/.-]+\.(?:py|c|md))`", text)
    known = [path for path in files if (ROOT / path).exists()]
    assert set(files) - set(known) == {"utils.py"}  # which there is none of
