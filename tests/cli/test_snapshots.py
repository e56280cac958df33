"""What every command prints is known by heart, as lines, as JSON and as errors, and documented.

`python tests/cli/snapshots.py` renews the files.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from snapshots import COMMANDS, GOLDEN, file_of
from test_grammar import EVERY

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/command-line-json.md").read_text()
VERBS = [" ".join(words) for words in EVERY]


@pytest.fixture(scope="module")
def made():
    """What the commands print now, in a process of their own."""
    command = [sys.executable, str(Path(__file__).with_name("snapshots.py")), "--print"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout)


def answers(text):
    """(command line, what it printed, its exit code) of each command of a snapshot."""
    for block in re.split(r"^\$ tokenloom ", text, flags=re.MULTILINE)[1:]:
        line, _, rest = block.partition("\n")
        printed, code = re.fullmatch(r"(.*)^exit (\d+)\s*", rest, re.DOTALL | re.MULTILINE).groups()
        yield line, printed, int(code)


def objects(text):
    """(command line, JSON object, exit code) of each command of a snapshot with --json."""
    for line, printed, code in answers(text):
        if "--json" in shlex.split(line):
            yield line, json.loads(re.sub(r"^! .*\n", "", printed, flags=re.MULTILINE)), code


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_prints_what_it_printed(verb, made):
    assert made[verb] == file_of(verb).read_text(), "python tests/cli/snapshots.py renews it"


def test_every_command_has_a_snapshot_and_every_snapshot_a_command():
    assert sorted(COMMANDS) == sorted(VERBS)
    assert sorted(GOLDEN.iterdir()) == sorted(file_of(verb) for verb in VERBS)


def missing(lines, printed):
    """What a command lacks among its snapshots: lines, JSON, a mistake."""
    found = list(answers(printed))
    lacks = (
        [] if [line for line, _, code in found if not code and "--json" not in line] else ["lines"]
    )
    lacks += [] if list(objects(printed)) else ["JSON"]
    lacks += [] if [code for _, _, code in found if code] else ["a mistake"]
    return lacks + ([] if len(found) == len(lines) else ["a command line"])


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_is_shown_as_lines_as_json_and_with_a_mistake(verb):
    assert missing(COMMANDS[verb], file_of(verb).read_text()) == []


def test_control_a_command_without_json_or_a_mistake_is_told():
    assert missing(["a"], "$ tokenloom a\nfine\nexit 0\n") == ["JSON", "a mistake"]
    assert missing(["a --json", "b"], "$ tokenloom a --json\n{}\nexit 1\n") == [
        "lines",
        "a command line",
    ]


@pytest.mark.parametrize("verb", VERBS)
def test_a_mistake_as_json_has_two_keys_and_is_told_on_standard_error_too(verb):
    for line, printed, code in answers(file_of(verb).read_text()):
        if not printed.startswith('{"error"'):
            continue
        told, *others = printed.splitlines()
        assert code > 0
        assert list(json.loads(told)) == ["error", "message"]
        assert others == [f"! tokenloom: {json.loads(told)['message']}"], line


def test_mistakes_as_json_are_shown():
    texts = [file_of(verb).read_text() for verb in VERBS]
    assert sum(text.count('\n{"error": ') for text in texts) >= 4


def test_no_path_of_a_machine_is_in_a_snapshot():
    for verb in VERBS:
        assert not re.search(r"(?<![\w»])/(tmp|home|root|var)/", file_of(verb).read_text()), verb


# -- the page ------------------------------------------------------------------------------------

# what is below these has names of its own: sources, columns, laws, measures
BY_NAME = {
    "laws", "metadata", "columns", "evaluate", "loader", "settings", "settings_changed", "fair",
    "no_shuffle", "results", "speeds", "mixture_error", "missed", "losses", "windows", "by",
    "content", "evaluate_content", "control", "intervals", "figures", "files", "left_out",
    "numbers",
}  # fmt: skip
DEEP = {"results": 3, "speeds": 2, "loader": 2, "by": 2}  # levels of names


def keys(value, levels=0):
    """Every key of an answer, without names."""
    if isinstance(value, list):
        for one in value:
            yield from keys(one, levels)
    elif isinstance(value, dict):
        for name, one in value.items():
            if levels:
                yield from keys(one, levels - 1)
                continue
            yield name
            named = name in BY_NAME or (
                name in ("sources", "tokens", "documents") and isinstance(one, dict)
            )
            # the measures of a benchmark are named by it, not by us
            yield from (
                () if name in ("speeds", "loader") else keys(one, DEEP.get(name, 1) if named else 0)
            )


def section(verb, page=PAGE):
    """The words in backticks of a command's tables, and those in the first column."""
    found = re.search(rf"^### {verb}\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE)
    assert found, f"docs/command-line-json.md has no section {verb!r}"
    rows = [line for line in found[1].splitlines() if line.startswith("| `")]
    first = [re.findall(r"`(\w+)`", row.split(" | ")[0]) for row in rows]
    return set(re.findall(r"`(\w+)`", "\n".join(rows))), {name for names in first for name in names}


def known_keys(verb):
    return {
        name
        for _, answer, _ in objects(file_of(verb).read_text())
        if list(answer) != ["error", "message"]
        for name in keys(answer)
    }


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_has_every_key_of_a_commands_json_and_no_other(verb):
    shown, first = section(verb)
    assert known_keys(verb) - shown == set()
    assert first - known_keys(verb) == set()


def test_control_a_key_that_the_page_lacks_is_told():
    page = PAGE.replace("`reads_per_example`", "reads")
    assert known_keys("plan") - section("plan", page)[0] == {"reads_per_example"}


def test_control_a_key_that_no_command_prints_is_told():
    page = PAGE.replace("| `planned` |", "| `planed` |")
    assert section("plan", page)[1] - known_keys("plan") == {"planed"}


def test_control_keys_are_found_at_every_depth():
    answer = {"laws": {"order": {"verdict": 1}}, "new": [{"id": {"x": 2}}], "metadata": {"any": 1}}
    assert list(keys(answer)) == ["laws", "verdict", "new", "id", "x", "metadata"]
