"""Levanter: its loader asks for the indices of a step; here it stops after three, and goes on."""

import asyncio
import tempfile

import tokenloom as tl
from tokenloom.integrations.levanter import async_dataset

BATCH = 8


def make(row):  # with Levanter: GrugLmExample.causal(row.tokens, loss_weight=…, segment_ids=…)
    return {"index": row.example, "tokens": row.tokens, "loss": float(row.loss_weight.sum())}


async def steps(dataset, first, stop):  # as Levanter's DataLoader does: the step is its only state
    return [await dataset.get_batch(range(n * BATCH, (n + 1) * BATCH)) for n in range(first, stop)]


with tempfile.TemporaryDirectory() as folder:
    texts = [{"text": f"tale {i} of looms " * (i % 5 + 1)} for i in range(99)]
    store = tl.build(texts, f"{folder}/store", tokenizer="bytes")
    run = store.pack(64).shuffle(perm_type="levanter").seed(0)  # Levanter's order of PRNGKey(0)
    whole = asyncio.run(steps(async_dataset(run, make), 0, 5))
    first, rest = (asyncio.run(steps(async_dataset(run, make), a, b)) for a, b in ((0, 3), (3, 5)))
    for number, (one, other) in enumerate(zip(whole, first + rest, strict=True)):
        same = all((a["tokens"] == b["tokens"]).all() for a, b in zip(one, other, strict=True))
        print(f"step {number}: {sum(row['loss'] for row in one):.0f} targets, the same: {same}")
