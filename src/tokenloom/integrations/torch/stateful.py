"""States for checkpoints of torch: the same keys every time.

One idea: `torch.distributed.checkpoint` loads into the keys that a state has now, so a state whose
description grew (an edit of the mix) would not load. What decides a position has the same seven
keys in every run; the description is an eighth, as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tokenloom.loader.state import flat_state

__all__ = ["Stateful", "stateful"]


class _Loads(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class Stateful:
    """A loader as `torch.distributed.checkpoint` wants it: a state with fixed keys.

    Args:
        loader: a `tokenloom.Loader`.

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     loader = tl.Loader(store.windows(2), batch_size=2)
    ...     sorted(Stateful(loader).state_dict())
    ['dataset', 'examples', 'fingerprint', 'format', 'render', 'step', 'wrapped']
    """

    def __init__(self, loader: _Loads) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, Any]:
        """The position, and the run that it is of."""
        return flat_state(self._loader.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume there."""
        self._loader.load_state_dict(state)


def stateful(loader: _Loads) -> Stateful:
    """A `Stateful` around a `tokenloom.Loader`; a `StepDataLoader` is one already.

    ::

        dcp.save({"model": model, "data": stateful(loader)}, checkpoint_id="checkpoint")

    >>> import tempfile, tokenloom as tl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = tl.build([{"text": "abcdefgh"}], folder + "/toy", tokenizer="bytes")
    ...     stateful(tl.Loader(store.windows(2), batch_size=2).seek(1)).state_dict()["examples"]
    2
    """
    return Stateful(loader)
