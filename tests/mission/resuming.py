"""Continues runs from their states: in this process, or as a script from what is on its input."""

import hashlib
import itertools
import json
import sys

import tokenloom as tl

ARRAYS = (
    "tokens",
    "labels",
    "loss_mask",
    "loss_weights",
    "segment_ids",
    "position_ids",
    "attention_mask",
    "document_starts",
    "continues",
    "cu_seqlens",
    "index",
)
SPANS = ("document", "start", "length", "at")


def digest(batch):
    """A hash over every array of a batch, with its shape and dtype."""
    sha256 = hashlib.sha256(repr((batch.source, batch.loss_tokens)).encode())
    arrays = [(name, getattr(batch, name)) for name in ARRAYS]
    for name, array in arrays + [(name, getattr(batch.spans, name)) for name in SPANS]:
        sha256.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return sha256.hexdigest()


def digests(loader, steps):
    """Of the next steps, or of those that are left."""
    return [digest(batch) for batch in itertools.islice(loader, steps)]


if __name__ == "__main__":
    for line in sys.stdin:
        work = json.loads(line)
        run = tl.from_config(work["states"][0]["dataset"])
        found = []
        for state in work["states"]:
            with tl.Loader(run, work["batch_size"], prefetch=work["prefetch"]) as loader:
                loader.load_state_dict(state)
                found.append(digests(loader, work["steps"]))
        print(json.dumps(found))
