"""`report` and `explore` take a run without examples, which other commands refuse."""

import pytest

import tokenloom as tl
from tokenloom.cli import main


@pytest.mark.filterwarnings("ignore:.*no documents")
@pytest.mark.parametrize("command", [["report", "-o"], ["explore", "--seconds"]])
def test_commands_that_look_take_a_run_without_examples(tmp_path, command):
    (tmp_path / "none.jsonl").write_text("")
    none = str(tmp_path / "none.jsonl")
    empty = tl.build(none, tmp_path / "empty", tokenizer="bytes", progress=False)
    assert empty.num_documents == 0
    path = tmp_path / "empty.yaml"
    path.write_text("sources: {main: {store: empty, windows: 8}}\n")
    value = str(tmp_path / "r.html") if command[0] == "report" else "0.1"
    assert main([command[0], str(path), command[1], value]) == 0
    assert main(["plan", str(path)]) == 2
