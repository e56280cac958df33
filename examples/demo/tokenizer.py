"""A small byte-level BPE, trained on a slice of the text: 8,192 ids in a few seconds.

It cuts words as GPT-2 does, without a prefix space, so a store is built with the fast engine (see
docs/building.md). Training has no randomness: the same text gives the same file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["EOS", "train"]

EOS = "<|endoftext|>"


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
