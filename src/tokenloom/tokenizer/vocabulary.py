"""The identity of a tokenizer: which token each id is, and which ids are special.

One idea: two stores may be mixed if an id means the same in both. So the identity covers what ids
mean and nothing else: not the file they came in, not its settings for padding or truncation, not
the name. It is a sha256. For every id that has a token, ascending, it hashes the id and the number
of bytes (uint32, little-endian each) and the bytes of the token; then the ids of BOS, EOS and PAD
(int64, -1 for none).

The bytes of a token are the bytes it represents, if the kind of tokenizer knows them (bytes,
tiktoken, byte-level vocabularies), otherwise its text in the vocabulary as UTF-8. A function has no
vocabulary that could be read, and so no identity.

Cost: 0.3 s for 128,000 tokens, once per tokenizer and process: a build finds it in memory if an
earlier one had the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from struct import pack
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tokenloom.tokenizer.decoders import BYTE_OF_SYMBOL
from tokenloom.tokenizer.payloads import open_sentencepiece, open_tiktoken, open_tokenizers
from tokenloom.tokenizer.spec import TokenizerSpec

Tokens = Iterable[tuple[int, bytes]]

# symbol → the character with the number of its byte; other characters of Latin-1 leave it
_TO_LATIN1: Final = dict.fromkeys(range(256), "\uffff") | {
    ord(symbol): chr(byte) for symbol, byte in BYTE_OF_SYMBOL.items()
}


@lru_cache(maxsize=8)
def vocabulary_identity(spec: TokenizerSpec) -> str:
    """The identity of a tokenizer, 64 hex digits; empty for a function.

    >>> vocabulary_identity(TokenizerSpec(kind="bytes", name="bytes", vocab_size=256))[:12]
    '5426436c8f35'
    """
    if spec.kind == "callable":
        return ""
    sha256 = hashlib.sha256()
    for number, token in sorted(_tokens(spec)):
        sha256.update(pack("<II", number, len(token)) + token)
    specials = (-1 if one is None else one for one in (spec.bos, spec.eos, spec.pad))
    sha256.update(pack("<qqq", *specials))
    return sha256.hexdigest()


@lru_cache(maxsize=8)
def byte_lengths(spec: TokenizerSpec) -> NDArray[np.int64] | None:
    """Bytes of text that each token id stands for; None for a function, whose tokens nobody knows.

    Specials stand for no text.

    >>> byte_lengths(TokenizerSpec(kind="bytes", name="bytes", vocab_size=256))[:3].tolist()
    [1, 1, 1]
    """
    if spec.kind == "callable":
        return None
    found = np.zeros(spec.vocab_size, np.int64)
    for number, token in _tokens(spec):
        if number < len(found):
            found[number] = len(token)
    for special in (spec.bos, spec.eos, spec.pad):
        if special is not None and special < len(found):
            found[special] = 0
    found.flags.writeable = False
    return found


def first_difference(one: TokenizerSpec, other: TokenizerSpec) -> tuple[int, bytes, bytes] | None:
    """The first id that means another token in each of two tokenizers, and both tokens.

    None if every id that both have is the same token, or if one of them is a function.

    >>> first_difference(*2 * [TokenizerSpec(kind="bytes", name="bytes", vocab_size=256)])
    """
    if "callable" in (one.kind, other.kind) or one.sha256 == other.sha256:
        return None
    known = dict(_tokens(other))
    for number, token in sorted(_tokens(one)):
        if known.get(number, token) != token:
            return number, token, known[number]
    return None


def _tokens(spec: TokenizerSpec) -> Tokens:
    """(id, bytes) of every token, in any order."""
    if spec.kind == "bytes":
        return [(number, bytes([number])) for number in range(256)]
    if spec.kind == "tiktoken":
        encoding = open_tiktoken(spec.payload)
        specials = ((number, text.encode()) for text, number in encoding._special_tokens.items())
        return [*((rank, token) for token, rank in encoding._mergeable_ranks.items()), *specials]
    if spec.kind == "sentencepiece":
        model = open_sentencepiece(spec.payload, spec.name)
        return [(n, model.id_to_piece(n).encode()) for n in range(model.get_piece_size())]
    return _tokens_of_json(spec)


def _tokens_of_json(spec: TokenizerSpec) -> Tokens:
    tokenizer = open_tokenizers(spec.payload, spec.name)
    plain = json.loads(spec.payload)
    spelled = "ByteLevel" in json.dumps([plain.get("pre_tokenizer"), plain.get("decoder")])
    added = set(tokenizer.get_added_tokens_decoder())
    for text, number in tokenizer.get_vocab(with_added_tokens=True).items():
        if spelled and number not in added:
            try:
                yield number, text.translate(_TO_LATIN1).encode("latin-1")
                continue
            except UnicodeEncodeError:
                pass  # not the spelling of bytes, hence plain text
        yield number, text.encode("utf-8", "surrogatepass")
