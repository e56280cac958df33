"""An adapter where no other framework is: `python adapter_alone.py NAME STORE BLOCKED…`.

Prints the indices that the first steps hold, and blocked frameworks that are there all the same.
"""

import importlib.metadata
import itertools
import json
import sys
import tempfile

STEPS, SIZE = 3, 4


class Without:
    """A finder of modules that does not find some frameworks, as if they were not installed."""

    def __init__(self, finder, names):
        self.finder, self.names = finder, names

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            return None
        return self.finder.find_spec(name, path, target)


def block(names):
    """From now on neither the modules of some frameworks nor their versions are found."""
    sys.meta_path[:] = [Without(finder, names) for finder in sys.meta_path]
    from_name = importlib.metadata.Distribution.from_name

    def found(name):
        if name in names:
            raise importlib.metadata.PackageNotFoundError(name)
        return from_name(name)

    importlib.metadata.Distribution.from_name = found


def of_torch(run):
    from tokenloom.integrations.torch import dataloader

    return dataloader(run, SIZE, fields=("index",))


def of_lightning(run):
    from tokenloom.integrations.lightning import DataModule

    return DataModule(run, SIZE, fields=("index",)).train_dataloader()


def of_jax(run):
    from tokenloom.integrations.jax import batches

    return batches(run, SIZE, fields=("index",))


def of_grain(run):
    import grain

    from tokenloom.integrations.grain import source

    return grain.MapDataset.source(source(run, SIZE, fields=("index",))).to_iter_dataset()


def of_levanter(run):
    import asyncio

    from tokenloom.integrations.levanter import async_dataset

    rows = asyncio.run(async_dataset(run).get_batch(range(STEPS * SIZE)))
    index = [row.example for row in rows]
    return [{"index": index[at : at + SIZE]} for at in range(0, STEPS * SIZE, SIZE)]


def of_hf(run):
    from hftrainers import trained

    with tempfile.TemporaryDirectory() as folder:
        options = {"mine": {"fields": ("index",), "check": True}, "max_steps": STEPS}
        return trained(run, folder, **options).fed


def main():
    name, store, *others = sys.argv[1:]
    block(set(others))
    import tokenloom as tl

    batches = globals()[f"of_{name}"](tl.open(store).pack(24).shuffle().seed(7))
    found = [[int(one) for one in batch["index"]] for batch in itertools.islice(batches, STEPS)]
    there = sorted(one for one in others if one in sys.modules)
    print(json.dumps({"found": found, "there": there}))


if __name__ == "__main__":
    main()
