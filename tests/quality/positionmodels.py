"""The tiny transformer with every usual way to know where a token stands, and how it is trained.

========  =====================================================================
rope      queries and keys are turned: scores depend on distances
nope      nothing tells positions but the causal mask
alibi     scores fall with the distance
learned   a vector for every position is added to the tokens: absolute
========  =====================================================================
"""

import torch
from tinymodel import HEADS, TinyModel, normed, rotated

from tokenloom.batch import attention

RELATIVE = ("rope", "nope", "alibi")
SCHEMES = (*RELATIVE, "learned")
POSITIONS = 256


class PositionModel(TinyModel):
    """Logits of tokens for given positions and mask; float32 unless told otherwise, seeded."""

    def __init__(self, scheme, seed=0, dtype=torch.float32):
        super().__init__(seed, dtype)
        make = torch.Generator().manual_seed(seed + 1)
        table = torch.randn(POSITIONS, self.embed.shape[1], generator=make, dtype=torch.float64)
        self.scheme, self.table = scheme, (table * 0.25).to(dtype).requires_grad_()

    def parameters(self):
        return [*super().parameters(), *([self.table] if self.scheme == "learned" else [])]

    def __call__(self, tokens, position_ids, mask):
        x = self.embed[tokens]
        if self.scheme == "learned":
            x = x + self.table[position_ids]
        for layer in self.layers:
            x = x + self.attend(layer, normed(x), position_ids, mask)
            x = x + torch.relu(normed(x) @ layer["up"]) @ layer["down"]
        return normed(x) @ self.head

    def attend(self, layer, x, position_ids, mask):
        batch, cells, _ = x.shape
        # [B, S, W] -> [B, heads, S, W / heads]
        q, k, v = ((x @ layer[n]).view(batch, cells, HEADS, -1).transpose(1, 2) for n in "qkv")
        if self.scheme == "rope":
            q, k = rotated(q, position_ids), rotated(k, position_ids)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if self.scheme == "alibi":
            slopes = 0.5 ** torch.arange(1, HEADS + 1, dtype=x.dtype)
            far = (position_ids[:, None, :, None] - position_ids[:, None, None, :]).to(x.dtype)
            scores = scores - slopes[:, None, None] * far
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
        mixed = scores.softmax(-1) @ v
        return mixed.transpose(1, 2).reshape(batch, cells, -1) @ layer["o"]


def logits_of(net, batch, **how):
    """Logits [B, S, V] of a batch, which is fed as a trainer does: tokens, positions, segments."""
    tokens, positions = (torch.as_tensor(a).long() for a in (batch.tokens, batch.position_ids))
    mask = torch.as_tensor(attention.dense_mask(batch.segment_ids, **how))
    return net(tokens, positions, mask)


def losses_of(net, batch, **how):
    """Loss of every trained cell, end to end; labels are aligned, the cell before predicts them."""
    logits = logits_of(net, batch, **how)[:, :-1]
    labels = torch.as_tensor(batch.labels[:, 1:]).long()
    flat = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), reduction="none"
    )
    return flat[labels.reshape(-1) != -100]


def gradient_of(net, losses):
    """The gradient of their sum as one vector."""
    grads = torch.autograd.grad(losses.sum(), net.parameters())
    return torch.cat([grad.reshape(-1) for grad in grads])
