"""For people with Hugging Face datasets: texts → packed rows → batches.

::

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

from tokenloom.integrations.hf.collator import Collator
from tokenloom.integrations.hf.tokenize import BlockReport, block_report, block_tokenize

__all__ = ["BlockReport", "Collator", "block_report", "block_tokenize"]
