"""The shortest session: text in, a store out, a look inside, batches. All files are temporary."""

import json
import tempfile
from pathlib import Path

import tokenloom as tl

POEMS = [
    {
        "id": "haiku",
        "text": "An old silent pond. A frog jumps into the pond. Splash! Silence again.",
    },
    {"id": "couplet", "text": "The force that through the green fuse drives the flower"},
    {"id": "riddle", "text": "Voiceless it cries, wingless flutters, toothless bites."},
]

with tempfile.TemporaryDirectory() as folder:
    corpus, out = Path(folder, "poems.jsonl"), Path(folder, "store")
    corpus.write_text("".join(json.dumps(poem) + "\n" for poem in POEMS))

    # any tokenizer.json will do; "bytes" needs none, and id 0 ends each document
    store = tl.build(corpus, out, tokenizer="bytes", eos=0, id_key="id")
    print(f"{store.num_documents} documents, {store.num_tokens} tokens, digest {store.digest[:12]}")

    store = tl.open(out)  # later, anywhere: reads one small file, whatever the size of the store
    print("lengths in tokens:", store.lengths.tolist())
    print("the first tokens: ", store.document(0)[:8], store.document(0).dtype)
    print("and their text:   ", repr(store.tokenizer.decode(store.document(0)[:8])))
    print("where it is from: ", store.metadata(0))

    report = store.verify()  # reads every byte again; raises StoreCorrupt if one has changed
    print(f"verified: {report.files} files, {report.bytes:,} bytes, all is well")

    run = store.windows(16).shuffle().epochs(2).seed(7)
    loader = tl.Loader(run, batch_size=4)
    first = next(loader)
    print(
        "a batch:          ",
        first.tokens.shape,
        "in it:",
        repr(store.tokenizer.decode(first.tokens[0])),
    )
    state = loader.state_dict()  # what was delivered: one integer and a fingerprint
    again = tl.Loader(run, batch_size=4)
    again.load_state_dict(state)
    print("resumed:          ", (next(again).tokens == next(loader).tokens).all())
