"""Batches of any indices, read by blocks or by ranges."""

import numpy as np


def whole(dataset, indices, *, by_blocks=False):
    """A batch of these indices, read by blocks or by ranges."""
    wanted = np.asarray(indices, np.int64)
    renderer = dataset.renderer(by_blocks=by_blocks)
    return renderer.batches(renderer.plan(wanted), [0, len(wanted)])[0].make()
