"""The snippet of the README, as it stands there."""

import tokenloom as tl

texts = [{"text": f"Document {i}: " + "all work and no play. " * (i % 7 + 1)} for i in range(500)]
store = tl.build(texts, "stores/demo", tokenizer="bytes")  # or files and a tokenizer.json

run = store.pack(seq_len=128).shuffle().epochs(3).seed(7)  # a description: nothing is read yet
loader = tl.Loader(run, batch_size=16)
batch = next(loader)  # batch.tokens, .labels, .segment_ids, ...: NumPy arrays
state = loader.state_dict()  # one integer and a fingerprint, plain JSON
expected = next(loader)

resumed = tl.Loader(run, batch_size=16, rank=2, world_size=4)  # another process, other ranks
resumed.load_state_dict(state)
assert (next(resumed).tokens == expected.tokens[8:12]).all()

print(run.at(step=1, row=3, batch_size=16))  # which documents are in that row
