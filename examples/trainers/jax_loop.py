"""JAX: steps as global arrays over all devices, passes, and a state that goes on exactly."""

import tempfile

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

import tokenloom as tl
from tokenloom.integrations.jax import batches


def mean_loss(table, batch):  # guesses each byte from the one before
    logits = jax.nn.log_softmax(table[batch["inputs"]])
    picked = jnp.take_along_axis(logits, batch["targets"][..., None], -1)[..., 0]
    return -(picked * batch["loss_mask"]).sum() / batch["loss_mask"].sum()


step, table = jax.jit(jax.value_and_grad(mean_loss)), jnp.zeros((256, 256))
with tempfile.TemporaryDirectory() as folder:
    texts = [{"text": f"tale {i} of looms " * (i % 5 + 1)} for i in range(40)]
    run = tl.build(texts, f"{folder}/store", tokenizer="bytes").pack(64).shuffle().seed(7)
    data = batches(run, 4, mesh=Mesh(jax.devices(), ("data",)), pad=True)
    for epoch in range(2):  # the second pass has another order
        for batch in data:
            loss, slope = step(table, batch)
            table = table - 20 * slope
        print(f"epoch {epoch}: loss {loss:.4f}, state {data.state_dict()['examples']} examples")
