"""Trainings in processes of their own: killed and resumed, alone and in two processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hftrainers import packed_run

WORKER = str(Path(__file__).parent / "hf_worker.py")
TIMEOUT = 900  # seconds; against hangs only


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Plain text for a Trainer, data with a loss mask for fine-tuning."""
    folder = tmp_path_factory.mktemp("stores")
    return {kind: packed_run(folder / kind, masked=kind == "sft") for kind in ("trainer", "sft")}


@pytest.fixture(scope="module")
def run_files(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for kind, run in runs.items():
        (folder / f"{kind}.json").write_text(json.dumps(run.describe()))
    return {kind: str(folder / f"{kind}.json") for kind in runs}


def train(folder, run_file, processes=1, kind="trainer", **told):
    """Run a worker to its end, or to its death by its own kill."""
    folder.mkdir(exist_ok=True)
    told = json.dumps({"folder": str(folder), "run": run_file, "kind": kind, **told})
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launch if processes > 1 else []), WORKER, told]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT, env=environment, check=False
    )
    killed = json.loads(told).get("kill")
    assert done.returncode == (-9 if killed else 0), done.stderr[-3000:]
    lines = (folder / "losses.jsonl").read_text().splitlines()
    return [tuple(json.loads(line)) for line in lines]


KILLS = {  # a process each, which imports everything
    "trainer": [["saving", 4]],
    "sft": [["before", 1], ["saving", 4], ["begin", 5], ["saved", 6]],
}
OPTIONS = {"max_steps": 9, "save_steps": 2, "save_total_limit": 2}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KILLS)
def test_a_killed_training_has_the_losses_of_the_whole_one(tmp_path, run_files, kind):
    """Megatron-Bridge 4565: packed fine-tuning data whose loss jumps after a resume. With dropout,
    to the last bit; also after a kill in the middle of a checkpoint."""
    run_file = run_files[kind]
    whole = train(tmp_path / "whole", run_file, kind=kind, options=OPTIONS)
    assert [step for step, _ in whole] == list(range(1, 10))
    for kill in KILLS[kind]:
        train_until = {"kind": kind, "options": OPTIONS, "kill": kill}
        if kill[0] == "before":
            (tmp_path / "killed").mkdir()
            (tmp_path / "killed/losses.jsonl").touch()
        train(tmp_path / "killed", run_file, **train_until)
    found = train(tmp_path / "killed", run_file, kind=kind, options=OPTIONS)
    assert set(found) == set(whole)  # every step that was done again had the same loss
    assert len(found) > len(whole)  # some were


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path, run_files):
    """And a training of one process goes on in two, within a step's rounding."""
    run_file = run_files["trainer"]
    told = {"dropout": 0.0, "evaluate": True}
    options = {"max_steps": 6, "save_steps": 3, "per_device_eval_batch_size": 2}
    one = train(tmp_path / "one", run_file, options=options, **told)
    halved = options | {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 2}
    halved |= {"ddp_backend": "gloo"}
    two = train(tmp_path / "two", run_file, 2, options=halved, **told)
    assert [step for step, _ in two] == [step for step, _ in one]
    assert [loss for _, loss in two] == pytest.approx([loss for _, loss in one], abs=1e-6)
    loss, rows = json.loads((tmp_path / "one/eval.json").read_text())
    both, same = json.loads((tmp_path / "two/eval.json").read_text())
    assert both == pytest.approx(loss, abs=1e-5)
    assert same == rows  # 7 rows, in order, whichever process had them
    train(tmp_path / "mixed", run_file, options=options, dropout=0.0, kill=["saved", 3])
    mixed = train(tmp_path / "mixed", run_file, 2, options=halved, dropout=0.0)
    assert [loss for _, loss in mixed] == pytest.approx([loss for _, loss in one], abs=1e-5)
