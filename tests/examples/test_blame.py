"""`examples/blame.py` finds a planted document in logged losses, and none where none is planted."""

import csv
import json

import numpy as np
import pytest
from examples.blame import main

import tokenloom as tl
from tokenloom.testing import write_store

PLANTED, STEPS, SIZE = 77, 900, 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """500 documents of 8 to 40 tokens, one in each row, thirty times over."""
    root = tmp_path_factory.mktemp("blamed")
    rng = np.random.default_rng(5)
    documents = [rng.integers(1, 1000, n).tolist() for n in rng.integers(8, 41, 500)]
    write_store(root / "store", [documents], vocab_size=1000, inner=512, chunk_tokens=2048)
    run = tl.open(root / "store").pack(64, strategy="one_doc").shuffle().epochs(30).seed(4)
    tl.save(run, root / "run.yaml")
    return root


def losses_of(run, planted, seed):
    """A falling loss of each row; tokens of some documents cost 3 more."""
    spans = run.spans(range(STEPS * SIZE))
    noise = np.random.default_rng(seed).normal(0, 0.3, (STEPS, SIZE))
    extra = 3.0 * np.isin(spans.document, planted).reshape(STEPS, SIZE)
    return 3 + 2 * np.exp(-np.arange(STEPS)[:, None] / 100) + noise + extra, spans.length


def write_log(folder, kind, planted, seed=1):
    """The losses as a logger would write them."""
    losses, lengths = losses_of(tl.load(folder / "run.yaml"), planted, seed)
    tokens = lengths.reshape(losses.shape)
    means = (losses * tokens).sum(axis=1) / tokens.sum(axis=1)
    path = folder / f"log.{'csv' if kind == 'csv' else 'jsonl'}"
    if kind == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("step", "loss"), *enumerate(means.tolist())])
        return path
    records = [{"step": step, "loss": loss} for step, loss in enumerate(means.tolist())]
    if kind == "rows":
        indices = np.arange(STEPS * SIZE).reshape(STEPS, SIZE).tolist()
        rows = zip(losses.tolist(), indices, strict=True)
        records = [{"step": n, "loss": row, "index": i} for n, (row, i) in enumerate(rows)]
    records = [records[5] | {"loss": None}, *records, {"step": 5, "eval": 1}]
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


@pytest.mark.filterwarnings("ignore:edit.quarantine")
@pytest.mark.parametrize("kind", ["jsonl", "csv", "rows"])
def test_a_planted_document_is_found_with_the_edit_that_takes_it_out(folder, kind, capsys):
    path = write_log(folder, kind, [PLANTED])
    assert main([str(folder / "run.yaml"), str(path), "--batch-size", str(SIZE)]) == 0
    printed = capsys.readouterr().out
    assert f"main document {PLANTED}: " in printed
    assert "cells" in printed  # where it is trained
    run = tl.load(folder / "run.yaml")
    edited = eval(printed.splitlines()[-1], {"run": run})  # noqa: S307 - as a user pastes it
    assert edited == run.edit(at=STEPS * SIZE, quarantine=[("main", PLANTED)])


@pytest.mark.parametrize("kind", ["jsonl", "rows"])
def test_control_without_a_planted_document_nothing_stands_out(folder, kind, capsys):
    for seed in range(3):
        path = write_log(folder, kind, [], seed)
        assert main([str(folder / "run.yaml"), str(path), "--batch-size", str(SIZE)]) == 1
        assert capsys.readouterr().out.startswith("Nothing stands out in")


def test_logs_without_what_is_needed_are_refused(folder, capsys):
    path = folder / "other.jsonl"
    words = [str(folder / "run.yaml"), str(path), "--batch-size", str(SIZE)]
    for text, named in (
        ('{"step": 1, "los": 2}', "'loss'"),
        ('{"step": 1, "loss": [1, 2]}', "'index'"),
    ):
        path.write_text(text)
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert named in str(ended.value) + capsys.readouterr().err
