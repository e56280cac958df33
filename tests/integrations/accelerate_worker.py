"""The steps of a rank with Accelerate: `torchrun accelerate_worker.py STORE FOLDER`."""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration

import tokenloom as tl
from tokenloom.integrations.hf import prepare
from tokenloom.integrations.torch import dataloader

SETTINGS = {"plain": {}, "dispatch": {"dispatch_batches": True}, "split": {"split_batches": True}}
SIZE = 8
FIELDS = ("index",)


def seen(batches):
    return [batch["index"].tolist() for batch in batches]


def main():
    store, folder = sys.argv[1], Path(sys.argv[2])
    run, found = tl.open(store).pack(24).shuffle().seed(7), {}
    for name, settings in SETTINGS.items():
        config = DataLoaderConfiguration(**settings)
        one = Accelerator(cpu=True, dataloader_config=config)
        found[name] = seen(prepare(one, run, SIZE, fields=FIELDS))
        own = one.prepare(dataloader(run, SIZE, fields=FIELDS))
        found[f"{name}, prepared by itself"] = seen(own)
    one = Accelerator(cpu=True)
    loader = prepare(one, run, SIZE, fields=FIELDS)
    for _, _batch in zip(range(2), loader, strict=False):
        pass
    one.save_state(str(folder / "state"))  # after two steps
    (folder / f"{one.process_index}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
