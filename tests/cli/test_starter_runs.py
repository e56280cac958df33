"""`tokenloom init` writes a finite run that loads without a warning; help says what builds."""

import json
import warnings

import numpy as np
import pytest

import tokenloom as tl
from tokenloom.cli import main


def lines(*texts):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def one_folder(root):
    (root / "a.jsonl").write_text(lines("to be or not to be"))


def unequal_folders(root):
    for name, count in (("small", 3), ("large", 400)):
        (root / name).mkdir()
        texts = (f"{name} {n} " * (1 + n % 7) for n in range(count))
        (root / name / "a.jsonl").write_text(lines(*texts))
        (root / name / "LICENSE").write_text("the same in both")


def kinds_beside_each_other(root):
    (root / "a.jsonl").write_text(lines("one", "two"))
    (root / "b.txt").write_text("three")
    (root / "c.txt").write_text("four")


def stores_and_text(root):
    tl.build([{"text": "there already"}], root / "stores/old", tokenizer="bytes")
    (root / "new").mkdir()
    (root / "new/a.jsonl").write_text(lines("x" * 100, "y" * 9))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (one_folder, []),
        (unequal_folders, ["--seq-len", "16", "--batch-size", "3"]),
        (kinds_beside_each_other, []),
        (stores_and_text, ["--seq-len", "16"]),
    ],
)
def test_it_is_a_finite_run_that_shows_every_token_once_and_warns_of_nothing(
    tmp_path, capsys, make, options
):
    make(tmp_path)
    assert main(["init", str(tmp_path), *options]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["check", str(tmp_path / "run.yaml")]) == 0
        run = tl.load(tmp_path / "run.yaml")
        assert run.is_finite
        with tl.Loader(run) as loader:
            batches = list(loader)
    assert len(batches) == -(-len(run) // run.file.loader["batch_size"])
    shown = dict.fromkeys(run.sources, 0)
    for row in range(len(run)):
        batch = run[row]
        shown[batch.source[0]] += int((batch.segment_ids > 0).sum())
    stored = {
        name: sum(map(len, (store[n] for n in range(len(store)))))
        for name, store in ((name, tl.open(one.path)) for name, one in run.sources.items())
    }
    assert shown == stored
    assert np.concatenate([batch.tokens for batch in batches]).shape[1] == run.seq_len
    capsys.readouterr()
    before = (tmp_path / "run.yaml").read_bytes()
    assert main(["init", str(tmp_path)]) == 1
    assert str(tmp_path / "run.yaml") in capsys.readouterr().err
    assert (tmp_path / "run.yaml").read_bytes() == before
