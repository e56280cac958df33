"""What another version of transformers does: `python old_transformers.py FOLDER`, prints JSON.

The version is the one that is found first on PYTHONPATH; test_old_transformers.py puts it there.
"""

import json
import sys
import warnings
from pathlib import Path

import transformers
from hftrainers import arguments, indices, losses, packed_run, tiny, trained
from transformers import Trainer

from tokenloom.errors import ConfigError
from tokenloom.integrations.hf import attach, check_packing
from tokenloom.integrations.hf.packing import choose_contract

CONTRACTS = ("hf", "sdpa", "flash")


def tried(call, *given, **options):
    """Whether documents stay apart, as far as a call can tell: "passes", "refused", or an error."""
    try:
        call(*given, **options)
    except ConfigError as error:
        return "refused" if "check_packing" in str(error) else str(error)
    return "passes"


def main():
    folder = Path(sys.argv[1])
    run = packed_run(folder / "store")
    found = {"version": transformers.__version__}
    for attention in ("eager", "sdpa"):
        model = tiny(attention)
        found[attention] = {name: tried(check_packing, model, contract=name) for name in CONTRACTS}
        found[attention]["auto"] = choose_contract(model)
    trainer = Trainer(tiny(), arguments(folder / "refused", max_steps=2))
    found["attach"] = tried(attach, trainer, run)
    mine = {"contract": "auto", "check": True, "fields": ("index",)}
    whole = trained(run, folder / "whole", max_steps=6, save_steps=1, mine=mine)
    start = str(folder / "whole/checkpoint-3")
    again = trained(run, folder / "again", resume=start, max_steps=6, mine=mine)
    found["masked"] = "attention_mask" in whole.fed[0]
    found["whole"], found["resumed"] = indices(whole), indices(again)
    found["losses"] = [losses(whole), losses(again)]
    print(json.dumps(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
