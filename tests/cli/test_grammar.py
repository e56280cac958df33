"""A command line is read, helped and refused without loading anything that computes."""

import argparse
import shlex
import subprocess
import sys

import pytest

from tokenloom.cli import parser


def verbs(top=None, path=()):
    """(words, parser) of every command that does something."""
    for action in (top or parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                if sub.get_default("work"):
                    yield (*path, name), sub
                yield from verbs(sub, (*path, name))


EVERY = dict(verbs())


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_the_example_in_every_help_is_a_command_that_can_be_typed(words):
    lead, example = EVERY[words].epilog.split("tokenloom ", 1)
    assert lead == "Example: "
    typed = shlex.split(example)
    assert tuple(typed[: len(words)]) == words
    assert parser().parse_args(typed).work == EVERY[words].get_default("work")


def loaded_by(*words):
    """What a command prints and its exit code, and whether NumPy was loaded for it."""
    code = (
        "import sys\nfrom tokenloom.cli import main\n"
        f"try: code = main({list(words)!r})\nexcept SystemExit as end: code = end.code\n"
        "print('numpy' in sys.modules, code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, code = done.stdout.split("\n")[-2].split()
    return heavy == "True", int(code)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--version"], 0),
        (["show", "--help"], 0),
        (["splice", "audit", "stores/wiki", "--seq-len", "8", "--edge", "sharp"], 2),
    ],
)
def test_help_and_a_wrong_command_line_load_no_numpy(words, code):
    assert loaded_by(*words) == (False, code)


TAKES_A_RUN = {
    *("check", "plan", "at", "where", "find", "digest", "diff", "edit", "state"),
    *("show", "dataset", "audit", "simulate", "evaluate", "report", "explore"),
}


def test_every_command_that_reads_a_run_file_changes_its_values_in_one_way():
    """--set KEY=VALUE, and no word beside it that is KEY=VALUE."""
    options = {
        " ".join(words): {one for action in verb._actions for one in action.option_strings}
        for words, verb in EVERY.items()
    }
    assert {verb for verb, known in options.items() if "--set" in known} == TAKES_A_RUN
    for words, verb in EVERY.items():
        lists = [action for action in verb._actions if not action.option_strings]
        assert not any(action.nargs == "*" for action in lists), words
