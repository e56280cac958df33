"""A training loop in torch: `python torch_loop.py FOLDER PASSES`. Kill it, and start it again."""

import sys
from pathlib import Path

import torch

import tokenloom as tl
from tokenloom.integrations.torch import dataloader

folder, passes = Path(sys.argv[1]), int(sys.argv[2])
texts = [{"text": f"{n} green bottles hanging on the wall. " * 9} for n in range(99)]
store = tl.build(texts, folder / "store", tokenizer="bytes", eos=0, progress=False)
loader = dataloader(store.pack(64).shuffle(), batch_size=32, contract="plain")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(256, 32), torch.nn.Linear(32, 256))
parts = {"model": model, "optimizer": torch.optim.AdamW(model.parameters()), "data": loader}
if (saved := folder / "saved.pt").exists():
    for name, state in torch.load(saved).items():
        parts[name].load_state_dict(state)
while loader.epoch < passes:  # each loop is a pass, in a fresh order
    for batch in loader:
        logits, targets = model(batch["inputs"]).flatten(0, 1), batch["targets"].flatten()
        (loss := torch.nn.functional.cross_entropy(logits, targets)).backward()
        parts["optimizer"].step()
        parts["optimizer"].zero_grad()
        print(loader.step, loss.item(), flush=True)
        torch.save({name: part.state_dict() for name, part in parts.items()}, folder / "new.pt")
        (folder / "new.pt").replace(saved)
