"""`block_tokenize`: a batch of texts → rows of token ids, for ``datasets.map(batched=True)``.

One idea: a document is its tokens with BOS and EOS around them; a row consists of pieces of
documents; the pieces are computed from lengths alone (`layout.pack.slices`). So only the first
piece of a document has BOS and only the last has EOS, and every row knows where its documents
start.

The result has lists of equal length, one entry per row:

===================  ==============================================================================
`input_ids`          the tokens, `max_length` at most; rows are not padded
`document_starts`    first cell of each document in the row; the first is always 0
`continues`          for each of them: does it continue a document from an earlier piece?
`overlaps`           for each of them: how many of its first tokens an earlier piece also has (only
                     with a `stride` above 0; the collator does not train those twice)
===================  ==============================================================================

The function sees one batch at a time, and each batch ends with a row that may be short, so give
`map` a large `batch_size`. Cost in addition to the tokenizer: no Python per token, bins in n log n.

A document's *source tokens* are those of its text; BOS and EOS are added only where the text does
not already have them, so that no document starts with two BOS.

A tokenizer is a transformers tokenizer (fast or slow), a ``tokenizers.Tokenizer``, or a function
text → ids. They are recognised without importing their libraries: anyone who passes one has already
imported it. 0 is an id like any other: only None means absent.
"""

from __future__ import annotations

import functools
import itertools
import logging
import operator
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokenloom.arguments import check_between, given_fields, near_misses, one_of
from tokenloom.bind import check_fields
from tokenloom.errors import ConfigError, InputError, TokenizerError, choices, warn
from tokenloom.layout.pack.slices import (
    Slices,
    in_bins,
    slice_each,
    slice_line,
    starts_again,
    starts_apart,
)
from tokenloom.random.keys import check_seed, key
from tokenloom.random.permute import permutations
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


def specials_to_add(tokenizer: Any, options: BlockOptions) -> tuple[int | None, int | None]:
    """The ids of BOS and EOS to add, None for nothing; by default those of the tokenizer."""
    known = special_ids(tokenizer)
    found: list[int | None] = []
    for role, wanted, told, own in (
        ("bos", options.add_bos, options.bos_id, known.bos),
        ("eos", options.add_eos, options.eos_id, known.eos),
    ):
        special = own if told is None else told
        if wanted and special is None:
            missing = f"tokenizer: {type(tokenizer).__name__} has no {role.upper()} token"
            remedy = f"Pass add_{role}=False, or pass its id as {role}_id."
            if options.strict_special_tokens:
                raise TokenizerError(f"{missing}, and strict_special_tokens is set. {remedy}")
            warn_once(f"{missing}, so add_{role} is switched off. {remedy}")
        found.append(special if wanted else None)
    return found[0], found[1]


# The names of this function → the strategies of `layout.pack.packers`, which mean something else:
# there "best_fit" places documents as they arrive, here the longest come first.
STRATEGIES = {
    "greedy": "greedy",
    "best_fit": "best_fit_decreasing",
    "first_fit": "first_fit_decreasing",
    "best_fit_decreasing": "best_fit_decreasing",
    "first_fit_decreasing": "first_fit_decreasing",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockOptions:
    """The options of `block_tokenize`, checked; its docstring describes them."""

    max_length: int = 512
    packed: bool = False
    packing_strategy: str = "greedy"
    overflow: bool = True
    add_bos: bool = True
    add_eos: bool = True
    stride: int = 0
    min_len: int = 1
    max_len: int | None = None
    min_row_len: int = 1
    truncate_at: Any = None
    shuffle_output: bool = False
    seed: int = 0
    strict_special_tokens: bool = False
    bos_id: int | None = None
    eos_id: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        check_seed(self.seed)
        top = self.max_length
        for name, least, most in (
            ("max_length", 1, None),
            ("stride", 0, top - 1),
            ("min_len", 1, None),
            ("max_len", self.min_len, None),
            ("min_row_len", 1, top),
            ("bos_id", 0, None),
            ("eos_id", 0, None),
        ):
            why = f" with max_length={top}" if most is not None else ""
            check_between(f"block_tokenize.{name}", getattr(self, name), least, most, why=why)
        one_of("block_tokenize.packing_strategy", self.packing_strategy, STRATEGIES)
        if self.truncate_at is not None:
            try:
                re.compile(self.truncate_at)
            except (re.error, TypeError) as problem:
                raise ConfigError(
                    f"block_tokenize.truncate_at: found {self.truncate_at!r}, allowed: a regular "
                    f"expression ({problem}). Use re.escape for literal text."
                ) from problem


Rows: TypeAlias = dict[str, list[list[int]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockReport:
    """What `block_tokenize` made of a batch, and what it left out.

    Attributes:
        documents: documents in the batch.
        too_short: documents dropped by `min_len`.
        too_long: documents dropped by `max_len`.
        truncated: documents cut at `max_length`, the rest lost.
        tokens: source tokens of all documents, up to any match of `truncate_at`.
        lost_tokens: source tokens that are in no row.
        repeated_tokens: cells that repeat a token because of `stride`.
        rows: rows made.
        short_rows: additional rows dropped by `min_row_len`.
        fill: share of the cells of the rows that hold a token, 0 to 1.

    >>> words = lambda text: [int(word) for word in text.split()]
    >>> texts = {"text": ["1 2 3 4 5", "6 7"]}
    >>> report = block_report(texts, words, max_length=4, overflow=False, add_bos=False, eos_id=0)
    >>> report.documents, report.truncated, report.lost_tokens, report.rows, report.fill
    (2, 1, 1, 2, 0.875)
    """

    documents: int
    too_short: int
    too_long: int
    truncated: int
    tokens: int
    lost_tokens: int
    repeated_tokens: int
    rows: int
    short_rows: int
    fill: float


@near_misses("block_tokenize")
def block_tokenize(
    features: Mapping[str, Sequence[str]],
    tokenizer: Any,
    feature: str = "text",
    *,
    max_length: int = 512,
    packed: bool = False,
    packing_strategy: str = "greedy",
    overflow: bool = True,
    add_bos: bool = True,
    add_eos: bool = True,
    stride: int = 0,
    min_len: int = 1,
    max_len: int | None = None,
    min_row_len: int = 1,
    truncate_at: str | re.Pattern[str] | None = None,
    shuffle_output: bool = False,
    seed: int = 0,
    strict_special_tokens: bool = False,
    bos_id: int | None = None,
    eos_id: int | None = None,
) -> Rows:
    """Rows of token ids with the boundaries of their documents; see the module for the columns.

    Args:
        features: a batch, column → values.
        tokenizer: a transformers tokenizer, a ``tokenizers.Tokenizer``, or a function text → ids.
        feature: the column that holds the texts.
        max_length: largest number of tokens in a row.
        packed: put several documents in a row; else each document has one or more rows to itself.
        packing_strategy: "greedy" lays documents end to end and cuts where a row is full (with
            overflow=False: fills a row until the next document does not fit). "best_fit" and
            "first_fit" take the longest first and keep whole what fits into a row.
        overflow: a document longer than a row continues in other rows; else the rest is lost,
            including the EOS.
        add_bos: add BOS before each document that does not start with it.
        add_eos: add EOS after each document that does not end with it.
        stride: tokens of a document that are repeated where it is cut, 0 to max_length - 1.
        min_len: documents with fewer source tokens (without BOS and EOS) are dropped.
        max_len: documents with more source tokens are dropped.
        min_row_len: rows with fewer tokens are dropped.
        truncate_at: a regular expression; texts are cut before its first match.
        shuffle_output: put rows in a random order, given by `seed` and the tokens of the batch.
        seed: seed of that order, 0 to 2^64 - 1.
        strict_special_tokens: raise if a token to be added does not exist; else warn once.
        bos_id: the id of BOS; None: the tokenizer's own.
        eos_id: the id of EOS; None: the tokenizer's own.

    Raises:
        ConfigError: an invalid option.
        InputError: the column is missing or holds something other than texts.
        TokenizerError: not a tokenizer, or it has no such special token (when strict).

    >>> words = lambda text: [int(word) for word in text.split()]
    >>> texts = {"text": ["10 11 12", "20 21 22 23 24", "30 31"]}
    >>> rows = block_tokenize(texts, words, max_length=6, packed=True, add_bos=False, eos_id=2)
    >>> rows["input_ids"]
    [[10, 11, 12, 2, 20, 21], [22, 23, 24, 2, 30, 31], [2]]
    >>> rows["document_starts"], rows["continues"]
    ([[0, 4], [0, 4], [0]], [[False, False], [True, False], [True]])
    """
    options = BlockOptions(**given_fields(BlockOptions, locals()))
    documents, pieces = _made(features, tokenizer, feature, options)
    pieces = _long_enough(pieces, options)
    if options.shuffle_output:
        pieces = _shuffled(documents, pieces, options.seed)
    return _rows(documents, pieces, overlaps=options.stride > 0)


@near_misses("block_report")
def block_report(
    features: Mapping[str, Sequence[str]],
    tokenizer: Any,
    feature: str = "text",
    *,
    max_length: int = 512,
    packed: bool = False,
    packing_strategy: str = "greedy",
    overflow: bool = True,
    add_bos: bool = True,
    add_eos: bool = True,
    stride: int = 0,
    min_len: int = 1,
    max_len: int | None = None,
    min_row_len: int = 1,
    truncate_at: str | re.Pattern[str] | None = None,
    shuffle_output: bool = False,
    seed: int = 0,
    strict_special_tokens: bool = False,
    bos_id: int | None = None,
    eos_id: int | None = None,
) -> BlockReport:
    """What `block_tokenize` makes of a batch with the same arguments, in numbers.

    The arguments are those of `block_tokenize`; `shuffle_output` and `seed` do not change a number.
    Use it before a long `map`: ``block_report(dataset[:1000], tokenizer, max_length=4096)``.

    >>> words = lambda text: [int(word) for word in text.split()]
    >>> report = block_report({"text": ["1 2 3", "4"]}, words, max_length=4, min_len=2, eos_id=0,
    ...                       add_bos=False)
    >>> report.rows, report.fill, report.too_short, report.lost_tokens
    (1, 1.0, 1, 1)
    """
    options = BlockOptions(**given_fields(BlockOptions, locals()))
    return _report(*_made(features, tokenizer, feature, options), options)


def _made(
    features: Mapping[str, Sequence[str]], tokenizer: Any, feature: str, options: BlockOptions
) -> tuple[EncodedTexts, Slices]:
    """The documents that are kept, and their pieces in all rows, including short ones."""
    texts = read_texts(features, feature, options.truncate_at)
    bos, eos = specials_to_add(tokenizer, options)
    documents = read_documents(
        texts, tokenizer, least=options.min_len, most=options.max_len, bos=bos, eos=eos
    )
    lengths, width, stride = documents.lengths, options.max_length, options.stride
    if options.packed and options.packing_strategy == "greedy" and options.overflow:
        even = starts_apart(int(lengths.sum()), width)
        starts = starts_again(lengths, width, stride) if stride else even
        return documents, slice_line(lengths, width, starts)
    kept = lengths if options.overflow else np.minimum(lengths, width)
    pieces = slice_each(kept, width, stride)
    if options.packed:
        pieces = in_bins(pieces, width, STRATEGIES[options.packing_strategy])
    return documents, pieces


def _long_enough(pieces: Slices, options: BlockOptions) -> Slices:
    return pieces.pick(np.flatnonzero(pieces.sizes >= options.min_row_len))


def _shuffled(documents: EncodedTexts, pieces: Slices, seed: int) -> Slices:
    """The rows in an order that depends on their tokens: only equal batches have the same order."""
    rows = len(pieces)
    tokens = np.fromiter(itertools.chain.from_iterable(documents.tokens), np.int64)
    stream = key(seed, "block_tokenize", zlib.crc32(tokens.tobytes()))
    order = permutations(max(1, rows), [stream]).forward(np.arange(rows, dtype=np.uint64))
    return pieces.pick(order.astype(np.int64))


def _rows(documents: EncodedTexts, pieces: Slices, overlaps: bool) -> Rows:
    """Pieces as lists; Python counts pieces here, never tokens."""
    start = pieces.start.tolist()
    of = [documents.tokens[document] for document in pieces.document.tolist()]
    stretch = zip(of, start, pieces.stop.tolist(), strict=True)
    parts = [ids if high - low == len(ids) else ids[low:high] for ids, low, high in stretch]
    bounds = list(itertools.pairwise(pieces.edges.tolist()))
    rows: Rows = {
        "input_ids": [functools.reduce(operator.iadd, parts[a:b], []) for a, b in bounds],
        "document_starts": [
            list(itertools.accumulate(map(len, parts[a : b - 1]), initial=0)) for a, b in bounds
        ],
        "continues": [[low > 0 for low in start[a:b]] for a, b in bounds],
    }
    if overlaps:
        repeated = pieces.repeated.tolist()
        rows["overlaps"] = [repeated[a:b] for a, b in bounds]
    return rows


def _report(documents: EncodedTexts, pieces: Slices, options: BlockOptions) -> BlockReport:
    kept = _long_enough(pieces, options)
    # A token counts as kept at its first occurrence. In a document, source tokens are those in
    # [front, front + size): the others are BOS and EOS.
    low = documents.front[kept.document]
    high = low + documents.size[kept.document]
    new = np.minimum(kept.stop, high) - np.maximum(kept.start + kept.repeated, low)
    rows = len(kept)
    return BlockReport(
        documents=documents.seen,
        too_short=documents.too_short,
        too_long=documents.seen - documents.too_short - len(documents.tokens),
        truncated=0 if options.overflow else int((documents.lengths > options.max_length).sum()),
        tokens=documents.seen_tokens,
        lost_tokens=documents.seen_tokens - int(np.maximum(new, 0).sum()),
        repeated_tokens=int(kept.repeated.sum()),
        rows=rows,
        short_rows=len(pieces) - rows,
        fill=int(kept.sizes.sum()) / (rows * options.max_length) if rows else 0.0,
    )
