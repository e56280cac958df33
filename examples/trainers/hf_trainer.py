"""A run in a Trainer of transformers: trained at once, and resumed from the middle."""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import tokenloom as tl
from tokenloom.integrations.hf import attach

TINY = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 32}


def losses(output: str, resume: str | None = None) -> list[float]:
    """Train 12 steps, or those after a checkpoint; every step's loss."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, num_attention_heads=2, **TINY))
    told = {"save_steps": 5, "logging_steps": 1, "report_to": "none", "disable_tqdm": True}
    trainer = attach(Trainer(model, TrainingArguments(output, max_steps=12, **told)), run)
    trainer.train(resume_from_checkpoint=resume)
    return [log["loss"] for log in trainer.state.log_history if "loss" in log]


with tempfile.TemporaryDirectory() as folder:
    texts = [{"text": f"the loom holds thread {n} " * (1 + n % 9)} for n in range(300)]
    run = tl.build(texts, f"{folder}/store", tokenizer="bytes").pack(64).shuffle()
    whole = losses(f"{folder}/whole")
    resumed = losses(f"{folder}/resumed", f"{folder}/whole/checkpoint-5")
    print("resumed after 5 steps, all losses as without:", resumed == whole)
