"""Grain: a source whose item is a step, with Grain's read threads; an iterator with our state."""

import tempfile

import grain

import tokenloom as tl
from tokenloom.integrations.grain import iterator, source

with tempfile.TemporaryDirectory() as folder:
    texts = [{"text": f"tale {i} of looms " * (i % 5 + 1)} for i in range(40)]
    run = tl.build(texts, f"{folder}/store", tokenizer="bytes").pack(64).shuffle().seed(7)

    steps = grain.MapDataset.source(source(run, batch_size=4, contract="maxtext"))
    for number, batch in enumerate(steps.to_iter_dataset(grain.ReadOptions(num_threads=4))):
        print(number, sorted(batch), batch["inputs"].shape)

    data = iterator(run, batch_size=4, accumulate=2)  # items [2, 2, 64]
    first, state, second = next(data), data.get_state(), next(data)
    data.set_state(state)
    print("resumed:", (next(data)["inputs"] == second["inputs"]).all(), first["inputs"].shape)
