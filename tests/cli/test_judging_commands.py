"""`tokenloom simulate`: what it prints, as text and as JSON."""

import json

import pytest
from toyruns import toy_store

from tokenloom.cli import main
from tokenloom.inspect import simulate_run


@pytest.fixture
def run(tmp_path):
    return toy_store(tmp_path / "s", rows=400).windows(8).shuffle().epochs(8).seed(3)


@pytest.fixture
def described(run, tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run.describe()))
    return path


def ask(capsys, *words):
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_simulate_prints_what_the_function_answers(run, described, capsys):
    words = ["simulate", described, "--steps", 50, "--ranks", 2, "--batch-size", 8]
    more = ["--cache", "1KiB", "--latency", 0.01, "--bandwidth", "1MB", "--step-seconds", 0.1]
    code, out, _ = ask(capsys, *words, *more)
    found = simulate_run(
        run,
        50,
        batch_size=8,
        ranks=2,
        cache_bytes=1024,
        latency=0.01,
        bandwidth=10**6,
        step_seconds=0.1,
    )
    assert (code, out) == (0, repr(found) + "\n")
    code, out, _ = ask(capsys, *words, *more, "--json")
    assert json.loads(out) == json.loads(json.dumps(found.to_dict()))


def test_simulate_takes_a_schedule(described, capsys):
    code, out, _ = ask(capsys, "simulate", described, "--batch-size", "0:8,80:16", "--json")
    about = json.loads(out)
    assert code == 0
    assert about["batch_size"] == [[0, 8], [80, 16]]
    assert (about["steps"], about["examples"]) == (205, 3200)
