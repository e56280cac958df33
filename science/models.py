"""A Llama-like language model of 0.3 million parameters, for one thread of a CPU.

One idea: everything that packing and splicing change reaches a model through three arrays, so the
model takes exactly these, ``model(tokens, segment_ids, position_ids) -> logits``, which is also
what `tokenloom.evaluate` asks of a model. A cell sees the cells before it that are in its own
segment.

Two layers of width 96 with four heads, RMSNorm before attention and before a gated network of 256,
separate input and output embeddings: 319,968 parameters with 512 token ids and RoPE. A step of 8
rows of 112 cells, forwards and backwards, takes about 0.04 s of one core.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Shape", "TinyLlama"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a model is.

    Attributes:
        vocabulary: token ids.
        positions: "RoPE", or "learned" vectors that are added to the embeddings.
        isolated: whether segments keep documents apart; if not, a cell sees all cells before it.
        cells: learned positions that there are; RoPE needs no limit.
        width, layers, heads, inner: as usual; `inner` is the width of the gated network.
    """

    vocabulary: int
    positions: str = "RoPE"
    isolated: bool = True
    cells: int = 192
    width: int = 96
    layers: int = 2
    heads: int = 4
    inner: int = 256


class Layer(nn.Module):
    """Attention and a gated network, each on normalised input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, inner = shape.width, shape.inner
        self.heads = shape.heads
        self.norms = nn.ParameterList([torch.ones(width), torch.ones(width)])
        self.qkv, self.out = _weights(width, 3 * width), _weights(width, width)
        self.up, self.down = _weights(width, 2 * inner), _weights(inner, width)

    def forward(self, x: Tensor, turns: tuple[Tensor, Tensor] | None, mask: Tensor) -> Tensor:
        """The next [B, S, W]; `turns` are cosines and sines [B, 1, S, W / heads / 2]."""
        rows, cells, width = x.shape
        # [B, S, 3 W] → three of [B, heads, S, W / heads]
        joined = (_normed(x) * self.norms[0]) @ self.qkv
        q, k, v = joined.view(rows, cells, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if turns is not None:
            q, k = _turned(q, turns), _turned(k, turns)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + seen.transpose(1, 2).reshape(rows, cells, width) @ self.out
        gate, value = ((_normed(x) * self.norms[1]) @ self.up).chunk(2, -1)
        return x + (functional.silu(gate) * value) @ self.down


class TinyLlama(nn.Module):
    """The model; weights are a function of its shape and a seed.

    >>> model = TinyLlama(Shape(vocabulary=512), seed=0)
    >>> sum(one.numel() for one in model.parameters())
    319968
    >>> cells = torch.zeros(1, 4, dtype=torch.long)
    >>> tuple(model(cells, cells + 1, torch.arange(4)[None]).shape)
    (1, 4, 512)
    """

    def __init__(self, shape: Shape, *, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shape = shape
        self.embed = nn.Parameter(torch.randn(shape.vocabulary, shape.width) * 0.1)
        self.head = _weights(shape.width, shape.vocabulary)
        self.norm = nn.Parameter(torch.ones(shape.width))
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        # last, so that both schemes start from the same other weights
        learned = shape.positions == "learned"
        table = torch.randn(shape.cells, shape.width) * 0.02
        self.table = nn.Parameter(table) if learned else None

    def forward(self, tokens: Tensor, segment_ids: Tensor, position_ids: Tensor) -> Tensor:
        """Logits [B, S, V] of rows [B, S]."""
        x = self.embed[tokens]
        turns = None
        if self.table is None:
            turns = _angles(position_ids, self.shape.width // self.shape.heads // 2)
        else:
            x = x + self.table[position_ids]
        mask = _mask(segment_ids, isolated=self.shape.isolated)
        for layer in self.layers:
            x = layer(x, turns, mask)
        return (_normed(x) * self.norm) @ self.head


def _weights(inner: int, outer: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(inner, outer) * inner**-0.5)


def _normed(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def _mask(segment_ids: Tensor, *, isolated: bool) -> Tensor:
    """Which cells a cell sees, bool [B, 1, S, S]."""
    size = segment_ids.shape[1]
    earlier = torch.ones(size, size, dtype=torch.bool).tril()
    if not isolated:
        return earlier[None, None]
    return ((segment_ids[:, :, None] == segment_ids[:, None, :]) & earlier)[:, None]


def _angles(position_ids: Tensor, half: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [B, 1, S, half], float32: fewer bits would break invariance."""
    speed = 10_000.0 ** (-torch.arange(half) / half)
    angle = position_ids[:, None, :, None] * speed
    return angle.cos(), angle.sin()


def _turned(x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:
    a, b = x.chunk(2, -1)
    cos, sin = turns
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
