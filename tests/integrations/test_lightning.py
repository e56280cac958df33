"""Lightning: the state of the batch that was trained, through every way to stop and go on."""

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
from toyruns import toy_run, toy_store

from tokenloom.errors import StateError

torch = toys = DataModule = checkpoints = data_of = fit = trainer_of = None  # set by `imported`


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Imports Lightning (seconds) when a test runs, not when every worker collects them."""
    importlib.import_module("lightning.pytorch")
    toys = importlib.import_module("lightningtoys")
    names = ("DataModule", "checkpoints", "data_of", "fit", "trainer_of")
    globals().update({name: getattr(toys, name) for name in names})
    globals().update(torch=importlib.import_module("torch"), toys=toys)


pytestmark = [
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return toy_store(tmp_path_factory.mktemp("lightning") / "store")


@pytest.fixture(scope="module")
def run(store):
    return toy_run(store, epochs=1)


def slow_rows(n, size, passes, start=0):
    """Which examples each step has, one by one; short steps are dropped."""
    found = []
    for number in range(start // n, passes):
        here = list(range(max(start, number * n), (number + 1) * n))
        steps = [here[k : k + size] for k in range(0, len(here), size)]
        found += [step for step in steps if len(step) == size]
    return found


@pytest.fixture(scope="module")
def whole(run, tmp_path_factory):
    """Three epochs without interruption, and a checkpoint after every step."""
    folder = tmp_path_factory.mktemp("whole")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, data, _ = fit(run, 4, folder, every=1)
    return model, data, checkpoints(folder)


def test_ruling_38_the_state_is_that_of_the_trained_batch_also_at_an_epochs_end(run, tmp_path):
    """In one test, because importing Lightning takes seconds in every worker; more are slow."""
    model, data, _ = fit(run, 4, tmp_path, every=1, max_epochs=2)
    assert model.rows == slow_rows(37, 4, 2)
    assert data.state_dict()["examples"] == 2 * 37
    kept = checkpoints(tmp_path)
    for step in (5, 9):  # 9: the end of an epoch (verl 7401)
        resumed, _, _ = fit(run, 4, tmp_path / "again", kept[step], max_epochs=2)
        assert resumed.rows == model.rows[step:]
        assert resumed.losses == model.losses[step:]  # bit-equal
    resumed, _, trainer = fit(run, 2, tmp_path / "again", kept[5], max_epochs=2)
    assert resumed.rows == slow_rows(37, 2, 2, 20)
    assert trainer.current_epoch == 2


VALIDATED = {4: 3, 7: 3, 9: 2, 13: 2}  # ends of epochs that are left after a step


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("step", VALIDATED)
def test_another_batch_size_goes_on_at_the_same_example_and_ends_its_epochs_with_the_passes(
    run, whole, tmp_path, size, step
):
    state = torch.load(whole[2][step], weights_only=False)["DataModule"]
    resumed, data, trainer = fit(
        run, size, tmp_path, whole[2][step], data=data_of(run, size, val=run)
    )
    assert resumed.rows == slow_rows(37, size, 3, state["examples"])
    assert trainer.current_epoch == 3
    assert data.state_dict()["examples"] == 3 * 37
    validated = [i for rows in resumed.validated for i in rows]
    assert validated == VALIDATED[step] * list(range(37))


@pytest.mark.slow
def test_a_batch_whose_training_failed_is_trained_again(run, tmp_path):
    class Fails(toys.Callback):
        def on_before_backward(self, trainer, module, loss):
            if len(module.rows) == 6:
                raise RuntimeError("a bad step")

    data, trainer = data_of(run, 4), trainer_of(tmp_path)
    trainer.callbacks.append(Fails())
    with pytest.raises(RuntimeError, match="a bad step"):
        trainer.fit(toys.Toy(), data)
    assert data.state_dict()["examples"] == 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "micro", "steps", "workers"),
    [
        ({"accumulate_grad_batches": 3, "max_epochs": 2}, 3, (1, 3, 4), 0),
        ({"accumulate_grad_batches": 3, "max_epochs": 2}, 3, (1, 3, 4), 2),
        ({"limit_train_batches": 4, "max_epochs": 5}, 1, (3, 4, 9, 10, 12), 0),
    ],
)
def test_accumulation_and_limited_epochs_resume_bit_equal(
    run, tmp_path, options, micro, steps, workers
):
    model, _, _ = fit(run, 4, tmp_path, every=1, **options)
    kept = checkpoints(tmp_path)
    if micro == 1:  # limited epochs are the next steps of the run, across passes
        assert model.rows == slow_rows(37, 4, 3)[:20]
    else:
        assert sorted(kept) == [1, 2, 3, 4, 5, 6]
    for step in steps:
        data = data_of(run, 4, num_workers=workers)
        resumed, _, _ = fit(run, 4, tmp_path / "again", kept[step], data, **options)
        assert resumed.losses == model.losses[micro * step :]


@pytest.mark.slow
def test_validation_sees_every_example_of_every_run_every_time(run, store, tmp_path):
    other = toy_run(store, "block", epochs=1)
    data = data_of(run, 4, val={"a": run, "b": other}, eval_batch_size=5)
    model, _, _ = fit(run, 4, tmp_path, data=data, max_epochs=2, num_sanity_val_steps=0)
    once = [list(range(k, min(k + 5, 37))) for k in range(0, 37, 5)]
    assert model.validated == 4 * once
    assert model.rows == slow_rows(37, 4, 2)


@pytest.mark.slow
def test_a_rank_that_would_evaluate_only_filler_is_warned_of(run):
    """37 rows in steps of 6: the last has one, so the second of two ranks has none."""
    two = {"val": run, "eval_batch_size": 6, "rank": 1, "world_size": 2}
    with pytest.warns(UserWarning, match="1 rows for 2 ranks"):
        data_of(run, 4, **two).val_dataloader()
    for fine in ({"eval_end": "drop"}, {"eval_batch_size": 8}, {"rank": 0, "world_size": 1}):
        data_of(run, 4, **(two | fine)).val_dataloader()


@pytest.mark.slow
def test_overfit_batches_are_the_same_every_epoch(run, tmp_path):
    model, _, _ = fit(run, 4, tmp_path, overfit_batches=2)
    assert model.rows == 3 * slow_rows(37, 4, 1)[:2]


@pytest.mark.slow
def test_another_trainer_starts_from_the_beginning_and_the_same_one_goes_on(run, tmp_path):
    data = data_of(run, 4)
    first, _, trainer = fit(run, 4, tmp_path, data=data, max_epochs=1)
    again, _, _ = fit(run, 4, tmp_path, data=data, max_epochs=1)
    assert again.rows == first.rows
    looked = data_of(run, 4)
    next(iter(looked.train_dataloader()))  # a look at the first batch is no training
    third, _, _ = fit(run, 4, tmp_path, data=looked, max_epochs=1)
    assert third.rows == first.rows
    data, model = data_of(run, 4), toys.Toy()
    trainer = trainer_of(tmp_path, max_epochs=1)
    trainer.fit(model, data)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, data)
    assert model.rows == slow_rows(37, 4, 2)


@pytest.mark.slow
def test_a_checkpoint_without_our_state_and_one_of_another_run_are_refused(
    run, store, whole, tmp_path
):
    kept = torch.load(whole[2][5], weights_only=False)
    kept["Renamed"] = kept.pop("DataModule")  # Lightning finds a state by the name of the class
    kept["loops"]["fit_loop"]["state_dict"].pop("combined_loader")
    torch.save(kept, tmp_path / "other.ckpt")
    with pytest.raises(StateError, match="DataModule"):
        fit(run, 4, tmp_path, tmp_path / "other.ckpt")
    data = data_of(run, 4)
    data.load_state_dict(run.state(20))
    resumed, _, _ = fit(run, 4, tmp_path, tmp_path / "other.ckpt", data, max_epochs=1)
    assert resumed.losses == whole[0].losses[5:9]
    other = toy_run(store, "block", epochs=1)
    with pytest.raises(StateError, match="this run has"):
        fit(other, 4, tmp_path, whole[2][5])


TRAINED = """
    import json, os, signal, sys, warnings
    sys.path.insert(0, sys.argv[1])
    warnings.simplefilter("ignore")
    import tokenloom as tl
    import lightningtoys as toys
    from pathlib import Path

    def main():
        store, folder, stop, ckpt, devices = sys.argv[2:7]
        run = tl.open(store).windows(8).shuffle().seed(7).epochs(1)
        keep = toys.ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
        trainer = toys.trainer_of(
            folder, [keep], devices=int(devices), strategy="auto" if devices == "1" else "ddp"
        )
        log = open(f"{folder}/rows-{trainer.global_rank}.jsonl", "a")

        class Kill(toys.Callback):
            def on_train_batch_end(self, trainer, module, *rest):
                print(json.dumps([module.losses[-1], module.rows[-1]]), file=log, flush=True)
                if trainer.global_step == int(stop):
                    os.kill(os.getpid(), signal.SIGKILL)

        trainer.callbacks.insert(0, Kill())
        ckpt = None if ckpt == "none" else ckpt
        trainer.fit(toys.Toy(), toys.data_of(run, 4), ckpt_path=ckpt)

    if __name__ == "__main__":
        main()
"""


def trained(store, folder, stop=0, resume="none", devices=1):
    """Runs a training script; the (loss, rows) of every step of each rank."""
    folder.mkdir()
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAINED))
    here = str(Path(__file__).parent)
    shared = str(Path(__file__).parents[1] / "shared")
    arguments = [here, str(store.path), str(folder), str(stop), str(resume), str(devices)]
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), shared]),
        },
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == (-signal.SIGKILL if stop else 0), done.stderr[-3000:]
    files = [folder / f"rows-{rank}.jsonl" for rank in range(devices)]
    return [[tuple(json.loads(line)) for line in one.read_text().splitlines()] for one in files]


@pytest.mark.slow
def test_a_training_killed_by_sigkill_has_the_loss_curve_of_the_uninterrupted_one(
    store, whole, tmp_path
):
    model = whole[0]
    ((*first,),) = trained(store, tmp_path / "a", stop=5)
    last = checkpoints(tmp_path / "a")[max(checkpoints(tmp_path / "a"))]
    ((*second,),) = trained(store, tmp_path / "b", stop=13, resume=last)
    last = checkpoints(tmp_path / "b")[max(checkpoints(tmp_path / "b"))]
    ((*third,),) = trained(store, tmp_path / "c", resume=last)
    curve = dict(enumerate(model.losses))
    for part in (first, second, third):
        for loss, rows in part:
            step = model.rows.index(rows)
            assert loss == curve[step]
    steps = [model.rows.index(rows) for part in (first, second, third) for _, rows in part]
    assert set(steps) == set(range(27))


@pytest.mark.slow
def test_ddp_ranks_share_the_rows_of_each_step_once(store, whole, tmp_path):
    """Lightning's default use_distributed_sampler=True does not share them a second time."""
    ranks = trained(store, tmp_path / "two", devices=2)
    joined = [a + b for (_, a), (_, b) in zip(*ranks, strict=True)]
    assert joined == whole[0].rows
    resumed = trained(store, tmp_path / "one", resume=checkpoints(tmp_path / "two")[11], devices=1)
    assert [rows for _, rows in resumed[0]] == whole[0].rows[11:]
