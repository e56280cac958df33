"""Which of (t, s) teaches a model something? An experiment for one CPU; it needs torch.

Eight documents of 64 tokens are spliced into frames of 112. `t` is the document offset at which a
splice starts, and `s` the frame offset at which it is placed. A model with RoPE and one with
learned positions are trained for 300 steps of 8 frames in each of these ways, and then predict the
second half of windows of 32 tokens at every (t, s) of a grid:

============  ====================================================================
anchor        whole documents, at the first cell
tile          documents cut into two windows, at the first cell: t = 0, 32
slide_t       every window, at the first cell
slide_within  every window at every offset
packed        every window, clipped at the ends, several per frame (RoPE only)
============  ====================================================================

All data comes from `store.splice` and `tl.Loader`. Run it: ``python -m examples.splice_claim``.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

import tokenloom as tl
from tokenloom.batch import attention

FRAME, DOCUMENT, WINDOW, PREFIX = 112, 64, 32, 16  # tokens
STARTS, OFFSETS = 5, 6  # of the grid: t = 0, 8, …, 32 and s = 0, 16, …, 80
VOCAB, WIDTH, HEADS, LAYERS = 256, 64, 4, 2
BATCH, STEPS, WARM_UP, RATE = 8, 300, 20, 3e-3
FIELDS = ("tokens", "labels", "segment_ids", "position_ids")

SAYINGS = """
A journey of a thousand miles begins with a single step, they say, and a good pair of boots.
The early bird may catch the worm, but it is the second mouse that gets to eat the cheese.
You can lead a horse to water and still have no idea whatsoever what the horse makes of it.
Fortune favours the bold; of the careful we hear less, because they are still out there.
Many hands make light work, too many cooks spoil the broth; count both before you begin.
What the eye does not see the heart does not grieve over, until somebody sends a photograph.
Rome was not built in a day, yet on most days some of it was, and that is how it is done.
When the cat is away the mice will play, and when it is back they will say they were quiet.
""".strip().splitlines()

Losses = NDArray[np.float64]
Regime = dict[str, Any]
SPLICED: Regime = {"position_scheme": "absolute", "content_length": WINDOW, "min_copy_len": WINDOW}
SWEPT: Regime = {**SPLICED, "content_start_mode": "slide_within"}
LEFT: Regime = {"offset_stride": FRAME}  # one offset: s = 0
REGIMES: dict[str, Regime] = {
    "anchor": {"content_start_mode": "anchor_start", **LEFT},
    "tile": {**SWEPT, "content_stride": WINDOW, **LEFT},
    "slide_t": {**SWEPT, **LEFT},
    "slide_within": SWEPT,
    "packed": {"position_scheme": "relative", "content_length": WINDOW},
}
GRID: Regime = {**SPLICED, "grid": (STARTS, OFFSETS)}
RUNS = {
    "RoPE": ("anchor", "tile", "slide_t", "slide_within", "packed"),
    "learned": ("anchor", "tile", "slide_t", "slide_within"),
}


# -- the model -----------------------------------------------------------------------------


class Layer(nn.Module):
    """Attention and a gated network, each on normalised input."""

    def __init__(self, *, turns: bool) -> None:
        super().__init__()
        self.turns = turns
        self.qkv, self.out = _weights(WIDTH, 3 * WIDTH), _weights(WIDTH, WIDTH)
        self.up, self.down = _weights(WIDTH, 6 * WIDTH), _weights(3 * WIDTH, WIDTH)

    def forward(self, x: Tensor, angles: Tensor, mask: Tensor) -> Tensor:
        """The next [B, S, W]; `angles` [B, 1, S, W / heads / 2], `mask` bool [B, 1, S, S]."""
        rows, cells, _ = x.shape
        # [B, S, 3 W] → three of [B, heads, S, W / heads]
        split = (_normed(x) @ self.qkv).view(rows, cells, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k, v = split
        if self.turns:
            q, k = _turned(q, angles), _turned(k, angles)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + seen.transpose(1, 2).reshape(rows, cells, WIDTH) @ self.out
        gate, value = (_normed(x) @ self.up).chunk(2, -1)
        return x + (functional.silu(gate) * value) @ self.down


class Model(nn.Module):
    """A language model with positions by "RoPE", or by "learned" vectors."""

    def __init__(self, positions: str, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.turns = positions == "RoPE"
        self.embed = nn.Parameter(torch.randn(VOCAB, WIDTH) * 0.1)
        self.head = _weights(WIDTH, VOCAB)
        self.table = None if self.turns else nn.Parameter(torch.randn(FRAME, WIDTH) * 0.02)
        self.layers = nn.ModuleList(Layer(turns=self.turns) for _ in range(LAYERS))

    def forward(self, batch: Any) -> Tensor:
        """Logits [B, S, V] of a batch, from its tokens, positions and segments alone."""
        tokens, positions = (torch.as_tensor(x) for x in (batch.tokens, batch.position_ids))
        mask = torch.as_tensor(attention.dense_mask(batch.segment_ids))[:, None]
        x = self.embed[tokens.long()]
        if self.table is not None:
            x = x + self.table[positions.long()]
        half = WIDTH // HEADS // 2
        speed = 10_000.0 ** (-torch.arange(half) / half)
        angles = positions[:, None, :, None] * speed
        for layer in self.layers:
            x = layer(x, angles, mask)
        return _normed(x) @ self.head


def _weights(inner: int, outer: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(inner, outer) * inner**-0.5)


def _normed(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


# -- data, training and evaluation ---------------------------------------------------------


def build(folder: str) -> tl.Store:
    """A store of the documents, one token per letter."""
    rows = [{"text": saying[:DOCUMENT]} for saying in SAYINGS]
    return tl.build(rows, f"{folder}/store", tokenizer="bytes")


def summed_loss(model: Model, batch: Any) -> Tensor:
    """Loss of all trained tokens; labels are aligned, so the cell before predicts them."""
    labels = torch.as_tensor(batch.labels[:, 1:]).long()
    logits = model(batch)[:, :-1]
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


def train(model: Model, data: tl.Dataset, steps: int) -> None:
    """Train with AdamW, a warm-up and a cosine schedule."""
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)

    def rate(step: int) -> float:
        cosine = 0.525 + 0.475 * math.cos(math.pi * step / steps)  # from 1 to 5 %
        return min(1.0, (step + 1) / WARM_UP) * cosine

    schedule = torch.optim.lr_scheduler.LambdaLR(adam, rate)
    loader = tl.Loader(data.shuffle().epochs(None), BATCH, fields=FIELDS)
    for batch in itertools.islice(loader, steps):
        loss = summed_loss(model, batch) / batch.loss_tokens
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        schedule.step()


def suffix_losses(model: Model, store: tl.Store) -> Losses:
    """Loss per token after the prefix, the mean over all documents [starts, offsets]."""
    found = []
    for batch in tl.Loader(store.splice(FRAME, **GRID), STARTS * OFFSETS, fields=FIELDS):
        cells = torch.as_tensor(batch.spans.at)[:, None] + torch.arange(PREFIX, WINDOW)
        tokens = torch.as_tensor(batch.tokens).long()
        with torch.no_grad():
            chances = model(batch).log_softmax(-1)
        rows = torch.arange(len(batch))[:, None]
        losses = -chances[rows, cells - 1, tokens[rows, cells]]
        # [rows of one document, suffix] → [starts, offsets]
        found.append(losses.double().mean(1).numpy().reshape(STARTS, OFFSETS))
    mean: Losses = np.mean(found, axis=0)
    return mean


def packed_difference(store: tl.Store) -> float:
    """Relative difference between the gradients of packed splices and of one splice per frame."""
    some = store.select(num_docs=2)
    gradients = []
    for fill in ("one", "pack"):
        data = some.splice(FRAME, **REGIMES["packed"], fill=fill)
        model = Model("RoPE")
        for batch in tl.Loader(data, 32, end="pad", fields=FIELDS):
            summed_loss(model, batch).backward()
        found = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
        gradients.append(torch.cat(found))
    one, packed = gradients
    return float((one - packed).norm() / one.norm())


# -- results -------------------------------------------------------------------------------

SHADES = ((0.03, "·"), (0.1, "░"), (0.5, "▒"), (2.0, "▓"), (math.inf, "█"))


class Findings(NamedTuple):
    """What was measured.

    Attributes:
        losses: (model, regime) → loss per token after the prefix [starts, offsets].
        packed: relative difference between the gradients of packed and of separate splices.
    """

    losses: dict[tuple[str, str], Losses]
    packed: float


def experiment(steps: int = STEPS) -> Findings:
    """Run it and print the table as it grows, then the maps."""
    print(f"loss per token after a prefix of {PREFIX}, in nats, after {steps} steps\n")
    print("model    regime        t=0,s=0  t=0,s>0  t>0,s=0  t>0,s>0  largest change with s")
    losses: dict[tuple[str, str], Losses] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = build(folder)
        for name, regime in ((name, regime) for name, some in RUNS.items() for regime in some):
            model = Model(name)
            train(model, store.splice(FRAME, **REGIMES[regime]), steps)
            losses[name, regime] = x = suffix_losses(model, store)
            means = x[0, 0], x[0, 1:].mean(), x[1:, 0].mean(), x[1:, 1:].mean()
            columns = "  ".join(f"{mean:7.4f}" for mean in means)
            print(f"{name:7}  {regime:12}  {columns}  {np.abs(x - x[:, :1]).max():.1e}", flush=True)
        packed = packed_difference(store)
    print("\nthe same as maps: t = 0, 8, …, 32 downwards, s = 0, 16, …, 80 to the right")
    print("  ".join(f"{sign} {f'< {top:g}' if top < 9 else 'more'}" for top, sign in SHADES))
    for name, some in RUNS.items():
        lines = [f"\n{name:7}", *[" " * 7] * STARTS]
        for regime in some:
            column = [regime, *heat_map(losses[name, regime])]
            lines = [f"{line}  {cell:12}" for line, cell in zip(lines, column, strict=True)]
        print("\n".join(line.rstrip() for line in lines))
    print(f"\ngradients of packed and of separate splices differ by {packed:.1e} of their norm")
    return Findings(losses, packed)


def heat_map(losses: Losses) -> list[str]:
    """One line per start, one character per offset."""
    return ["".join(next(sign for top, sign in SHADES if x < top) for x in row) for row in losses]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m examples.splice_claim")
    parser.add_argument("--steps", type=int, default=STEPS, help="training steps per run")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    experiment(steps)
    print(f"{time.process_time():.0f} s of CPU")


if __name__ == "__main__":
    main()
