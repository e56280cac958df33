"""Takes a run and a mesh → gives its steps as global arrays of JAX, with an exact state.

`batches` is the one line. Importing this module also makes a `tokenloom.Batch` a pytree, so that
``jax.tree.map`` and jitted functions take it.
"""

from tokenloom.integrations.jax.global_batches import LEAVES, batches

__all__ = ["LEAVES", "batches"]
