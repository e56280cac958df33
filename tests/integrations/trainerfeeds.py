"""A run as each trainer gets it: `feed = FEEDS[name](run, size)`, then steps and states.

A feed has `steps(n)`, the next n steps as dicts of arrays, and `state()`, as a checkpoint keeps it
after them; `state=` continues from one. Frameworks are imported when a feed is made.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import numpy as np

import tokenloom as tl
from tokenloom.loader import read_state

FIELDS = ("input_ids", "segment_ids", "position_ids", "loss_weights", "index")


class Feed:
    """Batches from an iterator of something that has states."""

    def __init__(self, run, size, state=None, **options):
        self.made = self.make(run, size, **({"rank": 0, "world_size": 1} | options))
        if state is not None:
            self.load(state)
        self.loop = iter(self.made)

    def steps(self, count):
        return list(itertools.islice(self.loop, count))

    def state(self):
        return json.loads(json.dumps(self.made.state_dict()))

    def load(self, state):
        self.made.load_state_dict(state)


class OfLoader(Feed):
    make = staticmethod(tl.Loader)

    def steps(self, count):
        return [batch.to_numpy(fields=FIELDS) for batch in super().steps(count)]


class OfTorch(Feed):
    workers = 0

    def make(self, run, size, **options):
        ours = importlib.import_module("tokenloom.integrations.torch")
        return ours.dataloader(run, size, num_workers=self.workers, fields=FIELDS, **options)


class OfTorchWorkers(OfTorch):
    workers = 2


class OfStateful(OfTorch):
    """torchdata's loader around a tokenloom dataset; its states hold tokenloom's."""

    def make(self, run, size, **options):
        theirs = importlib.import_module("torchdata.stateful_dataloader")
        self.ours = super().make(run, size, **options)
        return theirs.StatefulDataLoader(
            self.ours.dataset,
            sampler=self.ours.sampler,
            batch_size=None,
            num_workers=self.workers,
        )

    def state(self):
        found = super().state()
        if self.workers:
            found = found["_snapshot"]["_main_snapshot"]
        return found["_index_sampler_state"]

    def load(self, state):
        self.ours.load_state_dict(state)


class OfStatefulWorkers(OfStateful):
    workers = 2


class OfAccelerate(Feed):
    """Ranks are those that Accelerate knows: this process is the only one."""

    dispatch = None

    def accelerator(self):
        accelerate = importlib.import_module("accelerate")
        config = accelerate.DataLoaderConfiguration(dispatch_batches=self.dispatch)
        return accelerate.Accelerator(cpu=True, dataloader_config=config)

    def make(self, run, size, **_):
        ours = importlib.import_module("tokenloom.integrations.hf")
        return ours.prepare(self.accelerator(), run, size, fields=FIELDS)


class OfAccelerateDispatched(OfAccelerate):
    dispatch = True


class OfGrain(Feed):
    def make(self, run, size, **options):
        ours = importlib.import_module("tokenloom.integrations.grain")
        return ours.iterator(run, size, fields=FIELDS, **options)

    def state(self):
        return json.loads(json.dumps(self.loop.get_state()))

    def load(self, state):
        self.made.set_state(state)


class OfGrainThreads(OfGrain):
    """A source whose items are steps; Grain keeps states of its own."""

    def make(self, run, size, **options):
        grain = importlib.import_module("grain")
        ours = importlib.import_module("tokenloom.integrations.grain")
        steps = grain.MapDataset.source(ours.source(run, size, fields=FIELDS, **options))
        return steps.to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=16))


class OfLightning(Feed):
    """What a LightningModule is given in `training_step`."""

    def make(self, run, size, **options):
        ours = importlib.import_module("tokenloom.integrations.lightning")
        return ours.DataModule(run, size, fields=FIELDS, **options)

    def __init__(self, run, size, state=None, **options):
        self.made = self.make(run, size, **({"rank": 0, "world_size": 1} | options))
        if state is not None:
            self.load(state)

    def steps(self, count):
        pl = importlib.import_module("lightning.pytorch")
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
                max_steps=count,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
            )
            trainer.fit(Sees(), self.made)
        return seen


class OfTrainer(Feed):
    """What a Trainer of transformers gives its model; states are those of its checkpoints."""

    def __init__(self, run, size, state=None, **_):
        self.run, self.size, self.start = run, size, state
        self.folder = Path(tempfile.mkdtemp(prefix="tokenloom-tests-"))

    def steps(self, count):
        toys = importlib.import_module("hftrainers")
        model = toys.tiny()
        model.resize_token_embeddings(1000, mean_resizing=False)
        given = {"per_device_train_batch_size": self.size, "mine": {"fields": FIELDS}}
        first = 0
        if self.start is not None:
            first = self.start["step"]
            shutil.copytree(self.start["folder"], self.folder / f"checkpoint-{first}")
            given["resume"] = str(self.folder / f"checkpoint-{first}")
        options = {"max_steps": first + count, "save_steps": first + count, "model": model}
        self.trainer = toys.trained(self.run, self.folder, **options, **given)
        self.saved = self.folder / f"checkpoint-{first + count}"
        return self.trainer.fed

    def state(self):
        return read_state(self.saved / "tokenloom.json") | {"folder": str(self.saved)}


class OfJax(Feed):
    """Arrays on a mesh of four devices where they divide the rows, else on one."""

    def make(self, run, size, **options):
        jax = importlib.import_module("jax")
        if size % 4 == 0 and options["world_size"] == 1:
            options = {"mesh": jax.sharding.Mesh(np.array(jax.devices()), ("data",))}
        return of_jax(run, size, fields=FIELDS, **options)

    def steps(self, count):
        made = super().steps(count)
        return [{name: np.asarray(one) for name, one in batch.items()} for batch in made]


# -- what a user calls: the run, then its batch size and options ---------------------------------


def of_torch(run, *given, **options):
    ours = importlib.import_module("tokenloom.integrations.torch")
    return ours.dataloader(run, *given, **options)


def of_accelerate(run, *given, **options):
    accelerate = importlib.import_module("accelerate")
    ours = importlib.import_module("tokenloom.integrations.hf")
    return ours.prepare(accelerate.Accelerator(cpu=True), run, *given, **options)


def of_lightning(run, *given, **options):
    ours = importlib.import_module("tokenloom.integrations.lightning")
    return ours.DataModule(run, *given, **options)


def of_grain(run, *given, **options):
    return importlib.import_module("tokenloom.integrations.grain").iterator(run, *given, **options)


def of_grain_source(run, *given, **options):
    return importlib.import_module("tokenloom.integrations.grain").source(run, *given, **options)


def of_jax(run, *given, **options):
    return importlib.import_module("tokenloom.integrations.jax").batches(run, *given, **options)


ADAPTERS = {
    "torch": of_torch,
    "Accelerate": of_accelerate,
    "Lightning": of_lightning,
    "Grain": of_grain,
    "Grain, source": of_grain_source,
}
FEEDS = {
    "Loader": OfLoader,
    "torch": OfTorch,
    "torch, 2 workers": OfTorchWorkers,
    "StatefulDataLoader": OfStateful,
    "StatefulDataLoader, 2 workers": OfStatefulWorkers,
    "Accelerate": OfAccelerate,
    "Accelerate, dispatched": OfAccelerateDispatched,
    "Grain": OfGrain,
    "Grain, 4 threads": OfGrainThreads,
    "Lightning": OfLightning,
    "Trainer": OfTrainer,
}
if os.environ.get("TOKENLOOM_IN_JAX"):  # in a process of its own, see test_jax.py
    FEEDS, ADAPTERS = {"Loader": OfLoader, "JAX": OfJax}, {"JAX": of_jax}
