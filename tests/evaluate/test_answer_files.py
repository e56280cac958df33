"""Answers are written, read, sent between ranks, and refused when they are something else."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from markov import Markov
from refusals import refused

import tokenloom as tl
from tokenloom.evaluate import Decoding, Extraction, Losses, evaluate, pz
from tokenloom.evaluate.answer_files import packed


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(4)
    rows = [{"input_ids": rng.integers(0, 12, n).tolist()} for n in (20, 9, 31, 7, 50)]
    return tl.build(
        rows, tmp_path_factory.mktemp("shares") / "store", tokenizer=None, vocab_size=12
    )


def test_what_is_written_is_read_again(store):
    found = pz(Markov(), store, prefix=3, suffix=3, stride=2, decoding=Decoding(0.8, 5))
    again = Extraction.from_bytes(found.to_bytes())
    assert again.to_bytes() == found.to_bytes()
    assert again.as_json() == found.as_json()
    losses = evaluate(Markov(), store.pack(16))
    again = Losses.from_bytes(losses.to_bytes())
    assert again.to_bytes() == losses.to_bytes()
    assert again.as_json() == losses.as_json()
    assert Losses.joined([again]).as_json() == losses.as_json()


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", packed("toy", {}, {}), b"x" * 100])
def test_bytes_of_something_else_are_refused(data):
    refused(lambda: Losses.from_bytes(data), tl.InputError)


def test_nothing_that_runs_is_read(tmp_path):
    """An array of objects is pickle inside."""
    path = tmp_path / "a.npz"
    np.savez(path, about=np.array([{"kind": "losses"}], dtype=object))
    refused(lambda: Losses.from_bytes(path.read_bytes()), tl.InputError)


RANK = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch.distributed as dist
from markov import Markov
import tokenloom as tl
from tokenloom.evaluate import Periodic, evaluate, gathered, pz

dist.init_process_group("gloo")
store = tl.open(sys.argv[2])
found = gathered(pz(Markov(), store, prefix=3, suffix=3, stride=1, batch_size=8, progress=False))
losses = gathered(evaluate(Markov(), store.pack(16), progress=False))
job = lambda model: evaluate(model, store.pack(16), progress=False)
Periodic({"held": job}, folder=sys.argv[3], every=1)(Markov(), 1)
if dist.get_rank() == 1:
    print(json.dumps([found.as_json(), losses.as_json()]))
dist.destroy_process_group()
"""


def test_processes_find_together_what_one_finds(store, tmp_path):
    here = str(Path(__file__).parent)
    file = tmp_path / "meet"
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                RANK.replace(
                    '"gloo")', f'"gloo", init_method="file://{file}", rank={r}, world_size=2)'
                ),
                here,
                str(store.path),
                str(tmp_path / "results"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for r in range(2)
    ]
    printed = [one.communicate(timeout=900)[0] for one in started]
    assert [one.returncode for one in started] == [0, 0]
    found, losses = json.loads(printed[1].splitlines()[-1])
    alone = pz(Markov(), store, prefix=3, suffix=3, stride=1, batch_size=8)
    assert found == json.loads(json.dumps(alone.as_json()))
    wanted = evaluate(Markov(), store.pack(16)).as_json()
    assert losses["all"] == pytest.approx(wanted["all"], rel=1e-12)
    written = (tmp_path / "results/results.jsonl").read_text().splitlines()
    (record,) = map(json.loads, written)  # of the first rank alone, and of all rows
    assert record["results"]["held"] == losses
