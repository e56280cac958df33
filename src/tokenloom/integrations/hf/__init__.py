"""Takes a run → gives it to a Trainer, TRL or Accelerate; and Hugging Face datasets as rows.

A run in a Trainer, with an exact resume::

    from tokenloom.integrations.hf import attach

    trainer = attach(Trainer(model, args), run)
    trainer.train(resume_from_checkpoint="auto")

`LoomTrainer` and `LoomMixin` are the same as classes, `placeholder` is for TRL's SFTTrainer,
`prepare` for a loop of your own with Accelerate, and `check_packing` tries whether documents that
share a row stay apart in a model, and `TrainerEvaluation` evaluates while a Trainer trains. These
seven import torch and transformers on first use.

Texts of a dataset as packed rows, without a store::

    from tokenloom.integrations.hf import Collator, block_tokenize

    rows = dataset.map(
        block_tokenize,
        batched=True,
        remove_columns=dataset.column_names,
        fn_kwargs={"tokenizer": tokenizer, "max_length": 4096, "packed": True},
    )
    batches = torch.utils.data.DataLoader(rows, batch_size=4, collate_fn=Collator(tokenizer))

Document boundaries are in the column `document_starts`, so nothing depends on BOS, EOS or PAD
tokens. Two things to watch:

- That column must reach the collator. Keep it out of `remove_columns` of later maps, and pass
  ``remove_unused_columns=False`` to a transformers Trainer, which otherwise removes columns that
  the model does not name.
- A transformers model keeps documents apart by `position_ids` alone only when it is called with
  ``use_cache=False``. A Trainer does this; in your own loop, pass it yourself.

Importing this module imports neither torch nor transformers nor datasets.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from tokenloom.integrations.hf.collator import Collator
from tokenloom.integrations.hf.tokenize import BlockReport, block_report, block_tokenize

if TYPE_CHECKING:
    from tokenloom.integrations.hf.loom_trainer import (
        LoomMixin,
        LoomTrainer,
        TrainerEvaluation,
        attach,
        placeholder,
    )
    from tokenloom.integrations.hf.packing import check_packing
    from tokenloom.integrations.hf.prepared import prepare

__all__ = [
    "BlockReport",
    "Collator",
    "LoomMixin",
    "LoomTrainer",
    "TrainerEvaluation",
    "attach",
    "block_report",
    "block_tokenize",
    "check_packing",
    "placeholder",
    "prepare",
]

# names that need torch and transformers → their modules
_HOMES = {
    "LoomMixin": "loom_trainer",
    "LoomTrainer": "loom_trainer",
    "TrainerEvaluation": "loom_trainer",
    "attach": "loom_trainer",
    "check_packing": "packing",
    "placeholder": "loom_trainer",
    "prepare": "prepared",
}

if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Load a name that needs a framework on first use (PEP 562) and keep it."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
