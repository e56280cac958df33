"""Text to training batches for language models; every example is a pure function of its index.

>>> import tokenloom as tl
>>> store = tl.build("corpus/*.jsonl", "stores/wiki", tokenizer="tokenizer.json")  # doctest: +SKIP
>>> run = tl.open("stores/wiki").windows(2048).block_shuffle().seed(7)  # doctest: +SKIP
>>> for batch in tl.Loader(run, batch_size=64):  # doctest: +SKIP
...     batch.tokens, batch.labels, batch.loss_mask

Names are loaded on first use: `import tokenloom` itself loads nothing, not even NumPy. The public
subpackages (`tokenloom.order`, `batch`, `loader`, `streams`, `inspect`, `quality`, `exchange`,
`runfiles`, `testing`, `integrations`) are loaded the same way. `tokenloom.cli` has `main` and
`parser`; everything else is private.
"""

from typing import TYPE_CHECKING

from tokenloom.version import __version__

if TYPE_CHECKING:  # for type checkers and editors; `_HOMES` is the same for Python
    from tokenloom import batch as batch
    from tokenloom import exchange as exchange
    from tokenloom import inspect as inspect
    from tokenloom import integrations as integrations
    from tokenloom import loader as loader
    from tokenloom import order as order
    from tokenloom import quality as quality
    from tokenloom import runfiles as runfiles
    from tokenloom import streams as streams
    from tokenloom import testing as testing
    from tokenloom.api.build import build_store as build
    from tokenloom.api.dataset import Dataset
    from tokenloom.api.mix import mix
    from tokenloom.api.plan_packing import plan_packing
    from tokenloom.api.store import Store
    from tokenloom.api.store import open_store as open
    from tokenloom.batch.batch import Batch
    from tokenloom.batch.check import check_batch
    from tokenloom.config import from_config, load
    from tokenloom.errors import (
        ConfigError,
        InputError,
        LoaderExhausted,
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
    from tokenloom.inspect.audit.batch_audit import audit_batches as audit
    from tokenloom.inspect.diff import diff
    from tokenloom.loader.loader import Loader
    from tokenloom.order.shuffle import BlockShuffle
    from tokenloom.runfiles.written import save

__all__ = [
    "Batch",
    "BlockShuffle",
    "ConfigError",
    "Dataset",
    "InputError",
    "Loader",
    "LoaderExhausted",
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
    "audit",
    "build",
    "check_batch",
    "diff",
    "from_config",
    "load",
    "mix",
    "open",
    "plan_packing",
    "save",
]

# name → (module, name in that module); a public name not listed here is an exception class
_HOMES = {
    "Batch": ("batch.batch", "Batch"),
    "BlockShuffle": ("order.shuffle", "BlockShuffle"),
    "Dataset": ("api.dataset", "Dataset"),
    "Loader": ("loader.loader", "Loader"),
    "Store": ("api.store", "Store"),
    "audit": ("inspect.audit.batch_audit", "audit_batches"),
    "build": ("api.build", "build_store"),
    "check_batch": ("batch.check", "check_batch"),
    "diff": ("inspect.diff", "diff"),
    "from_config": ("config", "from_config"),
    "load": ("config", "load"),
    "mix": ("api.mix", "mix"),
    "open": ("api.store", "open_store"),
    "plan_packing": ("api.plan_packing", "plan_packing"),
    "save": ("runfiles.written", "save"),
}

_ROOMS = (
    *("batch", "exchange", "inspect", "integrations", "loader", "order", "quality"),
    *("runfiles", "streams", "testing"),
)

if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Load a public name on first use (PEP 562) and keep it."""
        from importlib import import_module
        from sys import modules

        if name in _ROOMS:
            return import_module(f"tokenloom.{name}")
        if name not in __all__:  # an uncaught error gets its near miss from Python
            raise AttributeError(
                f"module 'tokenloom' has no attribute {name!r}", name=name, obj=modules[__name__]
            )
        home, known_as = _HOMES.get(name, ("errors", name))
        found = getattr(import_module(f"tokenloom.{home}"), known_as)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """The names users may rely on; modules that happen to be loaded are left out."""
        return sorted(__all__)
