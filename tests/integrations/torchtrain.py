"""A tiny model, and a program that trains it and can be killed at any instant.

``python torchtrain.py STORE FOLDER STEPS WORKERS`` logs every loss to FOLDER/log and keeps the last
checkpoint in FOLDER. With RANK and WORLD_SIZE set it is one of several processes (gloo).
"""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import tokenloom as tl
from tokenloom.integrations.torch import dataloader

BATCH, EVERY = 6, 4  # rows of a step over all ranks; steps between checkpoints


class TinyGPT(torch.nn.Module):
    """One layer of attention that obeys an additive mask [B, 1, S, S], with dropout."""

    def __init__(self, vocabulary=1000, width=32, dropout=0.1):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.positions = torch.nn.Embedding(64, width)
        self.attend = torch.nn.Linear(width, 3 * width)
        self.drop = torch.nn.Dropout(dropout)
        self.head = torch.nn.Linear(width, vocabulary)

    def forward(self, input_ids, position_ids, attention_mask):
        """Logits [B, S, vocabulary]."""
        x = self.tokens(input_ids) + self.positions(position_ids)
        q, k, v = (one[:, None] for one in self.attend(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask)
        return self.head(self.drop(x + mixed[:, 0]))


def loss_sum(model, batch):
    """The sum of the losses of all predictions of a batch whose labels are aligned."""
    logits = model(batch["input_ids"], batch["position_ids"], batch["attention_mask"])
    targets = batch["labels"][:, 1:].flatten()
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets, reduction="sum")


def train(store, folder, steps, workers=0, dropout=0.1):
    """Train from the last checkpoint on, up to that many steps."""
    world = dist.get_world_size() if dist.is_initialized() else 1
    torch.manual_seed(1)
    tiny = TinyGPT(dropout=dropout)
    model = DistributedDataParallel(tiny) if world > 1 else tiny
    optimizer = torch.optim.AdamW(tiny.parameters(), lr=1e-2)
    run = tl.open(store).pack(16).shuffle().seed(7)
    loader = dataloader(
        run, BATCH, num_workers=workers, contract="sdpa", fields=("step_loss_tokens",)
    )
    parts, saved, step = (
        {"model": tiny, "optimizer": optimizer, "data": loader},
        folder / "saved",
        0,
    )
    if saved.exists():
        kept = torch.load(saved)
        for name, part in parts.items():
            part.load_state_dict(kept[name])
        torch.set_rng_state(kept["random"])
        step = kept["data"]["step"]
    with open(folder / "log", "a", buffering=1) as log:
        while step < steps:  # a loop is a pass
            for batch in loader:
                summed = loss_sum(model, batch)
                count = batch["step_loss_tokens"][0]
                optimizer.zero_grad()
                (summed * world / count).backward()  # DDP takes the mean of the gradients
                optimizer.step()
                loss = summed.detach() / count
                if world > 1:
                    dist.all_reduce(loss)
                step += 1
                if not dist.is_initialized() or dist.get_rank() == 0:
                    log.write(f"{step} {loss.item().hex()}\n")
                    if step % EVERY == 0:
                        made = {name: part.state_dict() for name, part in parts.items()}
                        torch.save({**made, "random": torch.get_rng_state()}, folder / "new")
                        os.replace(folder / "new", saved)
                if step >= steps:
                    break


def curve(folder):
    """Step → loss; a step that was trained again after a kill must have had the same loss."""
    found = {}
    lines = (folder / "log").read_text().splitlines(keepends=True)
    for line in (one for one in lines if one.endswith("\n")):
        step, value = line.split()
        found.setdefault(int(step), set()).add(float.fromhex(value))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[2])
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=600))
    train(sys.argv[1], folder, int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    if dist.is_initialized():
        dist.destroy_process_group()
