"""The same on several processes: `torchrun --nproc-per-node 2 ddp_loop.py FOLDER STEPS`."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import tokenloom as tl
from tokenloom.integrations.torch import dataloader

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")  # the loader finds its rank
run, torch_seed = tl.open(folder / "store").pack(64).shuffle(), torch.manual_seed(0)
loader = dataloader(run, batch_size=12, contract="plain", fields=("step_loss_tokens",))
plain = torch.nn.Sequential(torch.nn.Embedding(256, 32), torch.nn.Linear(32, 256))
model = torch.nn.parallel.DistributedDataParallel(plain)
parts = {"model": plain, "optimizer": torch.optim.AdamW(plain.parameters()), "data": loader}
if (saved := folder / "saved.pt").exists():
    for name, state in torch.load(saved).items():
        parts[name].load_state_dict(state)
for batch in loader:
    logits, targets = model(batch["inputs"]).flatten(0, 1), batch["targets"].flatten()
    loss = cross_entropy(logits, targets, reduction="sum") / batch["step_loss_tokens"][0]
    parts["optimizer"].zero_grad()
    (loss * dist.get_world_size()).backward()  # DDP takes the mean over ranks
    parts["optimizer"].step()
    dist.all_reduce(loss.detach_())  # the mean loss of the whole step
    if dist.get_rank() == 0:
        print(loader.place.step, loss.item(), flush=True)
        torch.save({name: part.state_dict() for name, part in parts.items()}, saved)
    if loader.place.step >= steps:
        break
dist.destroy_process_group()
