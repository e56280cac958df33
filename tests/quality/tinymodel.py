"""A transformer small enough to be checked by hand: two layers, RoPE, a mask as an argument."""

import torch

from tokenloom.batch import attention

VOCAB, WIDTH, HEADS, LAYERS = 23, 16, 2, 2


class TinyModel:
    """Logits of tokens, for positions and a mask that the caller gives; float64, seeded."""

    def __init__(self, seed=0, dtype=torch.float64):
        make = torch.Generator().manual_seed(seed)

        def weights(*shape):
            scale = shape[0] ** -0.5
            made = torch.randn(*shape, generator=make, dtype=torch.float64) * scale
            return made.to(dtype).requires_grad_()

        self.embed, self.head = weights(VOCAB, WIDTH), weights(WIDTH, VOCAB)
        shapes = dict.fromkeys("qkvo", (WIDTH, WIDTH))
        shapes |= {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
        self.layers = [
            {name: weights(*shape) for name, shape in shapes.items()} for _ in range(LAYERS)
        ]

    def parameters(self):
        return [self.embed, self.head, *[w for layer in self.layers for w in layer.values()]]

    def __call__(self, tokens, position_ids, mask):
        """Logits [B, S, V]; `mask` is bool [B, S, S], True where a cell may look."""
        x = self.embed[tokens]
        for layer in self.layers:
            x = x + self.attend(layer, normed(x), position_ids, mask)
            x = x + torch.relu(normed(x) @ layer["up"]) @ layer["down"]
        return normed(x) @ self.head

    def attend(self, layer, x, position_ids, mask):
        batch, cells, _ = x.shape
        # [B, S, W] -> [B, heads, S, W / heads]
        q, k, v = ((x @ layer[n]).view(batch, cells, HEADS, -1).transpose(1, 2) for n in "qkv")
        q, k = rotated(q, position_ids), rotated(k, position_ids)
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        scores = scores.masked_fill(~mask[:, None], float("-inf"))
        mixed = scores.softmax(-1) @ v
        return mixed.transpose(1, 2).reshape(batch, cells, -1) @ layer["o"]


def normed(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def rotated(x, position_ids):
    """RoPE: pairs of channels turned by an angle that grows with the position."""
    half = x.shape[-1] // 2
    speed = 100.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = position_ids[:, None, :, None].to(x.dtype) * speed  # [B, 1, S, half]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def field(batch, name):
    value = batch[name] if isinstance(batch, dict) else getattr(batch, name)
    return torch.as_tensor(value).long()


def as_model(net, **how):
    """The network as a probe calls it, with the dense mask made from the segments in this way."""

    def model(tokens, batch):
        mask = attention.dense_mask(field(batch, "segment_ids"), **how)
        with torch.no_grad():
            return net(torch.as_tensor(tokens).long(), field(batch, "position_ids"), mask)

    return model
