"""From ids back to text, and to a printable string for every single token.

Opening a tokenizer takes up to a second, so the last few stay open, cached by payload. Nothing here
imports a callable: looking at a store never runs code that the store names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from tokenloom.errors import TokenizerError
from tokenloom.tokenizer.payloads import open_sentencepiece, open_tiktoken, open_tokenizers
from tokenloom.tokenizer.spec import TokenizerSpec


def decode(spec: TokenizerSpec, ids: ArrayLike) -> str:
    """The text of some ids, special tokens included; broken UTF-8 becomes U+FFFD.

    Byte-level tokenizers return exactly the text that was encoded. SentencePiece models that
    normalise return the normalised text, and nothing for control symbols.

    >>> decode(TokenizerSpec(kind="bytes", name="bytes", vocab_size=256), [72, 105])
    'Hi'
    """
    flat = [int(i) for i in np.asarray(ids).ravel()]
    wrong = next((i for i in flat if not 0 <= i < spec.vocab_size), None)
    if wrong is not None:
        raise TokenizerError(
            f"id {wrong}: not an id of {spec.name!r}, allowed: 0 to {spec.vocab_size - 1}."
        )
    if spec.kind == "bytes":
        return bytes(flat).decode("utf-8", errors="replace")
    if spec.kind == "callable":
        raise TokenizerError(
            f"tokenizer {spec.name!r}: a function text → ids has no inverse, so its ids cannot be "
            "shown as text. Build with the tokenizer itself to be able to decode."
        )
    opened = _opened(spec.kind, spec.payload)
    if spec.kind == "tokenizers":
        return str(opened.decode(flat, skip_special_tokens=False))
    return str(opened.decode(flat))


def token_strings(spec: TokenizerSpec, ids: ArrayLike) -> list[str]:
    r"""One printable string per id, for display.

    Bytes that are not a whole character on their own read ``<0xE2>``, control characters are
    escaped, an id without a token reads ``<id 7>``, and ids of a callable are just their numbers.

    >>> token_strings(TokenizerSpec(kind="bytes", name="bytes", vocab_size=256), [72, 10, 195])
    ['H', '\\n', '<0xC3>']
    """
    tokens: dict[str, Callable[[int], bytes | str | None]] = {
        "bytes": _bytes_token,
        "tokenizers": partial(_tokenizers_token, spec.payload),
        "tiktoken": partial(_tiktoken_token, spec.payload),
        "sentencepiece": partial(_sentencepiece_token, spec.payload),
        "callable": str,
    }
    token = tokens[spec.kind]
    found = ((i, token(i)) for i in map(int, np.asarray(ids).ravel()))
    return [f"<id {i}>" if data is None else _printable(data) for i, data in found]


@lru_cache(maxsize=4)
def _opened(kind: str, payload: bytes) -> Any:
    opens = {
        "tokenizers": open_tokenizers,
        "tiktoken": open_tiktoken,
        "sentencepiece": open_sentencepiece,
    }
    return opens[kind](payload)


@lru_cache(maxsize=4)
def _is_byte_level(payload: bytes) -> bool:
    data = json.loads(payload)
    return "ByteLevel" in json.dumps([data.get("pre_tokenizer"), data.get("decoder")])


def _tokenizers_token(payload: bytes, index: int) -> bytes | str | None:
    tokenizer = _opened("tokenizers", payload)
    token: str | None = tokenizer.id_to_token(index)
    if (
        token is None
        or not _is_byte_level(payload)
        or index in tokenizer.get_added_tokens_decoder()
    ):
        return token
    if not all(symbol in BYTE_OF_SYMBOL for symbol in token):
        return token
    return bytes(BYTE_OF_SYMBOL[symbol] for symbol in token)


def _bytes_token(index: int) -> bytes | None:
    return bytes([index]) if index < 256 else None


def _tiktoken_token(payload: bytes, index: int) -> bytes | None:
    try:
        token: bytes = _opened("tiktoken", payload).decode_single_token_bytes(index)
    except KeyError:
        return None
    return token


def _sentencepiece_token(payload: bytes, index: int) -> str | None:
    model = _opened("sentencepiece", payload)
    if index >= model.get_piece_size():
        return None
    return str(model.id_to_piece(index)).replace("▁", " ")  # SentencePiece's mark for a space


def _printable(data: bytes | str) -> str:
    text = data if isinstance(data, str) else data.decode("utf-8", errors="surrogateescape")
    return "".join(map(_printable_character, text))


def _printable_character(character: str) -> str:
    if 0xDC80 <= ord(character) <= 0xDCFF:  # a byte that surrogateescape carried through
        return f"<0x{ord(character) - 0xDC00:02X}>"
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _byte_of_symbol() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 maps to itself, other bytes to U+0100 and up."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + i): b for i, b in enumerate(others)}


BYTE_OF_SYMBOL: Final = _byte_of_symbol()

"""The byte that each symbol of a byte-level vocabulary represents."""
