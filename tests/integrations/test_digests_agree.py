"""Ruling 45: every adapter delivers the same rows, byte for byte; each hashes what it got.

To add an adapter, write a function (run → dicts of arrays, one for each of `STEPS` steps) and put
it into `ADAPTERS`.
"""

import importlib
import itertools
import logging
import warnings

import numpy as np
import pytest
from toyruns import mixed_run

import tokenloom as tl
from tokenloom.batch import digest_of, row_hashes

STEPS, SIZE = 50, 4
MORE = ("segment_ids", "position_ids", "loss_weights", "index")

pytestmark = [
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),  # JAX has threads; workers none
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),  # torchdata
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # few cores
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return mixed_run(tmp_path_factory.mktemp("digests"))


def numpy_loader(run):
    for batch in tl.Loader(run, SIZE, 0, 1):
        yield batch.to_numpy(fields=MORE)


def numpy_ranks(run):
    ranks = [tl.Loader(run, SIZE, rank, 3) for rank in range(3)]
    for parts in zip(*ranks, strict=True):
        made = [part.to_numpy(fields=MORE) for part in parts]
        yield {name: np.concatenate([one[name] for one in made]) for name in made[0]}


def torch_of(workers):
    def torch_dataloader(run):
        torch = importlib.import_module("tokenloom.integrations.torch")
        return torch.dataloader(run, SIZE, num_workers=workers, fields=MORE, rank=0, world_size=1)

    return torch_dataloader


def stateful_of(workers):
    def stateful(run):
        torchdata = importlib.import_module("torchdata.stateful_dataloader")
        ours = importlib.import_module("tokenloom.integrations.torch")
        from tokenloom.loader.passes import LoopPlace
        from tokenloom.loader.step_reader import StepReader

        reader = StepReader(run, SIZE, 0, 1)
        return torchdata.StatefulDataLoader(
            ours.StepDataset(reader, fields=MORE),
            batch_size=None,
            sampler=ours.StepSampler(LoopPlace(reader.passes)),
            num_workers=workers,
        )

    return stateful


def lightning(run):
    pl = importlib.import_module("lightning.pytorch")
    ours = importlib.import_module("tokenloom.integrations.lightning")
    torch = importlib.import_module("torch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    seen = []

    class Sees(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def training_step(self, batch, number):
            seen.append(batch)
            return self.weight * 0

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            max_steps=STEPS,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Sees(), ours.DataModule(run, SIZE, fields=MORE))
    assert len(seen) == STEPS  # what was fetched ahead was not seen
    return seen


def accelerate_of(**settings):
    """Ranks are found by Accelerate: this process is the only one."""

    def prepared(run):
        accelerate = importlib.import_module("accelerate")
        ours = importlib.import_module("tokenloom.integrations.hf")
        config = accelerate.DataLoaderConfiguration(**settings)
        one = accelerate.Accelerator(cpu=True, dataloader_config=config)
        return ours.prepare(one, run, SIZE, fields=MORE)

    return prepared


def accelerate_own(run):
    """A loader of torch that Accelerate prepares by itself."""
    accelerate = importlib.import_module("accelerate")
    return accelerate.Accelerator(cpu=True).prepare(torch_of(0)(run))


def grain_threads(run):
    grain = importlib.import_module("grain")
    ours = importlib.import_module("tokenloom.integrations.grain")
    steps = grain.MapDataset.source(ours.source(run, SIZE, fields=MORE, rank=0, world_size=1))
    options = grain.ReadOptions(num_threads=4, prefetch_buffer_size=16)
    return steps.to_iter_dataset(options)


def grain_iterator(run):
    ours = importlib.import_module("tokenloom.integrations.grain")
    return ours.iterator(run, SIZE, fields=MORE, rank=0, world_size=1)


ADAPTERS = {
    "numpy": numpy_loader,
    "numpy, 3 ranks": numpy_ranks,
    "torch, 0 workers": torch_of(0),
    "torch, 2 workers": torch_of(2),
    "torch, 4 workers": torch_of(4),
    "StatefulDataLoader": stateful_of(0),
    "StatefulDataLoader, 2 workers": stateful_of(2),
    "Accelerate": accelerate_of(),
    "Accelerate, dispatched": accelerate_of(dispatch_batches=True),
    "Accelerate, prepared by itself": accelerate_own,
    "Lightning": lightning,
    "Grain, 4 threads": grain_threads,
    "Grain iterator": grain_iterator,
}
SLOW = {"torch, 4 workers", "StatefulDataLoader, 2 workers", "Lightning"}


def hashes_of(batches):
    """The hash of every row of the first `STEPS` steps, by its index."""
    found = {}
    for batch in itertools.islice(batches, STEPS):
        index = np.asarray(batch["index"]).tolist()
        found.update(zip(index, row_hashes(batch), strict=True))
    return found


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in ADAPTERS],
)
def test_ruling_45_rows_of_every_adapter_have_the_digest_of_the_run(run, name):
    found = hashes_of(ADAPTERS[name](run))
    assert sorted(found) == list(range(STEPS * SIZE))
    assert digest_of(found[index] for index in range(STEPS * SIZE)) == run.digest(0, STEPS * SIZE)


@pytest.mark.parametrize("field", ["input_ids", "segment_ids", "position_ids", "loss_weights"])
def test_one_changed_cell_changes_the_digest_and_its_row_is_found(run, field):
    wanted = hashes_of(numpy_loader(run))

    def spoiled():
        for step, batch in enumerate(numpy_loader(run)):
            if step == 31:
                batch[field] = batch[field].copy()
                batch[field][2, 5] += 1
            yield batch

    found = hashes_of(spoiled())
    digest = digest_of(found[index] for index in sorted(found))
    assert digest != run.digest(0, STEPS * SIZE)
    different = [index for index in wanted if wanted[index] != found[index]]
    assert different == [31 * SIZE + 2]
