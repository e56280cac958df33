"""Fine-tuning on conversations: a store from messages, what is trained on, one step of a model."""

import sys

import torch

import tokenloom as tl
from tokenloom.integrations.torch import dataloader

TEMPLATE = """{% for m in messages %}[{{ m.role }}] {% if m.role == 'assistant' %}
{% generation %}{{ m.content }}{{ '\\n' }}{% endgeneration %}
{% else %}{{ m.content }}{{ '\\n' }}{% endif %}{% endfor %}"""
ask, answer = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4."}
rows = [{"messages": [ask, answer, {**ask, "content": "Sure?"}, {**answer, "content": "Yes."}]}] * 8

folder = sys.argv[1] if len(sys.argv) > 1 else "stores/chat_sft"
chat = tl.build(rows, folder, tokenizer="bytes", chat_template=TEMPLATE)
ids, trained = chat.document(0), chat.document(0, column="loss_mask") > 0
print(repr(chat.tokenizer.decode(ids)), "trained:", repr(chat.tokenizer.decode(ids[trained])))

model = torch.nn.Sequential(torch.nn.Embedding(256, 16), torch.nn.Linear(16, 256))
batch = next(iter(dataloader(chat.pack(128).shuffle(), batch_size=2, contract="plain")))
loss = torch.nn.functional.cross_entropy(model(batch["inputs"]).mT, batch["targets"].long())
loss.backward()
print(f"loss {loss.item():.3f} over {(batch['targets'] != -100).sum()} trained tokens")
