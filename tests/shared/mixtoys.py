"""Small sources that are mixed, and what a mix draws."""

import itertools

import numpy as np

import tokenloom as tl
from tokenloom.testing import write_store

SEQ_LEN = 8


def toy(root, lengths, *, first=1, vocab_size=1000, columns=None):
    """A store whose documents have these lengths; tokens count up from `first`."""
    count = itertools.count(first)
    documents = [[next(count) % vocab_size for _ in range(length)] for length in lengths]
    half = len(documents) // 2
    shards = [documents[:half], documents[half:]]
    options = {"inner": 16, "chunk_tokens": 32, "vocab_size": vocab_size, "columns": columns}
    write_store(root, [shard for shard in shards if shard], **options)
    return tl.open(root, cache_bytes=1 << 20)


def lengths_of(seed, tokens, most=20):
    """Lengths of documents that have that many tokens together."""
    rng, found = np.random.default_rng(seed), []
    while sum(found) < tokens:
        found.append(min(int(rng.integers(1, most)), tokens - sum(found)))
    return found


def four_sources(root):
    """Whole rows, a ragged tail, and two packed ones."""
    stores = {
        "wiki": toy(root / "wiki", lengths_of(1, 40 * SEQ_LEN)),
        "code": toy(root / "code", lengths_of(2, 15 * SEQ_LEN + 3), first=400),
        "books": toy(root / "books", lengths_of(3, 200, most=8), first=600),
        "web": toy(root / "web", lengths_of(4, 180, most=11), first=10),
    }
    return {
        "wiki": stores["wiki"].windows(SEQ_LEN).shuffle().epochs(2),
        "code": stores["code"].windows(SEQ_LEN, tail="keep").shuffle().epochs(2),
        "books": stores["books"].pack(SEQ_LEN).shuffle().epochs(2),
        "web": stores["web"].pack(SEQ_LEN).shuffle().epochs(2),
    }


def picks_of(mixed, first=0, last=None):
    """(source, item) of some examples of a mix."""
    names, items = mixed.picked(range(first, len(mixed) if last is None else last))
    return list(zip(names, items.tolist(), strict=True))
