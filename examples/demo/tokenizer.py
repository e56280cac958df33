"""A small byte-level BPE, trained on a slice of the text: 8,192 ids in a few seconds.

It cuts words as GPT-2 does, without a prefix space, so a store is built with the fast engine (see
docs/building.md). Training has no randomness: the same text gives the same file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from examples.demo.corpus import Document
from examples.demo.printing import megabytes, say
from examples.demo.world import World

__all__ = ["EOS", "train", "train_tokenizer"]

EOS = "<|endoftext|>"


def train_tokenizer(world: World) -> World:
    """The step: `tokenizer.json`, from a slice of every source."""
    path = world.out / "tokenizer.json"
    texts = [
        text
        for documents in world.documents.values()
        for text in slice_of(documents, world.sizes.slice_bytes)
    ]
    train(texts, path, vocab_size=world.sizes.vocab_size)
    size = sum(len(text.encode()) for text in texts)
    say(f"byte-level BPE, {world.sizes.vocab_size:,} ids, {EOS} ends a document")
    say(f"trained on {megabytes(size)} of both sources → {path}")
    return replace(world, tokenizer=path)


def slice_of(documents: Iterable[Document], budget: int) -> Iterator[str]:
    """Texts of about `budget` bytes in total, in hashed order, so that they are a fair sample."""
    left = budget
    for one in sorted(documents, key=lambda one: hashlib.sha256(one.text.encode()).digest()):
        if left <= 0:
            return
        text = one.text[:left]
        left -= len(text.encode())
        yield text


def train(texts: Iterable[str], path: Path, *, vocab_size: int) -> None:
    """Train a byte-level BPE on `texts` and save it at `path`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[EOS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
