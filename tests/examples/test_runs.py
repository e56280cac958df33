"""The run files of examples/runs load from a clean checkout, and the schema accepts them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import yaml

import tokenloom as tl
from tokenloom.runfiles import json_schema

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "examples/runs").glob("*.yaml"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A copy of the examples, where their stores are built."""
    folder = tmp_path_factory.mktemp("examples") / "runs"
    ignored = shutil.ignore_patterns("stores", "__pycache__")
    shutil.copytree(ROOT / "examples/runs", folder, ignore=ignored)
    return folder


def loaded(runs, name):
    run = tl.load(runs / name)
    with tl.Loader(run, rank=0, world_size=1) as loader:
        return run, next(loader)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_is_in_the_schema_and_small(path):
    plain = yaml.safe_load(path.read_text())
    plain = json.loads(json.dumps(plain))  # keys of stages are text in JSON
    jsonschema.Draft202012Validator(json_schema()).validate(plain)
    assert len(path.read_text().splitlines()) < 40


def test_there_are_four_of_them():
    names = ["chat", "five-sources", "memorization", "pretraining"]
    assert [path.stem for path in FILES] == names


def test_pretraining_packs_its_corpus_and_holds_documents_out(runs):
    run, batch = loaded(runs, "pretraining.yaml")
    assert batch.tokens.shape == (8, 256)
    held = run.file.evaluate["held"]
    trained = set(run.spans(range(64)).document.tolist())
    shown = set(held.spans(range(len(held))).document.tolist())
    assert shown
    assert not trained & shown
    assert len(trained | shown) == 60


def test_a_conversation_is_whole_and_trained_on_what_the_assistant_says(runs):
    run, batch = loaded(runs, "chat.yaml")
    spans = run.spans(range(10))
    assert (spans.start == 0).all()
    counted = batch.labels >= 0
    text = bytes(batch.labels[0][counted[0]].astype(np.uint8)).decode()
    assert "A " in text
    assert "What is" not in text


def test_memorization_shows_every_token_of_five_documents(runs):
    run, batch = loaded(runs, "memorization.yaml")
    spans = run.spans(range(len(run) // 2))
    assert len(set(spans.document.tolist())) == 5
    assert batch.tokens.shape == (16, 128)


def test_five_sources_change_their_shares_at_the_stage(runs):
    run, _ = loaded(runs, "five-sources.yaml")
    tokens = {name: [0, 0] for name in run.sources}
    for half, rows in enumerate((run.consumed(2000), run.consumed(4000))):
        for one in rows:
            tokens[one["name"]][half] = one["tokens"]
    first = {name: a for name, (a, _) in tokens.items()}
    later = {name: b - a for name, (a, b) in tokens.items()}
    for name, weight in {"tales": 4, "letters": 2, "notes": 2, "code": 1, "tables": 1}.items():
        assert abs(first[name] / sum(first.values()) - weight / 10) < 0.002
    for name, weight in {"tales": 4, "letters": 2, "notes": 2, "code": 4, "tables": 2}.items():
        assert abs(later[name] / sum(later.values()) - weight / 14) < 0.002


def test_the_script_shows_all_of_them(runs):
    done = subprocess.run(
        [sys.executable, str(runs / "show.py")],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert [f"== {path.name}" in done.stdout for path in FILES] == [True] * 4
