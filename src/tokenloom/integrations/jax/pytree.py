"""A batch as a pytree of JAX.

One idea: the leaves of a batch are the arrays that a step computes with (`LEAVES`), and what comes
back, from ``jax.tree.map`` or inside a jitted function, is a plain dict of them: there it need not
be arrays of NumPy any more. `index` and `examples_after` stay with the batch: JAX would cut their
64 bits to 32.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax

from tokenloom.batch.batch import Batch
from tokenloom.batch.views.named import Folded

LEAVES = ("input_ids", "labels", "loss_mask", "segment_ids", "position_ids")

"""The names of the leaves: what ``jax.tree.map(f, batch)`` gives as a dict."""


def _flatten(batch: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    return tuple(batch[name] for name in LEAVES), LEAVES


def _flatten_with_keys(batch: Any) -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
    named = tuple((jax.tree_util.DictKey(name), batch[name]) for name in LEAVES)
    return named, LEAVES


def _unflatten(names: tuple[str, ...], leaves: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(names, leaves, strict=True))


for _kind in (Batch, Folded):
    jax.tree_util.register_pytree_with_keys(_kind, _flatten_with_keys, _unflatten, _flatten)
