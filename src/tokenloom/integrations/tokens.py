"""What block_tokenize and the collator ask of a tokenizer, whichever kind it is.

A tokenizer of transformers (fast or slow), a ``tokenizers.Tokenizer``, or a function text → ids.
They are recognised without importing their libraries: whoever holds one has imported it. An id of
0 is as good as any other: only None means absent.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokenloom.build.lookup import USUAL_NAMES
from tokenloom.errors import TokenizerError
from tokenloom.words import warn

__all__ = ["SpecialIds", "log_once", "special_ids", "token_ids", "warn_once"]

log = logging.getLogger("tokenloom")


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids of the tokens with a role, None where there is none. Roles may share an id."""

    bos: int | None
    eos: int | None
    pad: int | None


def token_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text: nothing added, nothing cut, nothing padded.

    Raises:
        TokenizerError: it is no tokenizer, or gave something other than ids.

    >>> token_ids(lambda text: list(text.encode()), ["ab", ""])
    [[97, 98], []]
    """
    if not texts:
        return []
    if _is_a(tokenizer, "transformers.tokenization_utils_base", "PreTrainedTokenizerBase"):
        made: list[list[int]] = tokenizer(
            list(texts),
            add_special_tokens=False,
            padding=False,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,  # longer than the model's limit is what cutting is for
        )["input_ids"]
        return made
    if _is_a(tokenizer, "tokenizers", "Tokenizer"):
        plain = _without_limits(tokenizer)
        return [one.ids for one in plain.encode_batch(list(texts), add_special_tokens=False)]
    if not callable(tokenizer):
        raise TokenizerError(
            f"tokenizer: found {type(tokenizer).__name__}, allowed are a tokenizer of transformers,"
            " a tokenizers.Tokenizer, or a function text → ids. Give a method of this one."
        )
    return [_checked(tokenizer(text)) for text in texts]


def _without_limits(tokenizer: Any) -> Any:
    """A tokenizers.Tokenizer that neither cuts nor pads; the given one stays as it is."""
    if tokenizer.truncation is None and tokenizer.padding is None:
        return tokenizer
    copy = type(tokenizer).from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


def _checked(ids: Any) -> list[int]:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and (array.dtype.kind not in "iu" or array.min() < 0)):
        raise TokenizerError(
            f"tokenizer: a text became {str(ids)[:60]}, allowed is a list of ids from 0 on. "
            "Give a function text → ids."
        )
    listed: list[int] = array.astype(np.int64).tolist()
    return listed


def special_ids(tokenizer: Any) -> SpecialIds:
    """The special tokens that a tokenizer tells of itself.

    A ``tokenizers.Tokenizer`` does not say which of its tokens have a role: those with the usual
    names (``<s>``, ``<|endoftext|>`` …) are taken, as `tokenloom.build` takes them.
    """
    if _is_a(tokenizer, "tokenizers", "Tokenizer"):
        found = {
            role: next((i for i in map(tokenizer.token_to_id, names) if i is not None), None)
            for role, names in USUAL_NAMES.items()
        }
        return SpecialIds(found["bos"], found["eos"], found["pad"])
    bos, eos, pad = (getattr(tokenizer, f"{role}_token_id", None) for role in ("bos", "eos", "pad"))
    return SpecialIds(bos, eos, pad)


def _is_a(thing: object, module: str, name: str) -> bool:
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(thing, getattr(loaded, name, ()))


@functools.cache
def warn_once(message: str) -> None:
    """Warn, once in a process for each message: `datasets.map` calls thousands of times."""
    warn(message)


@functools.cache
def log_once(message: str, level: int = logging.INFO) -> None:
    """Tell the log, once in a process for each message."""
    log.log(level, message)
