"""A batch of texts → documents: cut at a pattern, tokenised, filtered, with BOS and EOS.

A document's *source tokens* are those of its text; BOS and EOS are added around them afterwards,
and only where the text does not already have them, so that no document starts with two BOS.

What block_tokenize and the collator need from a tokenizer of any kind.

A tokenizer is a transformers tokenizer (fast or slow), a ``tokenizers.Tokenizer``, or a function
text → ids. They are recognised without importing their libraries: anyone who passes one has already
imported it. 0 is an id like any other: only None means absent.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import InputError, TokenizerError, choices, warn
from tokenloom.tokenizer.find import USUAL_NAMES

log = logging.getLogger("tokenloom")


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Ids of the special tokens, None where there is none. Several may share an id."""

    bos: int | None
    eos: int | None
    pad: int | None


def token_ids(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """The ids of each text: nothing added, nothing cut, nothing padded.

    Raises:
        TokenizerError: it is not a tokenizer, or it returned something other than ids.

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
            verbose=False,  # no warning about long texts: they are cut later
        )["input_ids"]
        return made
    if _is_a(tokenizer, "tokenizers", "Tokenizer"):
        plain = _without_limits(tokenizer)
        return [one.ids for one in plain.encode_batch(list(texts), add_special_tokens=False)]
    if not callable(tokenizer):
        raise TokenizerError(
            f"tokenizer: found {type(tokenizer).__name__}, allowed: a tokenizer of transformers,"
            " a tokenizers.Tokenizer, or a function text → ids. Pass a method of this object."
        )
    return [_checked(tokenizer(text)) for text in texts]


def _without_limits(tokenizer: Any) -> Any:
    """A tokenizers.Tokenizer that neither cuts nor pads; the given one is not changed."""
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
            f"tokenizer: a text became {str(ids)[:60]}, allowed: a list of ids, 0 or more. "
            "Pass a function text → ids."
        )
    listed: list[int] = array.astype(np.int64).tolist()
    return listed


def special_ids(tokenizer: Any) -> SpecialIds:
    """The special tokens that a tokenizer declares.

    A ``tokenizers.Tokenizer`` does not declare which of its tokens are special: those with the
    usual names (``<s>``, ``<|endoftext|>`` …) are used, as in `tokenloom.build`.
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
    """Warn once per process and message: `datasets.map` calls thousands of times."""
    warn(message)


@functools.cache
def log_once(message: str, level: int = logging.INFO) -> None:
    """Log once per process and message."""
    log.log(level, message)


Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class EncodedTexts:
    """The documents of a batch that are kept, and what became of the others.

    Attributes:
        tokens: tokens of each document, with BOS and EOS.
        front: number of tokens added before its source tokens, 0 or 1 [documents].
        size: number of its source tokens [documents].
        seen: documents in the batch.
        too_short: those with fewer source tokens than allowed.
        seen_tokens: source tokens of all of them.
    """

    tokens: list[list[int]]
    front: Int64
    size: Int64
    seen: int
    too_short: int
    seen_tokens: int

    @property
    def lengths(self) -> Int64:
        """Tokens of each, with BOS and EOS [documents]."""
        return np.array([len(ids) for ids in self.tokens], np.int64)


def read_documents(
    texts: Sequence[str],
    tokenizer: Any,
    *,
    least: int,
    most: int | None,
    bos: int | None,
    eos: int | None,
) -> EncodedTexts:
    """The documents of some texts.

    Args:
        texts: one per document.
        tokenizer: see the module.
        least: smallest number of source tokens of a document, 1 or more.
        most: largest number of source tokens; None for any.
        bos: id to add before each document that does not start with it; None for nothing.
        eos: id to add after each document that does not end with it; None for nothing.

    >>> made = read_documents(["ab", "b", ""], lambda text: list(text.encode()),
    ...                       least=1, most=None, bos=97, eos=0)
    >>> made.tokens, made.front.tolist(), made.too_short
    ([[97, 98, 0], [97, 98, 0]], [0, 1], 1)
    """
    sources = token_ids(tokenizer, texts)
    enough = [ids for ids in sources if len(ids) >= least]
    kept = [ids for ids in enough if most is None or len(ids) <= most]
    before = [[] if bos is None or ids[0] == bos else [bos] for ids in kept]
    behind = [[] if eos is None or ids[-1] == eos else [eos] for ids in kept]
    return EncodedTexts(
        [b + ids + e if b or e else ids for b, ids, e in zip(before, kept, behind, strict=True)],
        np.array([len(b) for b in before], np.int64),
        np.array([len(ids) for ids in kept], np.int64),
        len(sources),
        len(sources) - len(enough),
        sum(map(len, sources)),
    )


def read_texts(
    features: Mapping[str, Sequence[str]], feature: str, truncate_at: str | re.Pattern[str] | None
) -> list[str]:
    """The texts of a column, each cut before the first match of a pattern.

    >>> read_texts({"text": ["ab<X>cd", "ef"]}, "text", "<X>")
    ['ab', 'ef']
    """
    columns = list(features.keys())
    if feature not in columns:
        raise InputError(
            f"features: there is no column {feature!r}; columns: {choices(feature, columns)} Pass "
            "feature=… for the column with the texts."
        )
    column = features[feature]
    if isinstance(column, str):
        raise InputError(
            f"features.{feature}: found one text, allowed: a list of texts. Call "
            "datasets.map with batched=True."
        )
    texts = list(column)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"features.{feature}[{place}]: found {str(text)[:40]!r} ({type(text).__name__}), "
                "allowed: a text. Remove such rows with datasets.filter first."
            )
    if truncate_at is None:
        return texts
    pattern = re.compile(truncate_at)
    return [text[: match.start()] if (match := pattern.search(text)) else text for text in texts]


def specials_to_add(
    tokenizer: Any,
    *,
    bos: int | None,
    eos: int | None,
    add_bos: bool,
    add_eos: bool,
    strict: bool,
) -> tuple[int | None, int | None]:
    """The ids of BOS and EOS to add, None for nothing.

    Args:
        tokenizer: source of the ids where `bos` and `eos` are None.
        bos: explicit id of BOS.
        eos: explicit id of EOS.
        add_bos: whether to add BOS.
        add_eos: whether to add EOS.
        strict: raise if the tokenizer does not have a token to add; else warn once.
    """
    known = special_ids(tokenizer)
    found: list[int | None] = []
    for role, wanted, told, own in (
        ("bos", add_bos, bos, known.bos),
        ("eos", add_eos, eos, known.eos),
    ):
        special = own if told is None else told
        if wanted and special is None:
            missing = f"tokenizer: {type(tokenizer).__name__} has no {role.upper()} token"
            remedy = f"Pass add_{role}=False, or pass its id as {role}_id."
            if strict:
                raise TokenizerError(f"{missing}, and strict_special_tokens is set. {remedy}")
            warn_once(f"{missing}, so add_{role} is switched off. {remedy}")
        found.append(special if wanted else None)
    return found[0], found[1]
