"""A run in TRL's SFTTrainer, which does not pack it again; resumed from the middle."""

import tempfile

from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

import tokenloom as tl
from tokenloom.integrations.hf import attach, placeholder

TINY = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
WORDS = Tokenizer(models.WordLevel({"<eos>": 0}, unk_token="<eos>"))  # TRL wants one


with tempfile.TemporaryDirectory() as folder:
    texts = [{"text": f"the loom holds thread {n} " * (1 + n % 9)} for n in range(300)]
    run = tl.build(texts, f"{folder}/store", tokenizer="bytes").pack(64).shuffle()
    logs = []
    for output, resume in ("whole", None), ("resumed", f"{folder}/whole/checkpoint-5"):
        set_seed(0)
        model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **TINY))
        told = {"save_steps": 5, "logging_steps": 1, "report_to": "none", "bf16": False}
        args = SFTConfig(f"{folder}/{output}", max_steps=12, **told)
        words = PreTrainedTokenizerFast(tokenizer_object=WORDS, eos_token="<eos>")
        trainer = SFTTrainer(model, args, train_dataset=placeholder(), processing_class=words)
        attach(trainer, run, different_tokenizers=True).train(resume_from_checkpoint=resume)
        logs.append([log["loss"] for log in trainer.state.log_history if "loss" in log])
    print("resumed after 5 steps, all losses as without:", logs[0] == logs[1])
