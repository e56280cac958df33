"""A training loop in plain torch: `python torch_loop.py FOLDER STEPS`. Kill it, start it again."""

import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import tokenloom as tl
from tokenloom.integrations.torch import dataloader

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
texts = [{"text": f"{n} green bottles hanging on the wall. " * 9} for n in range(99)]
store = tl.build(texts, folder / "store", tokenizer="bytes", eos=0, progress=False)
loader = dataloader(store.pack(64).shuffle(), batch_size=12, contract="plain")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(256, 32), torch.nn.Linear(32, 256))
parts = {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "data": loader}
if (saved := folder / "saved.pt").exists():
    for name, state in torch.load(saved).items():
        parts[name].load_state_dict(state)
while loader.place.step < steps:  # each loop is a pass, in a fresh order
    for batch in loader:
        loss = cross_entropy(model(batch["inputs"]).flatten(0, 1), batch["targets"].flatten())
        parts["optimizer"].zero_grad()
        loss.backward()
        parts["optimizer"].step()
        print(loader.place.step, loss.item(), flush=True)
        torch.save({name: part.state_dict() for name, part in parts.items()}, folder / "new.pt")
        (folder / "new.pt").replace(saved)
        if loader.place.step == steps:
            break
