"""Ids of texts, and which of them some characters became: for what is marked inside a text.

One idea: a stretch of characters is the tokens from the one that holds its first character to the
one that holds its last, as `char_to_token` of the tokenizers library says. A token that only partly
lies in the stretch belongs to it. transformers decides so for ``{% generation %}`` blocks, and the
masks are equal to its `assistant_masks`, with one difference: where a normaliser drops the first or
the last characters of a stretch, the nearest one inside it that is left counts. (transformers marks
nothing more in the first case, and everything up to the end of the text in the second.) Like there,
a last character that several tokens spell counts with the first of them: let blocks end with the
token that ends the turn. Tokens of tiktoken spell the bytes of the text, so their sizes say where
they are.

Cost: `encode_batch`, which tracks offsets, takes 1.2 to 1.4 of the time of `encode_batch_fast`;
finding the two ends of a stretch takes a few microseconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenloom.tokenizer.encoders import Encoded, batches, reference_encoder
from tokenloom.tokenizer.payloads import open_tiktoken, open_tokenizers
from tokenloom.tokenizer.spec import TokenizerSpec

__all__ = ["Placer", "place_encoder"]

Stretch: TypeAlias = tuple[int, int]

Placer: TypeAlias = Callable[
    [Sequence[str], Sequence[Sequence[Stretch]]], tuple[Encoded, list[list[Stretch]]]
]


def place_encoder(spec: TokenizerSpec) -> Placer | None:
    """A function: texts and stretches of their characters → ids and stretches of those.

    None for a kind of tokenizer that does not know where its ids come from. Special tokens in the
    text are parsed; none is added.

    >>> place = place_encoder(TokenizerSpec(kind="bytes", name="bytes", vocab_size=256))
    >>> place(["é!"], [[(1, 2)]])[1]
    [[(2, 3)]]
    """
    if spec.kind == "tokenizers":
        return _by_offsets(open_tokenizers(spec.payload, spec.name))
    if spec.kind == "bytes":
        return _by_bytes(spec, np.ones(256, np.int64))
    if spec.kind == "tiktoken":
        encoding = open_tiktoken(spec.payload)
        sizes = np.zeros(spec.vocab_size, np.int64)
        for token, rank in encoding._mergeable_ranks.items():
            sizes[rank] = len(token)
        for text, number in encoding._special_tokens.items():
            sizes[number] = len(text.encode())
        return _by_bytes(spec, sizes)
    return None


def _by_bytes(spec: TokenizerSpec, sizes: NDArray[np.int64]) -> Placer:
    """For ids that spell the bytes of the text end to end; `sizes` are bytes by id."""
    encoder = reference_encoder(spec, parse_special=True)

    def place(
        texts: Sequence[str], stretches: Sequence[Sequence[Stretch]]
    ) -> tuple[Encoded, list[list[Stretch]]]:
        encoded = encoder.encode(texts)
        last = np.cumsum(encoded.lengths)
        found = []
        for text, end, length, some in zip(texts, last, encoded.lengths, stretches, strict=True):
            ends = np.cumsum(sizes[encoded.ids[end - length : end]])
            cut = [(len(text[:a].encode()), len(text[:b].encode())) for a, b in some]
            found.append(
                [
                    (
                        int(np.searchsorted(ends, a, side="right")),
                        int(np.searchsorted(ends, b, side="left")) + 1,
                    )
                    if b > a
                    else (0, 0)
                    for a, b in cut
                ]
            )
        return encoded, found

    return place


def _by_offsets(tokenizer: Any) -> Placer:
    tokenizer.encode_special_tokens = False

    def place(
        texts: Sequence[str], stretches: Sequence[Sequence[Stretch]]
    ) -> tuple[Encoded, list[list[Stretch]]]:
        flat, lengths, found = array("I"), array("q"), list[list[Stretch]]()
        for some in batches(texts):
            for one in tokenizer.encode_batch(texts[some], add_special_tokens=False):
                ids = one.ids
                flat.fromlist(ids)
                lengths.append(len(ids))
                found.append([_tokens(one, *ends) for ends in stretches[len(found)]])
        every = np.frombuffer(flat, np.uint32) if flat else np.empty(0, np.uint32)
        counts = np.frombuffer(lengths, np.int64) if lengths else np.empty(0, np.int64)
        return Encoded(every, counts), found

    return place


def _tokens(encoding: Any, start: int, stop: int) -> Stretch:
    """The tokens [first, last + 1) of the characters [start, stop)."""
    first = _nearest(encoding, range(start, stop))
    if first is None:
        return 0, 0
    end = encoding.char_to_token(stop - 1)
    if end is not None:
        return first, int(end) + 1
    # dropped, or part of the character before it: that one counts, with all its tokens
    last = _nearest(encoding, reversed(range(start, stop))) or first
    own, count = encoding.token_to_chars(last), len(encoding.ids)
    while last + 1 < count and encoding.token_to_chars(last + 1) == own:
        last += 1
    return first, last + 1


def _nearest(encoding: Any, characters: Iterable[int]) -> int | None:
    held = (encoding.char_to_token(place) for place in characters)
    return next((token for token in held if token is not None), None)
