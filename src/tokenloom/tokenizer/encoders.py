"""From a :class:`TokenizerSpec` to ids: the reference encoder of every kind.

An encoder turns a batch of texts into one flat array of ids and the number of ids of each text.
However the tokenizer was configured, all encoders:

- add and remove nothing: no BOS, no EOS, no padding, no truncation;
- keep text as text. A document that spells ``<|endoftext|>`` gets the ids of those characters, not
  the id of the special token, unless ``parse_special=True``. Per kind:

  ==============  ==================================  ===========================================
  kind            ``parse_special=False``             ``parse_special=True``
  ==============  ==================================  ===========================================
  tokenizers      special added tokens stay text;     every added token is parsed
                  other added tokens are parsed
  tiktoken        ``encode_ordinary``                 ``encode(allowed_special="all")``
  sentencepiece   control symbols stay text; symbols  refused: the library has no such mode
                  declared user-defined are parsed
  bytes           has no special tokens               the same
  callable        up to the function                  refused: it is up to the function
  ==============  ==================================  ===========================================

- refuse lone surrogates (JSON can deliver them), which UTF-8 cannot represent.

One encoder belongs to one thread; any number of encoders may be in use.

A list of ids becomes a NumPy array through ``array.fromlist``, which is several times as fast as
``np.array`` and ``np.fromiter``. ``encode_batch_fast`` of tokenizers tracks no offsets and takes
0.8 to 0.85 of the time of ``encode_batch``.
Calls hold about 64 Ki characters, which bounds the memory of the library's results; how many texts
share a call made 3 to 8 % of difference, not always in favour of many. `python -m benchmarks build`
prints what encoding costs.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokenloom.errors import ConfigError, InputError, TokenizerError
from tokenloom.limits import limits
from tokenloom.tokenizer.find import LiveCallable, function_of
from tokenloom.tokenizer.payloads import open_sentencepiece, open_tiktoken, open_tokenizers
from tokenloom.tokenizer.spec import TokenizerSpec


class Encoded(NamedTuple):
    """Ids of a batch of texts: flat, with the number of ids of each text."""

    ids: NDArray[np.uint32]
    lengths: NDArray[np.int64]


class Encoder(Protocol):
    """Anything that turns texts into ids and names itself for the store's fingerprint."""

    @property
    def engine(self) -> str:
        """Name of the library that makes the ids."""

    @property
    def version(self) -> str:
        """Version of that library."""

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The ids of every text, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEncoder:
    """An encoder that calls a function for each text, in a plain loop."""

    engine: str
    version: str
    encode_text: Callable[[str], list[int]]

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The ids of every text, in order."""
        refuse_surrogates(texts)
        flat = array("I")
        lengths = np.empty(len(texts), np.int64)
        for i, text in enumerate(texts):
            ids = self.encode_text(text)
            flat.fromlist(ids)
            lengths[i] = len(ids)
        return Encoded(np.frombuffer(flat, np.uint32) if flat else np.empty(0, np.uint32), lengths)


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchEncoder:
    """An encoder that calls a function for many texts at once.

    Attributes:
        engine: name of the library that makes the ids.
        version: version of that library.
        encode_batch: the ids of each of several texts.
    """

    engine: str
    version: str
    encode_batch: Callable[[Sequence[str]], Iterator[list[int]]]

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The ids of every text, in order."""
        refuse_surrogates(texts)
        flat = array("I")
        lengths = array("q")
        for some in batches(texts):
            for ids in self.encode_batch(texts[some]):
                flat.fromlist(ids)
                lengths.append(len(ids))
        counts = np.frombuffer(lengths, np.int64) if lengths else np.empty(0, np.int64)
        return Encoded(np.frombuffer(flat, np.uint32) if flat else np.empty(0, np.uint32), counts)


def batches(texts: Sequence[str]) -> Iterator[slice]:
    """The texts in runs: each ends with the text that makes it 65,536 characters long or more.

    >>> list(batches(["a" * 70_000, "b", "c"]))
    [slice(0, 1, None), slice(1, 3, None)]
    """
    most_characters = limits().encode_batch_characters
    most_texts = limits().encode_batch_texts
    start = characters = 0
    for stop, text in enumerate(texts, 1):
        characters += len(text)
        if characters >= most_characters or stop - start == most_texts or stop == len(texts):
            yield slice(start, stop)
            start, characters = stop, 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BytesEncoder:
    """Ids are the UTF-8 bytes of the text; needs no library."""

    engine: str = "bytes"
    version: str = "1"

    def encode(self, texts: Sequence[str]) -> Encoded:
        """The bytes of every text, in order."""
        refuse_surrogates(texts)
        parts = [text.encode("utf-8") for text in texts]
        lengths = np.fromiter(map(len, parts), np.int64, len(parts))
        return Encoded(np.frombuffer(b"".join(parts), np.uint8).astype(np.uint32), lengths)


def reference_encoder(
    spec: TokenizerSpec, *, parse_special: bool = False, live: LiveCallable | None = None
) -> Encoder:
    """The encoder that defines the ids of a spec.

    Args:
        spec: The tokenizer.
        parse_special: Whether text that spells a special token becomes that token.
        live: The callable that ``resolve`` returned, for a callable without a reference.

    Raises:
        ConfigError: ``parse_special`` for a kind that does not support it.

    >>> encoder = reference_encoder(TokenizerSpec(kind="bytes", name="bytes", vocab_size=256))
    >>> ids, lengths = encoder.encode(["Hi", "", "é"])
    >>> ids.tolist(), lengths.tolist()
    ([72, 105, 195, 169], [2, 0, 2])
    """
    if parse_special and spec.kind in ("sentencepiece", "callable"):
        raise ConfigError(
            f"parse_special: True is not possible for {spec.name!r}, a tokenizer of kind "
            f"{spec.kind}. It works for tokenizers and tiktoken. Leave it out; special tokens at "
            "the ends of documents are added by the build itself (add_bos, add_eos)."
        )
    if spec.kind == "bytes":
        return BytesEncoder()
    if spec.kind == "callable":
        return TextEncoder(
            engine="callable", version="unversioned", encode_text=_callable(spec, live)
        )
    if spec.kind == "tokenizers":
        return _tokenizers(spec, parse_special)
    make = {"tiktoken": _tiktoken, "sentencepiece": _sentencepiece}
    return TextEncoder(
        engine=spec.kind,
        version=installed_version(spec.kind),
        encode_text=make[spec.kind](spec, parse_special),
    )


def installed_version(package: str) -> str:
    """The version of an installed package."""
    from importlib.metadata import version  # imports the email package; only builds need it

    return version(package)


def refuse_surrogates(texts: Sequence[str]) -> None:
    """Raises an InputError that names the first lone surrogate in the texts, if any."""
    for i, text in enumerate(texts):
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as problem:
                raise InputError(
                    f"text {i} of the batch: character {problem.start} is the lone surrogate "
                    f"U+{ord(text[problem.start]):04X}, which has no UTF-8 encoding. "
                    "Repair the record, or build with on_error='skip'."
                ) from None


def _tokenizers(spec: TokenizerSpec, parse_special: bool) -> BatchEncoder:
    tokenizer = open_tokenizers(spec.payload, spec.name)
    tokenizer.encode_special_tokens = not parse_special

    def encode_batch(texts: Sequence[str]) -> Iterator[list[int]]:
        return (one.ids for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False))

    version = installed_version("tokenizers")
    return BatchEncoder(engine="tokenizers", version=version, encode_batch=encode_batch)


def _tiktoken(spec: TokenizerSpec, parse_special: bool) -> Callable[[str], list[int]]:
    encoding = open_tiktoken(spec.payload)
    if parse_special:
        return _no_panic(partial(encoding.encode, allowed_special="all"))
    return _no_panic(encoding.encode_ordinary)


def _no_panic(encode: Callable[[str], list[int]]) -> Callable[[str], list[int]]:
    """The same function, but a Rust panic becomes a TokenizerError.

    tiktoken panics on a million blanks in a row, and a panic is a BaseException: it would escape
    every ``except Exception`` and end the process.
    """

    def encode_text(text: str) -> list[int]:
        try:
            return encode(text)
        except BaseException as problem:
            if type(problem).__name__ != "PanicException":
                raise
            raise TokenizerError(
                f"a text of {len(text):,} characters: tiktoken gave up on it ({problem}), as it "
                "does on very long runs of blanks. Shorten the run, or leave the document out."
            ) from None

    return encode_text


def _sentencepiece(spec: TokenizerSpec, parse_special: bool) -> Callable[[str], list[int]]:
    model = open_sentencepiece(spec.payload, spec.name)

    def encode_text(text: str) -> list[int]:
        # Explicit: a processor may have other defaults, and sampling is not repeatable.
        ids: list[int] = model.encode(
            text, out_type=int, add_bos=False, add_eos=False, enable_sampling=False
        )
        return ids

    return encode_text


def _callable(spec: TokenizerSpec, live: LiveCallable | None) -> Callable[[str], list[int]]:
    if live is None:
        if spec.reference is None:
            raise TokenizerError(
                f"tokenizer {spec.name!r}: a callable without a reference exists only in the "
                "process that made it. Define it in a module and pass 'module:function', or build "
                "in that process, with workers=1."
            )
        live = function_of(spec.reference)
    function = live

    def encode_text(text: str) -> list[int]:
        ids = np.asarray(function(text))
        if ids.size and (ids.ndim != 1 or ids.dtype.kind not in "iu"):
            raise TokenizerError(
                f"tokenizer {spec.name!r}: returned {_kind_of(ids)} for a text. "
                "Allowed: a flat sequence of integers."
            )
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < spec.vocab_size:
            wrong = ids[(ids < 0) | (ids >= spec.vocab_size)][0]
            raise TokenizerError(
                f"tokenizer {spec.name!r}: returned the id {wrong} for a text; ids must be 0 to "
                f"{spec.vocab_size - 1}. Correct the function, or pass a larger vocab_size."
            )
        flat: list[int] = ids.tolist()
        return flat

    return encode_text


def _kind_of(ids: NDArray[Any]) -> str:
    return f"an array of {ids.dtype}, {ids.ndim} axes"
