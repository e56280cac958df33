"""A run in a loop with Accelerate: its order is left alone, and save_state keeps its place."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import accelerate_worker
import pytest
import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from accelerate.utils import GradientAccumulationPlugin
from hftrainers import HASHED, packed_run

from tokenloom.batch.views.digest import digest_of, row_hashes
from tokenloom.errors import ConfigError
from tokenloom.integrations.hf import prepare
from tokenloom.integrations.torch import dataloader


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return packed_run(tmp_path_factory.mktemp("store"))


WORKER = str(Path(__file__).parent / "accelerate_worker.py")


def accelerator(**options):
    return Accelerator(cpu=True, **options)


def seen(batches):
    return [batch["index"].tolist() for batch in batches]


SETTINGS = [
    {},
    {"dispatch_batches": True},
    {"split_batches": True},
    {"even_batches": False},
    {"use_stateful_dataloader": True},
    {"use_seedable_sampler": True},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_prepared_loader_has_the_rows_of_the_run(run, settings):
    config = DataLoaderConfiguration(**settings)
    loaders = [
        prepare(accelerator(dataloader_config=config), run, 8, fields=HASHED),
        accelerator(dataloader_config=config).prepare(dataloader(run, 8, fields=HASHED)),
    ]
    for loader in loaders:
        hashes = [one for batch in loader for one in row_hashes(batch)]
        assert digest_of(hashes) == run.digest(0, len(run) // 8 * 8)


@pytest.mark.parametrize(
    ("schedule", "n", "start"),
    [
        ([(0, 8), (24, 12)], 60, 0),
        ([(0, 8), (24, 12)], 61, 0),
        ([(0, 8), (48, 64)], 50, 0),
        ([(0, 8)], 50, 21),  # after a resume with another batch size
        ([(0, 4)], 7, 0),
    ],
)
def test_metrics_leave_out_the_filler_of_the_last_step(run, schedule, n, start):
    one, part = accelerator(), run.take(n)
    loader = prepare(one, part, schedule, fields=("index",), end="pad", repeat=not start)
    if start:
        loader.load_state_dict(part.state(start))
    gathered = [one.gather_for_metrics(batch["index"]).tolist() for batch in loader]
    assert list(itertools.chain(*gathered)) == list(range(start, n))
    assert start or [len(batch["index"]) for batch in loader][-1] in dict(map(reversed, schedule))


def test_save_state_and_load_state_keep_the_place(run, tmp_path):
    """Also with another batch size, and the pass is named again as loops over epochs do."""
    one = accelerator()
    loader = prepare(one, run, 8, fields=("index",))
    loop = iter(loader)
    for _ in range(3):
        next(loop)
    one.save_state(str(tmp_path))
    rest, second = seen(loop), seen(loader)
    for size in (8, 6):
        other = accelerator()
        again = prepare(other, run, size, fields=("index",))
        other.load_state(str(tmp_path))
        again.set_epoch(0)
        found = list(itertools.chain(*seen(again)))
        assert found == list(range(24, 24 + (len(run) - 24) // size * size))
        if size == 8:
            assert seen(again) == second
            assert found == list(itertools.chain(*rest))


def test_accumulation_steps_at_the_end_of_a_pass(run):
    """As Accelerate's own loaders tell it: what is left over is not carried into the next pass."""
    plugin = GradientAccumulationPlugin(num_steps=4, sync_with_dataloader=True)
    one = accelerator(gradient_accumulation_plugin=plugin)
    model = torch.nn.Linear(1, 1)
    model, optimizer = one.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    loader = prepare(one, run.take(40), 4)
    synced = []
    for _ in loader:
        with one.accumulate(model):
            one.backward(model(torch.ones(1, 1)).sum())
            optimizer.step()
            synced.append(one.sync_gradients)
    assert [n for n, sync in enumerate(synced) if sync] == [3, 7, 9]


def test_skipping_batches_is_an_error_not_another_order(run):
    with pytest.raises(TypeError):
        next(iter(skip_first_batches(prepare(accelerator(), run, 8), 2)))


@pytest.mark.slow
def test_two_processes_have_the_rows_of_a_step_between_them(run, tmp_path):
    """Plain, dispatched and split, prepared by us and by Accelerate; a state of two goes on in one.

    Processes that read everything, or every second batch, would not join to the steps in order.
    """
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    (store,) = (source.line.reader.root for source in run.sources.values())
    done = subprocess.run(
        [sys.executable, *launch, WORKER, str(store), str(tmp_path)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,  # for hangs
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    size = accelerate_worker.SIZE
    wanted = [list(range(at, at + size)) for at in range(0, len(run) // size * size, size)]
    assert len(first) == len(second) == 2 * len(accelerate_worker.SETTINGS)
    for name, batches in first.items():
        joined = [one + other for one, other in zip(batches, second[name], strict=True)]
        assert joined == wanted, name
        assert {len(batch) for batch in batches} == {size // 2}, name
    one = accelerator()
    again = prepare(one, run, 4, fields=("index",))
    one.load_state(str(tmp_path / "state"))
    assert seen(itertools.islice(again, 1)) == [[16, 17, 18, 19]]


def test_processes_that_share_rows_must_name_those_that_do_not(run):
    shared = SimpleNamespace(
        prepare_data_loader=None, parallelism_config=SimpleNamespace(tp_size=2)
    )
    with pytest.raises(ConfigError, match="group"):
        prepare(shared, run, 8)
