"""A tiny Llama, a packed run of its size, and a Trainer that remembers what it was fed."""

from __future__ import annotations

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.utils import logging

import tokenloom as tl
from tokenloom.batch.views.digest import digest_of, row_hashes
from tokenloom.integrations.hf import attach
from tokenloom.testing import write_store

VOCAB, SEQ_LEN = 64, 24
HASHED = ("segment_ids", "loss_weights", "index")

logging.disable_progress_bar()
torch.set_num_threads(1)  # threads that wait for each other are slow on a busy machine


def packed_run(root, documents=120, seed=7, masked=False):
    """Documents of 2 to 30 tokens, packed and shuffled; `masked`: some tokens are not trained."""
    rng = np.random.Generator(np.random.PCG64(documents))
    made = [rng.integers(1, VOCAB, rng.integers(2, 31)).tolist() for _ in range(documents)]
    answers = {"loss_mask": ("uint8", lambda ids: ids % 3 > 0)}
    write_store(root, [made], vocab_size=VOCAB, columns=answers if masked else None)
    return tl.open(root).pack(SEQ_LEN).shuffle().seed(seed)


def tiny(attention="sdpa", dropout=0.1, dtype=torch.float32):
    torch.manual_seed(3)
    config = LlamaConfig(
        hidden_size=16,
        intermediate_size=16,
        vocab_size=VOCAB,
        num_hidden_layers=2,
        num_attention_heads=2,
        attention_dropout=dropout,
        attn_implementation=attention,
    )
    return LlamaForCausalLM(config).to(dtype)


def arguments(folder, kind=TrainingArguments, **options):
    usual = {
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "steps" if "save_steps" in options else "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return kind(output_dir=str(folder), **(usual | options))


class Remembering(Trainer):
    """Keeps every micro-batch that was trained."""

    def training_step(self, model, inputs, *rest, **options):
        self.__dict__.setdefault("fed", []).append(dict(inputs))
        return super().training_step(model, inputs, *rest, **options)


def trained(run, folder, *, resume=None, model=None, callbacks=None, mine=None, **options):
    """A Trainer that has trained."""
    model = tiny() if model is None else model
    trainer = Remembering(model, arguments(folder, **options), callbacks=callbacks)
    attach(trainer, run, **({"check": False} | (mine or {})))
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def losses(trainer):
    return {one["step"]: one["loss"] for one in trainer.state.log_history if "loss" in one}


def indices(trainer):
    return [i for fed in trainer.fed for i in fed["index"].tolist()]


def digest(trainer):
    """The digest of all rows that were trained, in order of index."""
    hashes = [one for fed in trainer.fed for one in row_hashes(fed)]
    order = np.argsort(indices(trainer))
    return digest_of(hashes[i] for i in order)
