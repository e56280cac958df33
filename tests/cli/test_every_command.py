"""Every command: exit codes, the keys of its JSON as documented, errors, and five texts whole.

`python tests/cli/commands.py --renew` writes the golden files anew.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import COMMANDS, GOLDEN, REFUSED, VERDICTS, schema, text
from test_grammar import EVERY

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
    message = err[err.rindex("tokenloom: ") :].rstrip("\n")
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
