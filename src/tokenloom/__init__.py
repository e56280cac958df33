"""Text to training batches for language models; every example is a pure function of its index.

>>> import tokenloom as tl
>>> store = tl.build("corpus/*.jsonl", "stores/wiki", tokenizer="tokenizer.json")  # doctest: +SKIP
>>> run = tl.open("stores/wiki").windows(2048).block_shuffle().seed(7)  # doctest: +SKIP
>>> for batch in tl.Loader(run, batch_size=64):  # doctest: +SKIP
...     batch.tokens, batch.labels, batch.loss_mask
"""

from tokenloom.api.build import build_store as build
from tokenloom.api.dataset import Dataset
from tokenloom.api.mix import mix
from tokenloom.api.plan_packing import plan_packing
from tokenloom.api.store import Store
from tokenloom.api.store import open_store as open
from tokenloom.batch.batch import Batch
from tokenloom.batch.check import check_batch
from tokenloom.config import from_config
from tokenloom.errors import (
    ConfigError,
    InputError,
    MissingExtra,
    NoTrainedTokens,
    StateError,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreExists,
    StoreNotFound,
    TokenizerError,
    TokenloomError,
    WorkerError,
)
from tokenloom.loader.loader import Loader
from tokenloom.order.shuffle import BlockShuffle
from tokenloom.version import __version__

__all__ = [
    "Batch",
    "BlockShuffle",
    "ConfigError",
    "Dataset",
    "InputError",
    "Loader",
    "MissingExtra",
    "NoTrainedTokens",
    "StateError",
    "Store",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreExists",
    "StoreNotFound",
    "TokenizerError",
    "TokenloomError",
    "WorkerError",
    "__version__",
    "build",
    "check_batch",
    "from_config",
    "mix",
    "open",
    "plan_packing",
]
