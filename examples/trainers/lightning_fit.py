"""Lightning: 8 steps at once; or 3, a checkpoint, and the other 5: the losses are the same."""

import tempfile

import lightning.pytorch as pl
import torch

import tokenloom as tl
from tokenloom.integrations.lightning import DataModule


class Model(pl.LightningModule):  # guesses each byte from the one before
    def configure_model(self):
        self.net = torch.nn.Embedding(256, 256, _weight=torch.zeros(256, 256))

    def training_step(self, batch, number):
        loss = torch.nn.functional.cross_entropy(self.net(batch["inputs"]).mT, batch["targets"])
        print(f"step {self.global_step}: loss {loss:.6f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 1e-2)


with tempfile.TemporaryDirectory() as folder:
    texts = [{"text": f"tale {i} of looms " * (i % 5 + 1)} for i in range(40)]
    run = tl.build(texts, f"{folder}/store", tokenizer="bytes").pack(64).shuffle()
    for steps, start in ((8, None), (3, None), (8, f"{folder}/checkpoints/epoch=0-step=3.ckpt")):
        trainer = pl.Trainer(max_steps=steps, logger=False, default_root_dir=folder)
        trainer.fit(Model(), DataModule(run, 4, contract="plain"), ckpt_path=start)
