"""What the steps pass on to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tokenloom as tl
from examples.demo.corpus import Document

__all__ = ["FAST", "FULL", "Sizes", "World"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """The sizes of everything.

    Attributes:
        text_bytes: largest amount of text per source, in bytes.
        slice_bytes: text that the tokenizer is trained on, in bytes per source.
        vocab_size: ids of the tokenizer.
        shard_tokens: tokens per shard; small, so that a build can be killed midway.
    """

    text_bytes: Mapping[str, int]
    slice_bytes: int
    vocab_size: int
    shard_tokens: int


FULL: Final = Sizes(
    text_bytes={"code": 12_000_000, "prose": 6_000_000},
    slice_bytes=1_500_000,
    vocab_size=8192,
    shard_tokens=1 << 20,
)
FAST: Final = Sizes(
    text_bytes={"code": 400_000, "prose": 200_000},
    slice_bytes=100_000,
    vocab_size=1024,
    shard_tokens=1 << 16,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """Everything made so far. A step returns a copy with its own results filled in.

    Attributes:
        out: the output directory.
        sizes: the sizes of everything.
        documents: source → its text.
        inputs: source → the file that holds it.
        tokenizer: the tokenizer.json.
        stores: source → its store.
    """

    out: Path
    sizes: Sizes
    documents: Mapping[str, tuple[Document, ...]] = field(default_factory=dict, repr=False)
    inputs: Mapping[str, Path] = field(default_factory=dict)
    tokenizer: Path | None = None
    stores: Mapping[str, tl.Store] = field(default_factory=dict)

    @property
    def build_options(self) -> dict[str, Any]:
        """How every store of the demo is built; the same options give the same bytes."""
        return {
            "tokenizer": str(self.tokenizer),
            "id_key": "id",
            "shard_tokens": self.sizes.shard_tokens,
        }
