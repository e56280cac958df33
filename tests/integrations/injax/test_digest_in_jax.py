"""Ruling 45: the rows that JAX gets, of a mix with loss weights, have the digest of the run."""

import itertools

import jax
import numpy as np
from toyruns import mixed_run

from tokenloom.batch import digest_of, row_hashes
from tokenloom.integrations.jax import batches

STEPS, SIZE = 50, 4
MORE = ("input_ids", "segment_ids", "position_ids", "loss_weights", "index")


def test_ruling_45_rows_of_jax_on_a_mesh_have_the_digest_of_the_run(tmp_path):
    run = mixed_run(tmp_path)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    assert len(jax.devices()) == SIZE
    found, weights = {}, set()
    for batch in itertools.islice(batches(run, SIZE, mesh=mesh, fields=MORE), STEPS):
        arrays = {name: np.asarray(value) for name, value in batch.items()}
        found.update(zip(arrays["index"].tolist(), row_hashes(arrays), strict=True))
        weights |= set(arrays["loss_weights"].ravel().tolist())
    digest = digest_of(found[index] for index in range(STEPS * SIZE))
    assert digest == run.digest(0, STEPS * SIZE)
    assert weights == {0.0, 0.5, 1.0}  # weights that are neither nothing nor all came through
    assert set(run.spans(range(STEPS * SIZE)).sources) == {"web", "chat"}
