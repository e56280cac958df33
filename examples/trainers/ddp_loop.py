"""The same on several processes: `torchrun --nproc-per-node 2 ddp_loop.py FOLDER STEPS`."""

import sys
from pathlib import Path

import torch
from torch import distributed as dist

import tokenloom as tl
from tokenloom.integrations.torch import dataloader

dist.init_process_group("gloo")  # the loader finds its rank
run = tl.open((folder := Path(sys.argv[1])) / "store").pack(64).shuffle()
loader = dataloader(run, 32, contract="plain", fields=("step_loss_tokens",))
plain = torch.nn.Sequential(torch.nn.Embedding(256, 32), torch.nn.Linear(32, 256))
model = torch.nn.parallel.DistributedDataParallel(plain)
parts = {"model": plain, "optimizer": torch.optim.AdamW(plain.parameters()), "data": loader}
for name, state in torch.load(folder / "saved.pt").items():
    parts[name].load_state_dict(state)  # of any number of processes
while loader.epoch < int(sys.argv[2]):
    for batch in loader:
        logits, targets = model(batch["inputs"]).flatten(0, 1), batch["targets"].flatten()
        summed = torch.nn.functional.cross_entropy(logits, targets, reduction="sum")
        loss = summed / batch["step_loss_tokens"][0]  # this rank's part of the mean
        (loss * dist.get_world_size()).backward()  # DDP takes the mean of the gradients
        parts["optimizer"].step()
        parts["optimizer"].zero_grad()
        dist.all_reduce(total := loss.detach())  # the mean of the step
        print(f"{loader.step} {total.item()}\n", end="", flush=True)  # in one write: ranks share it
