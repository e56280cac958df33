"""A language model of a few thousand parameters, and its training on one thread of a CPU.

``model(tokens, segment_ids, position_ids)`` gives logits [B, S, V], as `tokenloom.evaluate` asks of
a model. A cell sees the cells before it in its own segment. Run as a program, it trains and is
killed: ``python tiny_gpt.py STORE FOLDER STEPS KILL_AFTER``.
"""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import tokenloom as tl

EVERY = 3  # steps between checkpoints of `train_in`


class TinyGPT(nn.Module):
    """Two layers of attention with rotary positions; `isolated=False` ignores segments."""

    def __init__(self, seed=0, vocabulary=256, width=32, heads=2, isolated=True):
        super().__init__()
        torch.manual_seed(seed)
        self.heads, self.isolated = heads, isolated
        self.embedding = nn.Parameter(torch.randn(vocabulary, width) * 0.1)
        self.head = nn.Parameter(torch.randn(width, vocabulary) * width**-0.5)
        shapes = [(width, 3 * width), (width, width), (width, 2 * width), (2 * width, width)]
        self.layers = nn.ParameterList(
            nn.Parameter(torch.randn(shape) * shape[0] ** -0.5) for shape in 2 * shapes
        )

    def forward(self, tokens, segment_ids, position_ids):
        rows, cells = tokens.shape
        visible = torch.ones(cells, cells, dtype=torch.bool).tril()[None]
        if self.isolated:
            visible = visible & (segment_ids[:, :, None] == segment_ids[:, None, :])
        x = self.embedding[tokens]
        for first in range(0, len(self.layers), 4):
            join, out, up, down = self.layers[first : first + 4]
            # [B, S, 3 W] → three of [B, heads, S, W / heads]
            joined = (normed(x) @ join).view(rows, cells, 3, self.heads, -1)
            q, k, v = joined.permute(2, 0, 3, 1, 4)
            q, k = rotated(q, position_ids), rotated(k, position_ids)
            mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None])
            x = x + mixed.transpose(1, 2).reshape(rows, cells, -1) @ out
            x = x + functional.silu(normed(x) @ up) @ down
        return normed(x) @ self.head


def normed(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def rotated(x, position_ids):
    half = x.shape[-1] // 2
    angle = position_ids[:, None, :, None] * 100.0 ** (-torch.arange(half) / half)
    a, b = x.chunk(2, -1)
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def logits_of(model, batch):
    """Logits [B, S, V] of a batch."""
    names = ("tokens", "segment_ids", "position_ids")
    return model(*(torch.as_tensor(getattr(batch, name)).long() for name in names))


def loss_sum(model, batch):
    """The losses of all predictions that count, summed; labels are aligned."""
    labels = torch.as_tensor(batch.labels).long()[:, 1:]
    logits = logits_of(model, batch)[:, :-1]
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


class Training:
    """A model, its optimizer and a loader: steps, and what a checkpoint holds."""

    def __init__(self, model, run, batch_size=4, rate=1e-2):
        torch.set_num_threads(1)  # sums have one order then
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
        self.loader = tl.Loader(run, batch_size, rank=0, world_size=1, prefetch=0)

    def step(self):
        """Train one step; its mean loss."""
        batch = next(self.loader)
        loss = loss_sum(self.model, batch) / batch.loss_tokens
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def parts(self):
        return {"model": self.model, "optimizer": self.optimizer, "loader": self.loader}


def train(model, run, steps, **options):
    """Train for some steps: the loss of each."""
    training = Training(model, run, **options)
    with training.loader:
        return [training.step() for _ in range(steps)]


def train_in(folder, model, run, last, kill_after=None):
    """Train from the last checkpoint in a folder up to a step; every loss is logged there.

    `kill_after` kills this process after so many further steps.
    """
    training = Training(model, run)
    saved, step = folder / "checkpoint", 0
    if saved.exists():
        checkpoint = torch.load(saved)
        step = checkpoint["step"]
        for name, part in training.parts().items():
            part.load_state_dict(checkpoint[name])
    with (folder / "log").open("a", buffering=1) as log, training.loader:
        while step < last:
            log.write(f"{step} {training.step().hex()}\n")
            step += 1
            if step % EVERY == 0:
                states = {name: part.state_dict() for name, part in training.parts().items()}
                torch.save({"step": step, **states}, folder / "unfinished")
                os.replace(folder / "unfinished", saved)
            if kill_after is not None:
                kill_after -= 1
                if not kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)


def curve(folder):
    """Step → the losses that were logged for it; one, if steps trained again had the same loss."""
    losses = {}
    for line in (folder / "log").read_text().splitlines():
        step, loss = line.split()
        losses.setdefault(int(step), set()).add(float.fromhex(loss))
    return losses


def killed_run(store):
    """What the program trains on."""
    return store.pack(32).shuffle().epochs(None).seed(3)


if __name__ == "__main__":
    place, folder, steps, kill_after = sys.argv[1:]
    train_in(Path(folder), TinyGPT(), killed_run(tl.open(place)), int(steps), int(kill_after))
