"""Every command: exit codes, the keys of its JSON as documented, errors, and five texts whole.

`python tests/cli/commands.py --renew` writes the golden files anew.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import COMMANDS, GOLDEN, REFUSED, VERDICTS, schema, text
from test_grammar import EVERY

PAGE = (Path(__file__).parents[2] / "docs/command-line-json.md").read_text()
VERBS = [" ".join(words) for words in EVERY]


@pytest.fixture(scope="module")
def answers():
    """Command line → exit code, output, messages; in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("commands.py"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return json.loads(done.stdout)


def test_every_command_is_run_with_lines_and_with_json():
    assert sorted(COMMANDS) == sorted(VERBS)
    for verb, lines in COMMANDS.items():
        assert {"--json" in shlex.split(line) for line in lines} == {True, False}, verb


@pytest.mark.parametrize("verb", VERBS)
def test_a_command_prints_an_answer_and_exits_with_its_code(verb, answers):
    for line in COMMANDS[verb]:
        code, out, err = answers[line]
        assert code == VERDICTS.get(line, 0), (line, err)
        assert out or line.startswith(("find", "splice audit")), line
        assert "Traceback" not in err


@pytest.mark.parametrize(("code", "line", "named"), REFUSED, ids=[line for _, line, _ in REFUSED])
def test_a_mistake_is_one_message_that_names_it(code, line, named, answers):
    found, out, err = answers[line]
    assert found == code
    message = err.splitlines()[-1]
    assert message.startswith("tokenloom: ")
    assert named in message
    assert "Traceback" not in err
    if "--json" in shlex.split(line):
        answer = json.loads(out)
        assert list(answer) == ["error", "message"]
        assert message == f"tokenloom: {answer['message']}"
    else:
        assert out == ""


def test_json_has_the_keys_that_it_had(answers):
    assert schema(answers) == (GOLDEN / "keys.txt").read_text()


def test_five_commands_print_what_they_printed(answers):
    assert text(answers) == (GOLDEN / "text.txt").read_text()


@pytest.mark.parametrize("verb", VERBS)
def test_the_page_has_every_key_of_a_commands_json_and_no_other(verb):
    lines = (GOLDEN / "keys.txt").read_text().splitlines()
    paths = [line.split()[-2] for line in lines if line.startswith(f"{verb}: ")]
    keys = {key.strip("[]") for path in paths for key in path.split(".")} - {"*"}
    found = re.search(rf"^### {verb}\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    rows = [line for line in found[1].splitlines() if line.startswith("| `")]
    documented = set(re.findall(r"`(\w+)`", "\n".join(rows)))
    first = {key for row in rows for key in re.findall(r"`(\w+)`", row.split(" | ")[0])}
    assert keys - documented == set()
    assert first - keys == set()
