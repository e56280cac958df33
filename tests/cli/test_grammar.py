"""A command line is read, helped and refused without loading anything that computes."""

import argparse
import importlib
import json
import shlex
import subprocess
import sys

import pytest

import tokenloom as tl
from tokenloom.cli import main, parser
from tokenloom.cli.grammar import layouts
from tokenloom.cli.show import USUAL
from tokenloom.documents.spec import MODES
from tokenloom.layout.pack.compare import ALL, SIMPLE
from tokenloom.layout.pack.spec import OVERFLOWS
from tokenloom.layout.splice.spec import WORDS


def verbs(top=None, path=()):
    """(words, parser) of every command that does something."""
    for action in (top or parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                if sub.get_default("work"):
                    yield (*path, name), sub
                yield from verbs(sub, (*path, name))


EVERY = dict(verbs())


def test_the_words_of_the_command_line_are_those_of_the_layouts():
    assert (*ALL, "bin") == layouts.STRATEGIES
    assert layouts.COMPARED == SIMPLE
    assert layouts.OVERFLOWS == OVERFLOWS
    assert layouts.MODES == MODES
    assert all(WORDS[name.replace("-", "_")] == words for name, words, _ in layouts.CHOICES)


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_the_work_of_a_command_is_where_its_grammar_says(words):
    module, function = EVERY[words].get_default("work").split(":")
    assert callable(getattr(importlib.import_module(f"tokenloom.cli.{module}"), function))


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
        (["--help"], 0),
        (["--version"], 0),
        (["show", "--help"], 0),
        (["shwo", "stores/wiki"], 2),
        (["show", "stores/wiki", "--dco", "1"], 2),
        (["pack-plan", "stores/wiki", "--seq-len", "many"], 2),
        (["splice", "audit", "stores/wiki", "--seq-len", "8", "--edge", "sharp"], 2),
    ],
)
def test_help_and_a_wrong_command_line_load_no_numpy(words, code):
    assert loaded_by(*words) == (False, code)


def test_a_command_that_does_something_loads_numpy(tmp_path):
    """The control: the probe above would see it."""
    assert loaded_by("info", str(tmp_path)) == (True, 1)
    assert main(["info", str(tmp_path)]) == 1


TAKES_A_RUN = {
    *("check", "plan", "at", "where", "next", "find", "digest", "diff", "edit", "state"),
    *("show", "dataset", "audit", "simulate", "blame", "evaluate", "report", "explore"),
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


@pytest.mark.parametrize(
    "words",
    [
        ("show", "STORE", "--doc", "0"),
        ("digest", "STORE"),
        ("find", "STORE", "a"),
    ],
    ids=" ".join,
)
def test_other_values_for_a_store_are_refused_not_ignored(words, tmp_path, capsys):
    tl.build([{"text": "abc"}], tmp_path / "toy", tokenizer="bytes")
    typed = [str(tmp_path / "toy") if word == "STORE" else word for word in words]
    assert main([*typed, "--set", "seed=3"]) == 2
    assert "--set" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("show", "STORE", "--doc", "0", "--examples", "3"),
        ("show", "RUN", "--doc", "0"),
        ("dataset", "RUN", "--eos", "2"),
        ("dataset", "ROWS", "--row", "0"),
    ],
    ids=" ".join,
)
def test_an_option_of_another_kind_of_target_is_refused_not_ignored(words, tmp_path, capsys):
    tl.build([{"text": "abc"}], tmp_path / "toy", tokenizer="bytes")
    (tmp_path / "run.yaml").write_text("sources: {a: {store: toy, windows: 2}}")
    (tmp_path / "rows.jsonl").write_text('{"input_ids": [1]}')
    named = {"STORE": "toy", "RUN": "run.yaml", "ROWS": "rows.jsonl"}
    assert main([str(tmp_path / named[word]) if word in named else word for word in words]) == 2
    assert words[-2] in capsys.readouterr().err


def test_the_usual_values_of_show_are_those_of_its_options():
    verb = EVERY["show",]
    assert {name: verb.get_default(name) for name in USUAL} == USUAL


REFUSED = [
    ("show stores/wiki --doc c17", "--doc", "'c17'", "tokenloom find STORE c17"),
    ("where run.yaml --doc 'a b'", "--doc", "--id 'a b'"),
    ("splice audit s --seq-len 8 --doc-index x", "--doc-index", "'x'", "splice audit --help"),
    ("shwo stores/wiki", "'show'"),
    ("show stores/wiki --dco 1", "--dco", "'--doc'"),
    ("check run.yaml seed=3", "seed=3"),
    ("simulate run.yaml --cache 2GiX", "--cache", "'2GiX'"),
    ("at run.yaml --batch-size 4:x", "--batch-size", "'4:x'"),
    ("simulate run.yaml --latency soon", "--latency", "'soon'"),
    ("pack-plan s --seq-len many", "--seq-len", "'many'"),
    ("build a.txt -o s --engine quick", "--engine", "'quick'", "fast"),
    ("build a.txt -o s --template-args {", "--template-args", "'{'"),
    ("build a.txt", "-o/--out"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[0])
def test_a_wrong_command_line_is_one_line_that_names_the_option_and_its_value(case, capsys):
    typed, *named = case
    with pytest.raises(SystemExit, match="2"):
        main(shlex.split(typed))
    message = capsys.readouterr().err
    assert message.startswith("tokenloom: ")
    assert message.count("\n") == 1
    assert [part for part in named if part not in message] == []


def test_no_option_of_a_command_is_read_by_a_function_that_says_invalid_value():
    """argparse names the function instead of what is allowed: invalid int value."""
    kinds = {action.type for verb in EVERY.values() for action in verb._actions}
    assert kinds & {int, float, json.loads} == set()


def test_keys_of_a_run_file_are_not_told_as_options(tmp_path, monkeypatch, capsys):
    """`--batch-size` is an option of the command, but the file has `batch_size`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text(
        "sources: {a: {store: s, pack: 8}}\nloader: {batch_siz: 4}\n"
    )
    assert main(["plan", "run.yaml", "--batch-size", "4"]) == 2
    told = capsys.readouterr().err
    assert "Did you mean 'batch_size'?" in told
    assert "--batch-size" not in told
