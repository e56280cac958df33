"""A run in a loop of your own with Accelerate, which saves the place in it with the rest."""

import tempfile

import torch
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM

import tokenloom as tl
from tokenloom.integrations.hf import prepare

TINY = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}

with tempfile.TemporaryDirectory() as folder:
    texts = [{"text": f"the loom holds thread {n} " * (1 + n % 9)} for n in range(300)]
    run = tl.build(texts, f"{folder}/store", tokenizer="bytes").pack(64).shuffle()
    accelerator = Accelerator()
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **TINY))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    loader, losses = prepare(accelerator, run, batch_size=8), []
    for steps in (5, 7, 7):  # the last seven are done again, from the state after five
        for _, batch in zip(range(steps), loader, strict=False):
            accelerator.backward(loss := model(**batch).loss)
            optimizer.step(), optimizer.zero_grad()
            losses.append(loss.item())
        if len(losses) == 5:
            accelerator.save_state(f"{folder}/state")
        accelerator.load_state(f"{folder}/state")
    print("resumed after 5 steps, all losses as without:", losses[5:12] == losses[12:])
