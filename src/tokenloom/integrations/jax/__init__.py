"""Takes a run and a mesh → gives its steps as global arrays of JAX, with an exact state.

`batches` is the one line. Importing this module also makes a `tokenloom.Batch` a pytree, so that
``jax.tree.map`` and jitted functions take it (`tokenloom.integrations.jax.pytree` says what comes
back).
"""

from tokenloom.integrations.jax.global_batches import batches
from tokenloom.integrations.jax.pytree import LEAVES

__all__ = ["LEAVES", "batches"]
