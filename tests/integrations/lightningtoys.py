"""A tiny model that writes down what it sees, and how it is trained; imports Lightning."""

import logging
import warnings

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

from tokenloom.integrations.lightning import DataModule

__all__ = [
    "Callback",
    "DataModule",
    "ModelCheckpoint",
    "Toy",
    "checkpoints",
    "data_of",
    "fit",
    "trainer_of",
]

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)  # the model is tiny


class Toy(pl.LightningModule):
    """A model of two layers that writes down what it sees."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = torch.nn.Sequential(torch.nn.Embedding(1000, 8), torch.nn.Linear(8, 1000))
        self.rows, self.losses, self.validated = [], [], []

    def training_step(self, batch, number):
        logits, targets = self.net(batch["inputs"]), batch["targets"]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        self.rows.append(batch["index"].tolist())
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, number, dataloader_idx=0):
        self.validated.append([i for i in batch["index"].tolist() if i >= 0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.5)


def data_of(run, size, **options):
    return DataModule(run, size, **({"contract": "plain", "fields": ("index",)} | options))


def trainer_of(folder, callbacks=(), **options):
    usual = {
        "max_epochs": 3,
        "accelerator": "cpu",
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": bool(callbacks),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pl.Trainer(default_root_dir=folder, callbacks=[*callbacks], **(usual | options))


def fit(run, size, folder, resume=None, data=None, every=None, **options):
    """A model that was trained; `every`: keep a checkpoint after n optimizer steps."""
    keep = []
    if every:
        keep = [ModelCheckpoint(folder, "{step}", every_n_train_steps=every, save_top_k=-1)]
    model, trainer = Toy(), trainer_of(folder, keep, **options)
    data = data_of(run, size) if data is None else data
    trainer.fit(model, data, ckpt_path=resume)
    return model, data, trainer


def checkpoints(folder):
    """Checkpoints by optimizer step."""
    return {int(one.stem.split("=")[1]): one for one in folder.glob("step=*.ckpt")}
