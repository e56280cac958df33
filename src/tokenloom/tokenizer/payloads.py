"""Converts payload bytes to objects of tokenizer libraries, and back.

Everything that must hold for every tokenizer is set here, in the one place where library objects
are made: no padding, no truncation, no dropout (ids would differ at every call). The libraries are
imported inside the functions, so that a build with ``"bytes"`` needs none of them.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import json
from typing import Any

from tokenloom.errors import MissingExtra, TokenizerError


def _library(package: str, extra: str, what: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtra(what, package, extra) from None


def open_tokenizers(payload: bytes, name: str = "tokenizer.json") -> Any:
    """A ``tokenizers.Tokenizer`` that neither pads nor truncates, made from a tokenizer.json."""
    library = _library("tokenizers", "build", f"the tokenizer {name!r}")
    try:
        tokenizer = library.Tokenizer.from_str(payload.decode("utf-8"))
    except Exception as problem:  # the library raises plain Exception, ValueError, TypeError …
        raise TokenizerError(
            f"{name}: not a tokenizer.json that tokenizers {library.__version__} can read "
            f"({_one_line(problem)}). Give a file written by Tokenizer.save or save_pretrained."
        ) from problem
    tokenizer.no_padding()
    tokenizer.no_truncation()
    dropout = getattr(tokenizer.model, "dropout", None)
    if dropout:
        raise TokenizerError(
            f"{name}: model.dropout is {dropout}, so the same text gets different ids each time. "
            "Set it to null in the tokenizer.json, or model.dropout = None on the object."
        )
    return tokenizer


def tokenizers_payload(tokenizer: Any, name: str) -> bytes:
    """The tokenizer.json of a ``tokenizers.Tokenizer``, free of padding and truncation settings.

    Those two are left over from earlier calls on the object and do not affect its ids, so they
    would only change the hash.
    """
    try:
        payload = str(tokenizer.to_str()).encode("utf-8")
    except Exception as problem:
        raise TokenizerError(
            f"tokenizer {name!r}: cannot be written as a tokenizer.json ({_one_line(problem)}); "
            "parts written in Python cannot be saved. Pass a function text → ids instead."
        ) from problem
    return str(open_tokenizers(payload, name).to_str()).encode("utf-8")


def open_sentencepiece(payload: bytes, name: str = "model") -> Any:
    """A ``SentencePieceProcessor`` made from the bytes of a .model file."""
    library = _library("sentencepiece", "sentencepiece", f"the SentencePiece model {name!r}")
    try:
        return library.SentencePieceProcessor(model_proto=payload)
    except (RuntimeError, TypeError, ValueError, OSError) as problem:
        raise TokenizerError(
            f"{name}: not a SentencePiece model ({_one_line(problem)}). "
            "Give the .model file that SentencePieceTrainer wrote."
        ) from problem


def tiktoken_payload(encoding: Any) -> bytes:
    """A ``tiktoken.Encoding`` as canonical JSON.

    ``ranks`` holds the tokens in base64 in rank order; ``rank_values`` is present only if the ranks
    are not 0, 1, 2, … (a rank is also the id).
    """
    ranks = sorted(encoding._mergeable_ranks.items(), key=lambda item: item[1])
    values = [rank for _, rank in ranks]
    data: dict[str, Any] = {
        "name": encoding.name,
        "pat_str": encoding._pat_str,
        "ranks": [base64.b64encode(token).decode("ascii") for token, _ in ranks],
        "special_tokens": encoding._special_tokens,
    }
    if values != list(range(len(values))):
        data["rank_values"] = values
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def open_tiktoken(payload: bytes) -> Any:
    """The ``tiktoken.Encoding`` that :func:`tiktoken_payload` serialized."""
    library = _library("tiktoken", "build", "a tiktoken encoding")
    try:
        data = json.loads(payload)
        tokens = [base64.b64decode(token, validate=True) for token in data["ranks"]]
        values = data.get("rank_values", range(len(tokens)))
        return library.Encoding(
            data["name"],
            pat_str=data["pat_str"],
            mergeable_ranks=dict(zip(tokens, values, strict=True)),
            special_tokens=data["special_tokens"],
        )
    except (KeyError, TypeError, ValueError, binascii.Error) as problem:
        raise TokenizerError(
            f"tiktoken encoding: its payload cannot be read ({_one_line(problem)}). "
            "Make it again with resolve(encoding)."
        ) from problem


def _one_line(problem: BaseException) -> str:
    """The first 200 characters of an exception, on one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
