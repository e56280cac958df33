"""`tokenloom simulate` and `tokenloom blame`: what they print, as text and as JSON."""

import json

import numpy as np
import pytest
from toyruns import toy_store

from tokenloom import blame
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


def test_blame_prints_the_documents_and_the_edit(run, described, tmp_path, capsys):
    rng = np.random.Generator(np.random.PCG64(1))
    spans = run.spans(np.arange(3200))
    share = np.bincount(spans.row, spans.length * (spans.document == 100), 3200) / 8
    losses = (3 + rng.normal(0, 0.1, 3200) + 4 * share).reshape(400, 8)
    records = [{"n": step, "l": row.tolist()} for step, row in enumerate(losses)]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(one) + "\n" for one in records))
    words = ["blame", described, "--losses", log, "--step-key", "n", "--loss-key", "l"]
    code, out, _ = ask(capsys, *words, "--batch-size", 8)
    found = blame(run, losses, batch_size=8)
    assert (code, out) == (0, repr(found) + "\n")
    assert "('main', 100)" in out
    assert blame(run, log, batch_size=8, step_key="n", loss_key="l") == found
    code, out, _ = ask(capsys, *words, "--batch-size", 8, "--json")
    assert ["main", 100] in json.loads(out)["named"]


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["simulate", "none.json", "--batch-size", 8], 3, "none.json"),
        (["simulate", "RUN", "--batch-size", 8, "--steps", 0], 2, "--steps: found 0"),
        (["simulate", "RUN", "--batch-size", 1, "--ranks", 2], 2, "--batch-size: found 1"),
        (["blame", "RUN", "--losses", "none.csv", "--batch-size", 8], 3, "none.csv"),
        (["blame", "RUN", "--losses", "RUN", "--batch-size", 8], 3, "'loss'"),
    ],
)
def test_errors_have_a_code_and_name_the_value(described, capsys, words, code, named):
    found, out, err = ask(capsys, *[described if word == "RUN" else word for word in words])
    assert (found, out) == (code, "")
    assert named in err


def test_a_file_that_is_no_description_is_refused(tmp_path, capsys):
    path = tmp_path / "bad.json"
    path.write_text("{")
    assert ask(capsys, "simulate", path, "--batch-size", 8)[0] == 2
    path.write_text('{"format": "other"}')
    code, _, err = ask(capsys, "simulate", path, "--batch-size", 8)
    assert code == 2
    assert "format" in err
